"""Rows are divided among tasks, and combined again."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from maint_assets.datasets.columns import column
from maint_assets.datasets.exchange import exchanged
from maint_assets.datasets.rows import units

SCHEMA = T.StructType([column("path", "string"), column("size", "bigint")])


class Named(msgspec.Struct, frozen=True):
    name: str


def seen(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """All names that reach one task, as one row."""
    names = [name for batch in batches for name in batch["path"].to_pylist()]
    if names:
        yield pa.RecordBatch.from_pydict({"path": [",".join(sorted(names))], "size": [len(names)]})


def named(package: list[Named]) -> Iterator[pa.RecordBatch]:
    for unit in package:
        yield pa.RecordBatch.from_pydict({"path": [unit.name], "size": [1]})


def test_no_two_task_groups_meet_in_the_functions_that_follow(spark: SparkSession) -> None:
    packages = [[Named(str(number))] for number in range(7)]

    rows = units(spark, packages, named, kind=Named).then(seen).as_frame(SCHEMA).collect()

    assert sorted(row["path"] for row in rows) == list("0123456")


def test_exchanged_rows_of_a_key_meet_and_no_row_is_lost(
    spark: SparkSession, tmp_path: Path
) -> None:
    packages = [[Named(f"{number % 50}") for number in range(first, 200, 4)] for first in range(4)]
    made = units(spark, packages, named, kind=Named)

    met = exchanged(spark, [made], by=["path"], buckets=6, scratch=str(tmp_path / "s")).then(seen)

    rows = met.as_frame(SCHEMA).collect()
    assert len(rows) == 6
    found = [name for row in rows for name in row["path"].split(",")]
    assert sorted(found) == sorted(str(number % 50) for number in range(200))
    groups = [set(row["path"].split(",")) for row in rows]
    assert sum(map(len, groups)) == 50


def test_nothing_exchanged_is_nothing(spark: SparkSession, tmp_path: Path) -> None:
    made = units(spark, [[]], named, kind=Named)

    met = exchanged(spark, [made], by=["path"], buckets=6, scratch=str(tmp_path / "s"))

    assert met.as_frame(SCHEMA).collect() == []
