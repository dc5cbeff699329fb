"""Real tables by other writers: compacted where the features allow it, and the same rows after."""

import os
import shutil
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from maint_assets.errors import MaintError
from maint_assets_tests.compaction.conftest import Compacting
from maint_assets_tests.oracles import delta_spark

pytestmark = [pytest.mark.oracle, pytest.mark.slow, pytest.mark.long]

TABLES = sorted(
    path.parent.name
    for path in Path(os.environ.get("MAINT_ASSETS_TABLES", "nowhere")).glob("*/_delta_log")
)


@pytest.mark.parametrize("name", TABLES)
def test_rows_are_the_same_after_a_compaction(
    name: str,
    spark: SparkSession,
    shared_tables: Path,
    tmp_path: Path,
    compacting: Compacting,
) -> None:
    path = shutil.copytree(shared_tables / name, tmp_path / name)
    try:
        rows = [repr(row) for row in delta_spark.rows(spark, path)]
    except (PySparkException, Py4JJavaError) as error:
        pytest.skip(f"delta-spark cannot read it: {str(error)[:80]}")
    chain = compacting(path, verify_rows="full")

    try:
        report = chain.compact()
    except MaintError as error:
        assert error.exit_code == 3, error
        assert any(word in str(error) for word in ("feature", "does not allow")), error
        return

    assert report.error is None and report.done is not None
    by_arrow = report.done.bins_by_engine.get("arrow", 0)
    assert (report.done.not_committed, report.done.verified_bins) == ({}, by_arrow)
    assert [repr(row) for row in delta_spark.rows(spark, path)] == rows
    assert chain.compact().planned.plan.bins == 0
