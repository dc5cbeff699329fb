"""Tables of every feature that delta-spark writes: the same plan, and the same rows afterwards."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from maint_assets_tests.oracles import delta_spark
from maint_assets_tests.oracles.feature_tables import FEATURE_TABLES
from maint_assets_tests.support.chain import files
from maint_assets_tests.vacuum.conftest import ChainOf

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

EACH_TIME = {"deletionVectors"}
"""What CI runs; the others run in ``make stories``."""


def _litter(path: Path) -> set[str]:
    """Make untracked files, hidden files, and an empty directory."""
    some_file = next(
        file for file in sorted(path.rglob("*.parquet")) if "_delta_log" not in str(file)
    )
    strays = [path / "orphan #1.parquet", some_file.with_name("orphan.parquet")]
    (path / "_hidden").mkdir()
    (path / "empty" / "inner").mkdir(parents=True)
    for file in (*strays, path / "_hidden" / "kept.parquet", path / ".kept.crc"):
        file.write_bytes(b"x")
    return {str(file.relative_to(path)) for file in strays}


def _shown_rows(spark: SparkSession, path: Path) -> list[str]:
    """The rows as text: variants of equal content do not compare equal."""
    return [repr(row) for row in delta_spark.rows(spark, path)]


@pytest.mark.parametrize(
    "feature",
    [pytest.param(n, marks=[] if n in EACH_TIME else [pytest.mark.long]) for n in FEATURE_TABLES],
)
def test_plan_is_that_of_delta_and_rows_stay(
    feature: str, spark: SparkSession, tmp_path: Path, chain_of: ChainOf
) -> None:
    FEATURE_TABLES[feature](spark, tmp_path)
    strays = _litter(tmp_path)
    rows = _shown_rows(spark, tmp_path)
    theirs = delta_spark.planned_files(spark, tmp_path, retention_hours=0)
    chain = chain_of(tmp_path)

    report = chain.plan()
    done = chain.execute(report).done

    assert files(report) == theirs
    assert strays < theirs, "some files were removed by commits, too"
    beside = report.planned.by_kind.get("checksum", 0)
    assert done is not None and done.files == len(theirs) + beside
    assert not (tmp_path / "empty").exists()
    assert (tmp_path / "_hidden" / "kept.parquet").exists()
    assert _shown_rows(spark, tmp_path) == rows != []


def test_executed_plan_leaves_nothing_to_plan(
    spark: SparkSession, tmp_path: Path, chain_of: ChainOf
) -> None:
    FEATURE_TABLES["deletionVectors"](spark, tmp_path)
    _litter(tmp_path)
    chain = chain_of(tmp_path)

    chain.vacuum()

    assert files(chain.plan()) == set()
