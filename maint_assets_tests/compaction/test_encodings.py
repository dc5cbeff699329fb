"""Inputs of any encoding, page version, codec and index become one file: the same rows are found.

The expected rows are those in memory that the writers were given.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import (
    BloomFilterProperties,
    ColumnProperties,
    DeltaTable,
    QueryBuilder,
    WriterProperties,
    write_deltalake,
)
from pyspark.sql import SparkSession

from maint_assets_tests.compaction.conftest import Compacting
from maint_assets_tests.compaction.filters import scanned, sorted_ids
from maint_assets_tests.oracles import delta_spark
from maint_assets_tests.support.builder import TableBuilder

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

FIELDS: dict[str, Any] = {
    "id": "long",
    "i": "integer",
    "day": "date",
    "at": "timestamp",
    "d9": "decimal(9,2)",
    "d38": "decimal(38,2)",
    "x": "double",
    "f": "float",
    "t": "string",
    "b": "binary",
    "yes": "boolean",
    "void": "long",
    "l": {"type": "array", "elementType": "integer", "containsNull": True},
}
ARROW = pa.schema([
    ("id", pa.int64()),
    ("i", pa.int32()),
    ("day", pa.date32()),
    ("at", pa.timestamp("us", "UTC")),
    ("d9", pa.decimal128(9, 2)),
    ("d38", pa.decimal128(38, 2)),
    ("x", pa.float64()),
    ("f", pa.float32()),
    ("t", pa.string()),
    ("b", pa.binary()),
    ("yes", pa.bool_()),
    ("void", pa.int64()),
    ("l", pa.list_(pa.int32())),
])
ENCODINGS = {
    "plain": dict.fromkeys(ARROW.names[:-1], "PLAIN"),
    "binary packed": dict.fromkeys(
        ("id", "i", "day", "at", "d9", "void", "l.list.element"), "DELTA_BINARY_PACKED"
    ),
    "lengths": dict.fromkeys(("t", "b"), "DELTA_LENGTH_BYTE_ARRAY"),
    "prefixes": dict.fromkeys(("t", "b", "d38"), "DELTA_BYTE_ARRAY"),
    "split": dict.fromkeys(("x", "f", "id", "i", "d38"), "BYTE_STREAM_SPLIT"),
    "runs": {"yes": "RLE"},
}
CODECS = "none", "snappy", "gzip", "lz4", "brotli", "zstd"
ROWS = 60
CONDITIONS = [
    "id = 7", "id in (3, 64)", "id between 58 and 61", "i < 0", "i = 12 or i = -1",
    "day >= cast('2020-02-20' as date)", "d9 = cast(2.50 as decimal(9, 2))",
    "d38 < cast(-14.00 as decimal(38, 2))", "x = 2.0", "x > 20.5", "f < 1.5",
    "t = 'prefix-00010-'", "t >= 'prefix-00110'", "t is null", "t = ''", "yes = true",
    "yes is null", "void is null", "void = 1", "id = -1",
]  # fmt: skip


def some_rows(first: int) -> pa.Table:
    """Rows of all types; most columns have some nulls, one has only nulls."""
    rows: list[dict[str, Any]] = [
        {
            "id": at,
            "i": (-1) ** at * at * 3,
            "day": dt.date(2020, 1, 1) + dt.timedelta(at),
            "at": dt.datetime(2020, 1, 1, 0, 0, at % 60, at, tzinfo=dt.timezone.utc),
            "d9": Decimal(at) / 4,
            "d38": Decimal(-at) / 4,
            "x": at / 4,
            "f": at / 8,
            "t": "" if at == 5 else f"prefix-{at:05}-{'x' * (at % 5)}",
            "b": bytes([at]) * (at % 4),
            "yes": at % 2 == 0,
            "l": [at, None] * (at % 3),
        }
        for at in range(first, first + ROWS)
    ]
    nulls = [{"id": row["id"]} if row["id"] % 7 == 3 else row for row in rows]
    return pa.Table.from_pylist(nulls, ARROW)


def put(table: TableBuilder, rows: pa.Table, **options: Any) -> None:
    """Write and commit a file by Arrow with many small pages, page indexes and bloom filters."""
    file = table.path / f"{table.version}.parquet"
    blooms = dict.fromkeys(("id", "t", "d9"), True)
    pq.write_table(
        rows,
        file,
        data_page_size=64,
        write_batch_size=8,
        row_group_size=25,
        write_page_index=True,
        write_page_checksum=True,
        store_decimal_as_integer=True,
        bloom_filter_options=blooms,
        **options,
    )
    add = {"path": file.name, "partitionValues": {}, "size": file.stat().st_size}
    add |= {"modificationTime": table.clock_ms, "dataChange": True}
    stats = json.dumps({"numRecords": rows.num_rows})
    table.commit([{"add": add | {"stats": stats}}])


def by_arrow(
    _: SparkSession, table: TableBuilder, parts: Iterable[pa.Table], version: str, codec: str
) -> None:
    """One file for each encoding, then one with dictionaries."""
    whole = pa.concat_tables(parts)
    share = -(-whole.num_rows // (len(ENCODINGS) + 1))
    for at, encodings in enumerate([*ENCODINGS.values(), None]):
        put(
            table,
            whole.slice(at * share, share),
            use_dictionary=encodings is None,
            column_encoding=encodings,
            data_page_version=version,
            compression=codec,
        )


def by_spark(
    spark: SparkSession, table: TableBuilder, parts: Iterable[pa.Table], version: str, codec: str
) -> None:
    for rows in parts:
        writer = spark.createDataFrame(rows).coalesce(1).write.format("delta").mode("append")
        for name in ("id", "t"):
            writer = writer.option(f"parquet.bloom.filter.enabled#{name}", "true")
        writer = writer.option("parquet.writer.version", f"v{version[0]}")
        writer = writer.option("parquet.page.size", "256").option(
            "parquet.enable.dictionary", "false"
        )
        writer.option("compression", codec).save(str(table.path))


def by_delta_rs(
    _: SparkSession, table: TableBuilder, parts: Iterable[pa.Table], __: str, codec: str
) -> None:
    """delta-rs always writes pages of version 1, here with encodings of version 2."""
    encodings: dict[str, Any] = {
        name: kind
        for kinds in ("binary packed", "prefixes", "split", "lengths", "runs")
        for name, kind in ENCODINGS[kinds].items()
    }
    encoded = {
        name: ColumnProperties(dictionary_enabled=False, encoding=kind)
        for name, kind in encodings.items()
    }
    bloom = BloomFilterProperties(set_bloom_filter_enabled=True, fpp=0.01, ndv=100)
    looked_up = dict.fromkeys(("id", "t", "d9"), ColumnProperties(bloom_filter_properties=bloom))
    codec = {"none": "UNCOMPRESSED", "lz4": "LZ4_RAW"}.get(codec, codec.upper())
    for rows, columns in zip(parts, (encoded, looked_up), strict=True):
        options: Any = {"compression": codec, "column_properties": columns}
        properties = WriterProperties(data_page_row_count_limit=7, write_batch_size=5, **options)
        write_deltalake(table.path, rows, mode="append", writer_properties=properties)


def by_duckdb(
    _: SparkSession, table: TableBuilder, parts: Iterable[pa.Table], version: str, codec: str
) -> None:
    """For version 2 DuckDB chooses the encodings, and writes a bloom filter per dictionary."""
    codec = {"none": "uncompressed", "lz4": "lz4_raw"}.get(codec, codec)
    for rows in parts:
        file = table.path / f"{table.version}.parquet"
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            connection.register("rows", rows)
            options = f"FORMAT parquet, PARQUET_VERSION v{version[0]}, COMPRESSION {codec}"
            connection.execute(f"COPY (SELECT * FROM rows) TO '{file}' ({options})")
        add = {"path": file.name, "partitionValues": {}, "size": file.stat().st_size}
        add |= {"modificationTime": table.clock_ms, "dataChange": True}
        table.commit([{"add": add | {"stats": json.dumps({"numRecords": rows.num_rows})}}])


WRITERS: dict[str, Callable[..., None]] = {
    write.__name__: write for write in (by_arrow, by_spark, by_delta_rs, by_duckdb)
}
EACH_TIME = {("by_arrow", "2.0", "brotli")}
"""What CI runs; the others run in ``make stories``."""
LONG = [
    (writer, version, codec)
    for writer in WRITERS
    for version in ("1.0", "2.0")
    for codec in CODECS
    if (writer, codec) != ("by_spark", "brotli")  # Spark lacks it
    and (writer, version) != ("by_delta_rs", "2.0")
]


def expected(rows: pa.Table) -> dict[str, list[int]]:
    """The ids that each condition finds in memory."""
    with duckdb.connect() as connection:
        found = connection.from_arrow(rows)
        return {
            text: sorted(row[0] for row in found.filter(text).project("id").fetchall())
            for text in CONDITIONS
        }


def found_by(spark: SparkSession, path: Path) -> dict[str, dict[str, list[int]]]:
    """The ids that each reader finds by each condition; Spark reads the files directly."""
    delta_spark.forget(spark)
    uris = DeltaTable(path).file_uris()
    spark.read.parquet(*uris).createOrReplaceTempView("files")
    lazy, table = pl.scan_parquet(uris), QueryBuilder().register("t", DeltaTable(path))

    def polars(text: str) -> list[int]:
        return lazy.filter(pl.sql_expr(text)).select("id").collect()["id"].to_list()

    def delta_rs(text: str) -> list[int]:
        found = table.execute(f"SELECT id FROM t WHERE {text}").read_all()
        return pa.table(found)["id"].to_pylist()

    def in_duckdb(text: str) -> list[int]:
        with duckdb.connect() as connection:
            found = connection.read_parquet(uris).filter(text).project("id")
            return [row[0] for row in found.fetchall()]

    readers = {"spark": scanned(spark, "files", CONDITIONS)}
    for ask in (polars, delta_rs, in_duckdb):
        readers[ask.__name__] = {text: ask(text) for text in CONDITIONS}
    return {
        name: {text: sorted(ids) for text, ids in answers.items()}
        for name, answers in readers.items()
    }


@pytest.mark.parametrize(
    ("writer", "version", "codec"),
    [pytest.param(*each, marks=[] if each in EACH_TIME else [pytest.mark.long]) for each in LONG],
)
def test_files_of_any_encoding_become_one_in_which_the_same_rows_are_found(
    writer: str,
    version: str,
    codec: str,
    spark: SparkSession,
    tmp_path: Path,
    compacting: Compacting,
) -> None:
    path, parts = tmp_path / "t", [some_rows(0), some_rows(ROWS)]
    table = TableBuilder(path).create(fields=FIELDS)
    WRITERS[writer](spark, table, parts, version, codec)
    before = DeltaTable(path).to_pyarrow_table().sort_by("id")
    assert before.to_pylist() == pa.concat_tables(parts).to_pylist()

    done = compacting(path, verify_rows="full").compact().done

    assert done is not None and (done.files_added, done.not_committed) == (1, {})
    assert done.bins_by_engine == {"arrow": 1}
    assert DeltaTable(path).to_pyarrow_table().sort_by("id") == before
    truth = expected(pa.concat_tables(parts))
    assert found_by(spark, path) == dict.fromkeys(
        ("spark", "polars", "delta_rs", "in_duckdb"), truth
    )
    some = CONDITIONS[::4]  # through the log; planning is slow
    found = sorted_ids(scanned(spark, delta_spark.table(path), some))
    assert found == {text: truth[text] for text in some}
    rows = spark.read.format("delta").load(str(path)).orderBy("id").toArrow()
    assert rows.cast(before.schema).to_pylist() == before.to_pylist()
