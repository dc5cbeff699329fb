"""Our checkpoints of random tables against delta-spark's of the same version, value by value.

CI plays one table; SEEDS=100 and the marker ``long`` play more.
"""

import os
import shutil
from collections import defaultdict
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from maint_assets.log_cleanup.checkpoints.soundness import Soundness, soundness_of_each
from maint_assets.log_cleanup.log_directory import log_directory
from maint_assets.storage.location import Location
from maint_assets_tests.commit.checkpoint.random_tables import random_table
from maint_assets_tests.oracles.delta_spark import table as quoted
from maint_assets_tests.support.checkpoint_writing import log, sometimes, written

SEEDS = int(os.environ.get("SEEDS", "12"))
NAMES, MOMENTS = 24, 27
"""Seeds of tables with non-ASCII names, and with timestamps as partition values."""

PARSED = "partitionValues_parsed"
NO_ONE_MEANING = {"timestamp", "binary"}
"""Types of partition values whose text depends on a time zone or escapes: ours are not parsed."""

NAMES_OF_FILES = {"sidecar", "checkpointMetadata"}


@pytest.mark.oracle
@pytest.mark.parametrize("seed", sometimes({*range(SEEDS), NAMES, MOMENTS}, {MOMENTS}))
def test_every_action_is_that_of_deltas_own_and_both_are_what_the_commits_make(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    random_table(spark, ours, Random(seed))
    shutil.copytree(ours, theirs)

    written(spark, ours)
    log(spark, theirs).checkpoint()

    found, expected = actions(spark, ours), actions(spark, theirs)
    assert found.keys() == expected.keys()
    untyped = PARSED if partitioned_by(spark, ours) & NO_ONE_MEANING else None
    for kind in found.keys() - NAMES_OF_FILES:
        assert texts(found[kind]) == texts(expected[kind], without=untyped), kind
    for path in (ours, theirs):
        made = log_directory(Location.of(str(path)))
        assert [*soundness_of_each(made, made.checkpoints).values()] == [Soundness()]


def actions(spark: SparkSession, path: Path) -> dict[str, list[dict[str, Any]]]:
    """The actions of the table's only checkpoint by kind, as Spark reads them."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    place = path / "_delta_log"
    for file in (*place.glob("0*.checkpoint*"), *place.glob("_sidecars/*.parquet")):
        read = spark.read.json if file.suffix == ".json" else spark.read.parquet
        rows = read(str(file))
        for kind in rows.columns:
            there = rows.where(f"{kind} is not null").select(kind).collect()
            found[kind] += [row[0].asDict(recursive=True) for row in there]
    return found


def partitioned_by(spark: SparkSession, path: Path) -> set[str]:
    """The types of the table's partition columns."""
    rows = spark.read.format("delta").load(str(path))
    detail = spark.sql(f"DESCRIBE DETAIL {quoted(path)}").collect()[0]
    return {rows.schema[name].dataType.typeName() for name in detail.partitionColumns}


def texts(rows: list[dict[str, Any]], *, without: str | None = None) -> list[str]:
    """Actions as text, so that NaN equals NaN."""
    return sorted(
        repr(sorted((name, value) for name, value in row.items() if name != without))
        for row in rows
    )
