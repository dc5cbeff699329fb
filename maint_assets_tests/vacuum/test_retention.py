"""What is retained: to the millisecond, as configured, and never less than allowed."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from maint_assets.errors import RetentionError
from maint_assets_tests.oracles import delta_spark
from maint_assets_tests.oracles.setup import VACUUM_CONF
from maint_assets_tests.support.builder import DAY_MS, HOUR_MS, TableBuilder
from maint_assets_tests.support.chain import files
from maint_assets_tests.vacuum.conftest import ChainOf
from maint_assets_tests.vacuum.planning import planned

NOW_MS = 1_767_225_600_000
IGNORE = f"{VACUUM_CONF}.retentionWindowIgnore.enabled"


@pytest.mark.slow
def test_file_at_the_cutoff_stays_and_one_before_goes(
    spark: SparkSession, tmp_path: Path, chain_of: ChainOf
) -> None:
    table = TableBuilder(tmp_path, now_ms=NOW_MS).at(days_ago=20).create().add("live")
    cutoff_ms = NOW_MS - 7 * DAY_MS
    stones = {"at": cutoff_ms, "before": cutoff_ms - 1, "after": cutoff_ms + 1, "timeless": None}
    table.add(*stones)
    for name, deletion_ms in stones.items():
        remove = table.removed(name, deletion_ms or 0)["remove"]
        kept = {key: value for key, value in remove.items() if value or key != "deletionTimestamp"}
        table.commit([{"remove": kept}])
    day = 1 / DAY_MS
    for name, days in {"m_at": 7, "m_before": 7 + day, "m_after": 7 - day, "future": -9}.items():
        table.stray(name, age_days=days)

    report = chain_of(tmp_path, now_ms=NOW_MS, retention=None, allow_short_retention=False).plan()

    assert files(report) == {"before", "timeless", "m_before"}
    assert report.planned.plan.cutoff_ms == cutoff_ms


@pytest.mark.slow
def test_retention_below_the_property_is_refused(tmp_path: Path, chain_of: ChainOf) -> None:
    TableBuilder(tmp_path).at(days_ago=90).create().add("a").remove("a").age("*", 90)

    for retention in ("167 hours", "604799999 milliseconds", "0 hours", "-1 hours"):
        with pytest.raises(RetentionError, match=r"168|7 days|0 hours"):
            chain_of(tmp_path, retention=retention, allow_short_retention=False).plan()

    assert (tmp_path / "a").exists()


def test_retention_between_hours_is_kept_exactly(spark: SparkSession, tmp_path: Path) -> None:
    table = TableBuilder(tmp_path, now_ms=NOW_MS).at(days_ago=9).create().add("live")
    table.stray("20 min", age_days=20 / 1440).stray("30 min", age_days=30 / 1440)

    plan = planned(spark, tmp_path, cutoff_ms=NOW_MS - int(0.4 * HOUR_MS))

    assert plan.files == {"30 min"}


@pytest.mark.oracle
def test_retain_24_is_honoured_where_delta_spark_ignores_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = TableBuilder(tmp_path).at(days_ago=20).create().add("live", "x").at(days_ago=2)
    table.remove("x").age("*", 20)
    before = spark.conf.get(IGNORE)
    spark.conf.set(IGNORE, "true")

    try:
        theirs = delta_spark.planned_files(spark, tmp_path, retention_hours=24)
    finally:
        spark.conf.set(IGNORE, before)

    assert theirs == set()
    assert planned(spark, tmp_path, cutoff_ms=table.now_ms - DAY_MS).files == {"x"}


@pytest.mark.oracle
def test_long_retention_protects_tombstones_that_the_checkpoint_dropped(
    spark: SparkSession, tmp_path: Path
) -> None:
    short = {"delta.deletedFileRetentionDuration": "interval 1 hour"}
    table = TableBuilder(tmp_path).at(days_ago=20).create(configuration=short).add("live", "x")
    table.at(days_ago=3).remove("x")
    table.tombstones.clear()
    table.checkpoint().add("late").age("*", 20)

    assert delta_spark.planned_files(spark, tmp_path, retention_hours=240) == {"x"}
    assert planned(spark, tmp_path, cutoff_ms=table.now_ms - 10 * DAY_MS).files == set()
    plan = planned(spark, tmp_path, cutoff_ms=table.now_ms - 2 * DAY_MS)
    assert plan.files == {"x"}
    assert plan.removed_in == {"x": 2}


def test_a_retention_beyond_the_calendar_plans_nothing(tmp_path: Path, chain_of: ChainOf) -> None:
    TableBuilder(tmp_path).at(days_ago=90).create().add("a").remove("a").age("*", 90)

    assert files(chain_of(tmp_path, retention="900000 days").plan()) == set()
