"""Tables of every feature that delta-spark writes: the same rows after, and a usable table."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from maint_assets_tests.compaction.conftest import Compacting
from maint_assets_tests.oracles import delta_spark
from maint_assets_tests.oracles.feature_tables import FEATURE_TABLES, UPDATE

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

EACH_TIME = {"deletionVectors"}
"""What CI runs; the others run in ``make stories``."""


@pytest.mark.parametrize(
    "feature",
    [pytest.param(n, marks=[] if n in EACH_TIME else [pytest.mark.long]) for n in FEATURE_TABLES],
)
def test_rows_are_the_same_and_writers_go_on(
    feature: str, spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    path = tmp_path / "t"
    FEATURE_TABLES[feature](spark, path)
    name = "`the name`" if feature == "columnMapping" else "name"
    for number in (40, 41):
        spark.sql(f"INSERT INTO {delta_spark.table(path)} (id, {name}) VALUES ({number}, 'new')")
    rows, live = delta_spark.rows(spark, path), delta_spark.active_files(spark, path)
    ids = row_ids(spark, path) if feature == "rowTracking" else []
    chain = compacting(path, verify_rows="full")

    report = chain.compact()
    again = chain.compact()

    assert report.error is None and report.done is not None and report.done.not_committed == {}
    assert report.done.verified_bins == report.done.bins_by_engine.get("arrow", 0)
    assert report.done.bins >= 1
    after = delta_spark.active_files(spark, path)
    assert len(after) == len(live) - report.done.files_removed + report.done.files_added
    # Variants do not compare equal in Python.
    assert repr(delta_spark.rows(spark, path)) == repr(rows) != "[]"
    assert not ids or row_ids(spark, path) == ids
    assert again.planned.plan.bins == 0 and again.done is not None and again.done.versions == []
    spark.sql(UPDATE.format(t=delta_spark.table(path)).replace("name", name))
    spark.sql(f"DELETE FROM {delta_spark.table(path)} WHERE id = 1")
    assert len(delta_spark.rows(spark, path)) == len(rows) - 1


def row_ids(spark: SparkSession, path: Path) -> list[Any]:
    """The value of the column id, the row id and the commit version of each row by Delta."""
    delta_spark.forget(spark)
    columns = ["id", "_metadata.row_id", "_metadata.row_commit_version"]
    found = spark.read.format("delta").load(str(path)).select(*columns).collect()
    return sorted(map(tuple, found))
