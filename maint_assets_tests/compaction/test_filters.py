"""Filters find the same rows before and after a rewrite, with pushdown, in every reader.

Readers skip by the bounds in the log and by the statistics in the footers of files.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from maint_assets_tests.compaction.conftest import Compacting
from maint_assets_tests.compaction.filters import (
    COLUMNS,
    COMPARED,
    Answers,
    literal,
    scanned,
    sorted_ids,
)
from maint_assets_tests.oracles import delta_spark
from maint_assets_tests.support.builder import TableBuilder
from maint_assets_tests.support.old_writers import NO_CALENDAR, file_of, settings

pytestmark = [pytest.mark.oracle, pytest.mark.slow]


MICROS = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
LEGACY = {**MICROS, "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY"}
"""Settings that make our rewrite use Spark: dates are written in the Julian calendar."""


UNFOUND = {("by_spark", "s.zero = cast('-0.0' as float)")}
"""Spark does not find 0.0 in a dictionary by the literal -0.0, even in files of its own."""


def make(spark: SparkSession, path: Path) -> None:
    """A table of all types, flat and in a struct; one row per file, every second one null."""
    table = delta_spark.table(path)
    columns = ", ".join(f"{name} {held.kind}" for name, held in COLUMNS.items())
    fields = ", ".join(f"{name}: {held.kind}" for name, held in COLUMNS.items())
    spark.sql(f"CREATE TABLE {table} (id BIGINT, {columns}, s STRUCT<{fields}>) USING delta")
    rows = itertools.zip_longest(*(held.values for held in COLUMNS.values()))
    for at, row in enumerate(rows):
        cells = [
            "NULL" if text is None else literal(text, held.kind)
            for text, held in zip(row, COLUMNS.values(), strict=True)
        ]
        named = ", ".join(f"'{name}', {cell}" for name, cell in zip(COLUMNS, cells, strict=True))
        full = f"{2 * at}, {', '.join(cells)}, named_struct({named})"
        nulls = f"{2 * at + 1}, {', '.join(['NULL'] * (len(cells) + 1))}"
        spark.sql(f"INSERT INTO {table} SELECT /*+ REPARTITION(1) */ * FROM VALUES ({full})")
        spark.sql(f"INSERT INTO {table} SELECT {nulls}")


def asked(kinds: dict[str, str]) -> dict[str, str]:
    """The conditions in SQL; some types have another name in an engine."""
    found: dict[str, str] = {}
    for name, held in COLUMNS.items():
        kind = kinds.get(held.kind, held.kind)
        values = [*held.values, *held.others]
        for column in (name, f"s.{name}"):
            texts = [f"{column} {how} {literal(v, kind)}" for how in COMPARED for v in values]
            texts += [f"{column} in ({literal(values[0], kind)}, {literal(values[-1], kind)})"]
            texts += [f"{column} is null", f"{column} is not null"]
            found |= {text: text for text in texts}
    return found


def by_spark(spark: SparkSession, path: Path) -> Answers:
    """Read the table's files directly: Spark then skips by their footers only."""
    files = spark.read.parquet(*DeltaTable(path).file_uris())
    files.createOrReplaceTempView("files")
    return scanned(spark, "files", list(asked({})))


def by_delta(spark: SparkSession, path: Path) -> Answers:
    """Read through the log; planning is slow, so only some columns are queried."""
    delta_spark.forget(spark)
    names = "f64 ", "nan ", "inf ", "minus ", "yes ", "mixed ", "s.f32 "
    some = [text for text in asked({}) if text.startswith(names)]
    return scanned(spark, delta_spark.table(path), some)


def without_pushdown(spark: SparkSession, path: Path) -> Answers:
    """The ids that Spark finds by reading every row."""
    conditions = list(asked({}))
    table = spark.read.format("delta").load(str(path))
    rows = table.selectExpr("id", *(f"{c} AS c{at}" for at, c in enumerate(conditions))).collect()
    return {
        text: sorted(row["id"] for row in rows if row[f"c{at}"])
        for at, text in enumerate(conditions)
    }


def by_duckdb(_: SparkSession, path: Path) -> Answers:
    kinds = {"timestamp": "timestamptz", "timestamp_ntz": "timestamp", "binary": "blob"}
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        table = connection.read_parquet(DeltaTable(path).file_uris())
        return {
            text: [row[0] for row in table.filter(text.replace("ä", r"\xC3\xA4")).fetchall()]
            for text in asked(kinds)
        }


def by_polars(_: SparkSession, path: Path) -> Answers:
    table = pl.scan_parquet(DeltaTable(path).file_uris(), missing_columns="raise")

    def ids(condition: Any) -> list[int]:
        return table.filter(condition).select("id").collect()["id"].to_list()

    return answers(pl.col, pl.col("s").struct.field, ids)


def by_deltalake(_: SparkSession, path: Path) -> Answers:
    table = DeltaTable(path).to_pyarrow_dataset()

    def ids(condition: Any) -> list[int]:
        return table.to_table(columns=["id"], filter=condition)["id"].to_pylist()

    return answers(ds.field, lambda name: ds.field("s", name), ids)


def answers(
    flat: Callable[[str], Any], nested: Callable[[str], Any], ids: Callable[[Any], list[int]]
) -> Answers:
    found = Answers()
    for (name, held), of in itertools.product(COLUMNS.items(), (flat, nested)):
        column = of(name)
        for (how, compared), text in itertools.product(
            COMPARED.items(), (*held.values, *held.others)
        ):
            value = pa.scalar(text).cast(held.arrow).as_py()
            found[f"{column} {how} {text}"] = ids(compared(column, value))
        found[f"{column} is null"] = ids(column.is_null())
    return found


READERS = by_spark, by_duckdb, by_polars, by_deltalake
"""deltalake skips files by the log as well; DuckDB and polars by footers only."""


def answers_of(spark: SparkSession, path: Path, readers: Any = READERS) -> dict[str, Answers]:
    return {reader.__name__: sorted_ids(reader(spark, path)) for reader in readers}


@pytest.mark.parametrize(
    ("session", "settings_of_ours"),
    [
        pytest.param(MICROS, {}, id="compacted", marks=pytest.mark.long),
        pytest.param(MICROS, {"zorder_by": ["id"]}, id="ordered", marks=pytest.mark.long),
        pytest.param(LEGACY, {}, id="by-spark", marks=pytest.mark.long),
    ],
)
def test_filters_find_the_same_rows_after_a_rewrite(
    session: dict[str, str],
    settings_of_ours: dict[str, Any],
    spark: SparkSession,
    tmp_path: Path,
    compacting: Compacting,
) -> None:
    path, peer = tmp_path / "ours", tmp_path / "peer"
    with settings(spark, session):
        make(spark, path)
    shutil.copytree(path, peer)
    before, every = answers_of(spark, path, READERS[1:]), without_pushdown(spark, path)

    done = compacting(path, **settings_of_ours).compact().done
    with settings(spark, MICROS):
        spark.sql(f"OPTIMIZE {delta_spark.table(peer)}").collect()

    assert done is not None and (done.files_removed, done.files_added) == (6, 1)
    assert sorted_ids(by_delta(spark, path)).items() <= every.items()
    before["by_spark"] = every
    assert worse(answers_of(spark, path), before, answers_of(spark, peer)) == {}


def worse(after: dict[str, Answers], before: dict[str, Answers], peer: dict[str, Answers]) -> Any:
    """Answers that lost rows compared with before, and with delta-spark's own OPTIMIZE.

    Readers have defects of their own: deltalake takes "NaN" for a bound, DuckDB finds nulls that
    are IN all booleans, Spark does not find -0.0 by 0.0 in a dictionary.
    """
    return {
        (reader, text): ids
        for reader, found in after.items()
        for text, ids in found.items()
        if (reader, text) not in UNFOUND
        and not any(set(ids) >= set(other[reader][text]) for other in (before, peer))
    }


def test_spark_finds_negative_zeros_by_zero_which_it_does_not_in_files_of_delta_spark(
    spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    path, peer = tmp_path / "ours", tmp_path / "peer"
    spark.sql(f"CREATE TABLE {delta_spark.table(path)} (m DOUBLE, z DOUBLE) USING delta")
    rows = "CASE WHEN id % 3 = 0 THEN -double(0) ELSE -1D END, double(id % 2) FROM range(3000)"
    for _ in range(2):
        spark.sql(f"INSERT INTO {delta_spark.table(path)} SELECT /*+ REPARTITION(1) */ {rows}")
    shutil.copytree(path, peer)
    asked_for = "m = 0", "m >= 0", "z = double('-0.0')"

    compacting(path).compact()
    spark.sql(f"OPTIMIZE {delta_spark.table(peer)}").collect()
    delta_spark.forget(spark)

    tables = [spark.read.format("delta").load(str(each)) for each in (path, peer)]
    found = [[table.where(text).count() for text in asked_for] for table in tables]
    assert found == [[2000, 2000, 0], [0, 0, 0]]


def test_spark_finds_negative_zeros_that_come_behind_the_first_row_group(
    spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    table = TableBuilder(tmp_path).create(fields={"x": "double", "f": "float", "y": "double"})
    kinds = {"x": pa.float64(), "f": pa.float32(), "y": pa.float64()}
    for at, (values, times) in enumerate([([0.0, 1.0], 500_000), ([-0.0, -1.0], 500)]):
        columns = {name: pa.array(values * times, kind) for name, kind in kinds.items()}
        columns["y"] = pa.array([2.0, 3.0] * times)
        plain = file_of(
            tmp_path, f"{at}.parquet", pa.table(columns), footer={}, use_dictionary=False
        )
        table.commit([plain])
    asked_for = "x = 0", "f = 0", "x <= 0", "y = 2"
    expected = [500_500, 500_500, 501_000, 500_500]
    found = spark.read.format("delta").load(str(tmp_path))
    assert [found.where(text).count() for text in asked_for] == expected

    done = compacting(tmp_path).compact().done

    delta_spark.forget(spark)
    found = spark.read.format("delta").load(str(tmp_path))
    assert done is not None and done.files_added == 1
    assert [found.where(text).count() for text in asked_for] == expected
    (new,) = (
        pq.read_metadata(tmp_path / name) for name in delta_spark.active_files(spark, tmp_path)
    )
    assert new.num_row_groups == 2
    columns = [new.row_group(0).column(at) for at in range(3)]
    assert [column.has_dictionary_page for column in columns] == [False, False, True]


@pytest.mark.long
def test_files_that_spark_rewrites_have_the_defect_of_those_of_delta_spark(
    spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    path, peer = tmp_path / "ours", tmp_path / "peer"
    table = TableBuilder(path).create(fields={"day": "date", "x": "double"})
    days = pa.array([1, 2] * 500, pa.date32())
    columns = pa.table({"day": days, "x": [-0.0, -1.0] * 500})
    for name in ("1.parquet", "2.parquet"):
        table.commit([file_of(path, name, columns, footer=NO_CALENDAR, use_dictionary=False)])
    shutil.copytree(path, peer)
    assert spark.read.format("delta").load(str(path)).where("x = 0").count() == 1000

    done = compacting(path).compact().done
    spark.sql(f"OPTIMIZE {delta_spark.table(peer)}").collect()

    assert done is not None and done.bins_by_engine == {"spark": 1}
    delta_spark.forget(spark)
    tables = [spark.read.format("delta").load(str(each)) for each in (path, peer)]
    assert [found.where("x = 0").count() for found in tables] == [0, 0]
