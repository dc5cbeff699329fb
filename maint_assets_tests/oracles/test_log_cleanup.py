"""The files that delta-spark and delta-rs delete from the same log.

The table in docs/log_cleanup.md, "Mode spark".
"""

from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from maint_assets.delta.names import commit_name
from maint_assets_tests.oracles import delta_rs, delta_spark
from maint_assets_tests.oracles.log_cleanup import (
    MATRIX,
    NOON_MS,
    delta_rs_cleanup,
    kinds,
    log_of_21_days,
    now_ms,
    spark_cleanup,
)
from maint_assets_tests.support.builder import tree
from maint_assets_tests.support.log_builder import LogBuilder
from maint_assets_tests.support.random_log import random_log

pytestmark = pytest.mark.oracle


@pytest.mark.parametrize("row", MATRIX)
def test_spark_deletes_what_was_measured(spark: SparkSession, tmp_path: Path, row: str) -> None:
    steps, expected, _ = MATRIX[row]
    log = log_of_21_days(tmp_path, NOON_MS, steps)

    found = spark_cleanup(spark, tmp_path, now_ms=NOON_MS)

    assert kinds(found, log) == expected
    assert ids(delta_spark.rows(spark, tmp_path)) == [*range(20)]


@pytest.mark.parametrize("row", MATRIX)
def test_delta_rs_deletes_what_was_measured(tmp_path: Path, row: str) -> None:
    steps, _, expected = MATRIX[row]
    log = log_of_21_days(tmp_path, now_ms(), steps)

    found = delta_rs_cleanup(tmp_path)

    assert kinds(found, log) == expected
    assert ids(delta_rs.rows(tmp_path)) == [*range(20)]


def test_delta_rs_loses_the_rows_of_retained_versions(spark: SparkSession, tmp_path: Path) -> None:
    log_of_21_days(tmp_path, now_ms(), MATRIX["zero bytes"][0])
    assert ids(delta_rs.rows(tmp_path, 12)) == [*range(12)]

    delta_rs_cleanup(tmp_path)

    assert delta_spark.readable_versions(spark, tmp_path) == [20]
    # It reads protocol and metadata from the checksum, and the adds of commits 10 to 12.
    assert ids(delta_rs.rows(tmp_path, 12)) == [9, 10, 11]


def test_spark_goes_on_after_its_first_buffer_is_young(spark: SparkSession, tmp_path: Path) -> None:
    log = log_of_21_days(tmp_path, NOON_MS, lambda log: log.checkpoint(10))
    log.checkpoint(5, at_ms=NOON_MS).touch(NOON_MS - 1, commit_name(4))

    found = spark_cleanup(spark, tmp_path, now_ms=NOON_MS)

    # Its iterator is asked twice for a first file; the second time it searches further.
    gone = [*range(5, 10)]
    assert kinds(found, log) == {"commit": gone, "checksum": gone, "checkpoint": [5]}


def test_spark_deletes_only_sidecars_that_no_checkpoint_shares(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = log_of_21_days(tmp_path, NOON_MS, lambda log: log.checkpoint(3, "v2-json", parts=2))
    shared = log.checkpoint(5, "v2-json").written[-1]
    log.shared_checkpoint(10, shared)

    found = spark_cleanup(spark, tmp_path, now_ms=NOON_MS)

    assert kinds(found, log)["sidecar"] == [3, 3]
    log.drop("_last_checkpoint", *(file.name for file in log.log.glob("*20.checkpoint*")))
    assert ids(delta_spark.rows(spark, tmp_path)) == [*range(20)]
    assert ids(delta_rs.rows(tmp_path, 10)) == [*range(10)]


def test_in_commit_timestamps_are_those_of_the_log(spark: SparkSession, tmp_path: Path) -> None:
    log = LogBuilder(tmp_path, now_ms=NOON_MS, features=["inCommitTimestamp"])
    log.commits([3]).enable_in_commit_timestamps(at_ms=log.ago_ms(2)).checksum(1)
    log.commit(at_ms=NOON_MS, in_commit_ms=log.ago_ms(1)).checksum(2).compaction(0, 2)

    history = spark.sql(f"DESCRIBE HISTORY {delta_spark.table(tmp_path)}").collect()

    seconds = [row.timestamp.timestamp() for row in history]
    assert seconds == [log.ago_ms(days) / 1_000 for days in (1, 2, 3)]
    assert ids(delta_rs.rows(tmp_path)) == [0, 1]


@pytest.mark.parametrize("seed", range(2))
def test_random_logs_load_before_and_after(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    log = random_log(Random(seed), tmp_path)
    assert ids(delta_spark.rows(spark, tmp_path)) == [*range(log.version)]

    spark_cleanup(spark, tmp_path, now_ms=log.now_ms)

    assert ids(delta_spark.rows(spark, tmp_path)) == [*range(log.version)]


def test_same_seed_draws_the_same_log(tmp_path: Path) -> None:
    one, two = (random_log(Random(7), tmp_path / name) for name in ("one", "two"))

    assert tree(one.log) == tree(two.log)


def ids(rows: Iterable[dict[str, Any]]) -> list[int]:
    return sorted(row["id"] for row in rows)
