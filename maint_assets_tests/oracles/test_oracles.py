"""The oracles themselves: the tables they write, and their answers about them."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from maint_assets_tests.oracles import delta_rs, delta_spark
from maint_assets_tests.support.builder import TableBuilder

pytestmark = pytest.mark.oracle


def test_both_oracles_plan_what_has_expired(spark: SparkSession, tmp_path: Path) -> None:
    table = TableBuilder(tmp_path).at(days_ago=10).create().add("kept", "early", "late")
    table.at(days_ago=9).remove("early").at(days_ago=2).remove("late")
    table.stray("old%20stray#?", age_days=8).stray("young stray", age_days=1)

    expired = {"early", "old%20stray#?"}
    assert delta_spark.planned_files(spark, tmp_path) == expired
    assert delta_rs.planned_files(tmp_path) == expired
    assert delta_rs.planned_files(tmp_path, full=False, retention_hours=24) == {"early", "late"}


@pytest.mark.slow
def test_vacuumed_version_is_no_longer_readable(spark: SparkSession, tmp_path: Path) -> None:
    TableBuilder(tmp_path).at(days_ago=10).create().add("a", "b").remove("a")
    assert delta_spark.readable_versions(spark, tmp_path) == [0, 1, 2]

    delta_spark.vacuum(spark, tmp_path)

    assert 1 not in delta_spark.readable_versions(spark, tmp_path)
    assert not (tmp_path / "a").exists()


def test_delta_rs_deletes_what_it_plans(tmp_path: Path) -> None:
    TableBuilder(tmp_path).at(days_ago=10).create().add("a", "b").remove("a")
    planned = delta_rs.planned_files(tmp_path)

    deleted = delta_rs.vacuum(tmp_path)

    assert planned == deleted == {"a"}
    assert not (tmp_path / "a").exists()
