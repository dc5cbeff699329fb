"""The rows that readers find by filters on a table of all types, with and without pushdown."""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from maint_assets_tests.oracles import delta_spark


class Held(NamedTuple):
    """A column, and the values it is compared with: its own and others."""

    kind: str
    arrow: pa.DataType
    values: tuple[str, ...]
    others: tuple[str, ...] = ()


Columns = dict[str, Held]
Answers = dict[str, list[int]]
Ask = Callable[[SparkSession, Path, Columns], Answers]


class Reader(NamedTuple):
    """The queries of a reader: one that skips what it can, and one that reads every row."""

    pushed: Ask
    unpushed: Ask


class Defect(NamedTuple):
    """Filters (a pattern) by which a reader misses rows in files of any writer, and the cause."""

    reader: str
    filters: str
    why: str


DEFECTS = (
    Defect(
        "deltalake",
        r"f32 (=|<>|<|>|>=) .+",
        'takes the bound "NaN" in the log for a number: no row by = and >, all by < and <>',
    ),
)


def defect(reader: str, asked: str) -> Defect | None:
    """The known defect by which a reader misses rows with this filter."""
    known = (each for each in DEFECTS if each.reader == reader)
    return next((each for each in known if re.fullmatch(each.filters, asked)), None)


def every_row(spark: SparkSession, path: Path, columns: Columns) -> dict[str, Answers]:
    """The rows that readers find by reading every row."""
    found = {name: each.unpushed(spark, path, columns) for name, each in READERS.items()}
    return {
        name: {text: sorted(ids) for text, ids in answers.items()}
        for name, answers in found.items()
    }


def wrong(
    spark: SparkSession, path: Path, columns: Columns, *, truth: dict[str, Answers]
) -> dict[tuple[str, str], list[int]]:
    """The answers to filters that differ from those found by reading every row."""
    return {
        (name, text): sorted(ids)
        for name, each in READERS.items()
        for text, ids in each.pushed(spark, path, columns).items()
        if sorted(ids) != truth[name][text]
    }


def make(spark: SparkSession, path: Path, columns: Columns) -> None:
    """A table of all types, flat and in a struct; one row per file, every second one null."""
    table = delta_spark.table(path)
    flat = ", ".join(f"{name} {held.kind}" for name, held in columns.items())
    fields = ", ".join(f"{name}: {held.kind}" for name, held in columns.items())
    spark.sql(f"CREATE TABLE {table} (id BIGINT, {flat}, s STRUCT<{fields}>) USING delta")
    rows = itertools.zip_longest(*(held.values for held in columns.values()))
    for at, row in enumerate(rows):
        cells = [
            "NULL" if text is None else literal(text, held.kind)
            for text, held in zip(row, columns.values(), strict=True)
        ]
        named = ", ".join(f"'{name}', {cell}" for name, cell in zip(columns, cells, strict=True))
        full = f"{2 * at}, {', '.join(cells)}, named_struct({named})"
        nulls = f"{2 * at + 1}, {', '.join(['NULL'] * (len(cells) + 1))}"
        spark.sql(f"INSERT INTO {table} SELECT /*+ REPARTITION(1) */ * FROM VALUES ({full})")
        spark.sql(f"INSERT INTO {table} SELECT {nulls}")


def in_sql(columns: Columns, kinds: dict[str, str] | None = None) -> dict[str, str]:
    """The conditions in SQL by their text; some types have another name in an engine."""
    found: dict[str, str] = {}
    for name, held in columns.items():
        kind = (kinds or {}).get(held.kind, held.kind)
        values = [*held.values, *held.others]
        for column in (name, f"s.{name}"):
            for how, text in itertools.product(COMPARED, values):
                found[f"{column} {how} {text}"] = f"{column} {how} {literal(text, kind)}"
            both = f"{literal(values[0], kind)}, {literal(values[-1], kind)}"
            found[f"{column} in {values[0]}, {values[-1]}"] = f"{column} in ({both})"
            found[f"{column} is null"] = f"{column} is null"
            found[f"{column} is not null"] = f"{column} is not null"
    return found


def by_spark(spark: SparkSession, path: Path, columns: Columns) -> Answers:
    """Read the table's files directly: Spark then skips by their footers only."""
    files = spark.read.parquet(*DeltaTable(path).file_uris())
    files.createOrReplaceTempView("files")
    return scanned(spark, "files", in_sql(columns))


def by_delta(spark: SparkSession, path: Path, columns: Columns) -> Answers:
    """Read through the log; planning is slow, so only some columns are queried."""
    delta_spark.forget(spark)
    names = "f64 ", "nan ", "inf ", "minus ", "yes ", "mixed ", "s.f32 "
    asked = {text: sql for text, sql in in_sql(columns).items() if text.startswith(names)}
    return scanned(spark, delta_spark.table(path), asked)


def scanned(spark: SparkSession, table: str, asked: Mapping[str, str] | Iterable[str]) -> Answers:
    """The ids found by each condition: one scan each, 60 scans in a query."""
    named = asked if isinstance(asked, Mapping) else {each: each for each in asked}
    found: Answers = {text: [] for text in named}
    conditions = list(named.items())
    for start in range(0, len(conditions), 60):
        some = conditions[start : start + 60]
        scans = (f"SELECT {at} AS at, id FROM {table} WHERE {c}" for at, (_, c) in enumerate(some))
        for row in spark.sql(" UNION ALL ".join(scans)).collect():
            found[some[row["at"]][0]].append(row["id"])
    return found


def by_spark_unpushed(spark: SparkSession, path: Path, columns: Columns) -> Answers:
    delta_spark.forget(spark)
    asked = in_sql(columns)
    table = spark.read.format("delta").load(str(path))
    rows = table.selectExpr("id", *(f"{c} AS c{at}" for at, c in enumerate(asked.values())))
    return _true_in([tuple(row) for row in rows.collect()], asked)


def by_duckdb(_: SparkSession, path: Path, columns: Columns) -> Answers:
    with _duckdb() as connection:
        table = connection.read_parquet(DeltaTable(path).file_uris())
        return {
            text: [row[0] for row in table.filter(sql).fetchall()]
            for text, sql in _duckdb_sql(columns).items()
        }


def by_duckdb_unpushed(_: SparkSession, path: Path, columns: Columns) -> Answers:
    asked = _duckdb_sql(columns)
    conditions = ", ".join(f"({sql})" for sql in asked.values())
    with _duckdb() as connection:
        connection.execute("PRAGMA disable_optimizer")
        table = connection.read_parquet(DeltaTable(path).file_uris())
        return _true_in(table.project(f"id, {conditions}").fetchall(), asked)


def _duckdb() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def _duckdb_sql(columns: Columns) -> dict[str, str]:
    kinds = {"timestamp": "timestamptz", "timestamp_ntz": "timestamp", "binary": "blob"}
    return {
        text: sql.replace("ä", r"\xC3\xA4") if "bytes" in text else sql
        for text, sql in in_sql(columns, kinds).items()
    }


def _true_in(rows: list[tuple[Any, ...]], asked: dict[str, str]) -> Answers:
    """The ids, which are the first value of each row, for which each condition holds."""
    return {text: [row[0] for row in rows if row[at]] for at, text in enumerate(asked, 1)}


def by_polars(_: SparkSession, path: Path, columns: Columns) -> Answers:
    table = pl.scan_parquet(DeltaTable(path).file_uris(), missing_columns="raise")
    return {
        text: table.filter(condition).select("id").collect()["id"].to_list()
        for text, condition in _expressions(columns, pl.col, pl.col("s").struct.field)
    }


def by_polars_unpushed(_: SparkSession, path: Path, columns: Columns) -> Answers:
    table = pl.read_parquet(DeltaTable(path).file_uris(), missing_columns="raise")
    return {
        text: table.filter(condition)["id"].to_list()
        for text, condition in _expressions(columns, pl.col, pl.col("s").struct.field)
    }


def by_deltalake(_: SparkSession, path: Path, columns: Columns) -> Answers:
    table = DeltaTable(path).to_pyarrow_dataset()
    return {
        text: table.to_table(columns=["id"], filter=condition)["id"].to_pylist()
        for text, condition in _expressions(columns, ds.field, lambda name: ds.field("s", name))
    }


def by_deltalake_unpushed(_: SparkSession, path: Path, columns: Columns) -> Answers:
    table = DeltaTable(path).to_pyarrow_table()
    return {
        text: table.filter(condition)["id"].to_pylist()
        for text, condition in _expressions(columns, ds.field, lambda name: ds.field("s", name))
    }


def _expressions(
    columns: Columns, flat: Callable[[str], Any], nested: Callable[[str], Any]
) -> Iterator[tuple[str, Any]]:
    for (name, held), (above, of) in itertools.product(
        columns.items(), (("", flat), ("s.", nested))
    ):
        column = of(name)
        for (how, compared), text in itertools.product(
            COMPARED.items(), (*held.values, *held.others)
        ):
            value = pa.scalar(text).cast(held.arrow).as_py()
            yield f"{above}{name} {how} {text}", compared(column, value)
        yield f"{above}{name} is null", column.is_null()


READERS = {
    "Spark": Reader(by_spark, by_spark_unpushed),
    "delta-spark": Reader(by_delta, by_spark_unpushed),
    "DuckDB": Reader(by_duckdb, by_duckdb_unpushed),
    "polars": Reader(by_polars, by_polars_unpushed),
    "deltalake": Reader(by_deltalake, by_deltalake_unpushed),
}
"""Spark, DuckDB and polars skip by footers only; delta-spark and deltalake by the log as well."""


COLUMNS = {
    "i8": Held("tinyint", pa.int8(), ("-128", "0"), ("127",)),
    "i16": Held("smallint", pa.int16(), ("-32768", "0"), ("32767",)),
    "i32": Held("int", pa.int32(), ("-2147483648", "0"), ("2147483647",)),
    "i64": Held("bigint", pa.int64(), ("0", "9223372036854775807"), ("-9223372036854775808",)),
    "d9": Held("decimal(9,2)", pa.decimal128(9, 2), ("-9999999.99", "0.01"), ("1.00",)),
    "d38": Held("decimal(38,9)", pa.decimal128(38, 9), ("-12345678901234567890123456789.5", "0")),
    "f32": Held("float", pa.float32(), ("0.5", "NaN", "0.25"), ("1", "-1")),
    "f64": Held("double", pa.float64(), ("0.5", "NaN", "0.25"), ("1", "-1")),
    "nan": Held("double", pa.float64(), ("NaN",), ("1", "-1")),
    "minus": Held("double", pa.float64(), ("-0.0", "-1"), ("0", "1")),
    "zero": Held("float", pa.float32(), ("0.0", "1"), ("-0.0", "-1")),
    "inf": Held("double", pa.float64(), ("-Infinity", "1"), ("Infinity", "NaN")),
    "text": Held("string", pa.string(), ("", "b" * 40, "\U0001f600"), ("b" * 32, "\uffff")),
    "bytes": Held("binary", pa.binary(), ("", "b" * 40, "ä"), ("b" * 32, "z")),
    "yes": Held("boolean", pa.bool_(), ("true",), ("false",)),
    "mixed": Held("boolean", pa.bool_(), ("true", "false")),
    "day": Held("date", pa.date32(), ("1582-10-15", "1969-12-31"), ("2024-02-29", "0001-01-01")),
    "moment": Held(
        "timestamp",
        pa.timestamp("us", "UTC"),
        ("1600-01-01 00:00:00.000001Z", "1969-12-31 23:59:59.999999Z"),
        ("2024-02-29 12:00:00Z",),
    ),
    "local": Held(
        "timestamp_ntz",
        pa.timestamp("us"),
        ("1600-01-01 00:00:00.000001", "1969-12-31 23:59:59.999999"),
        ("2024-02-29 12:00:00",),
    ),
}


COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, ">": operator.gt, ">=": operator.ge
}  # fmt: skip


def literal(text: str, kind: str) -> str:
    return f"cast('{text}' as {kind})"


def sorted_ids(found: Answers) -> Answers:
    return {text: sorted(ids) for text, ids in found.items()}
