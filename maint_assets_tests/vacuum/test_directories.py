"""Directories: emptied ones are deleted in the same run, all others are kept."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from maint_assets_tests.oracles import delta_spark
from maint_assets_tests.support.builder import TableBuilder
from maint_assets_tests.support.chain import directories
from maint_assets_tests.vacuum.conftest import ChainOf

pytestmark = pytest.mark.slow


def test_emptied_directories_go_in_one_run_and_all_others_stay(
    spark: SparkSession, tmp_path: Path, chain_of: ChainOf
) -> None:
    table = TableBuilder(tmp_path).at(days_ago=9).create().add("live/x", "gone/x", "lost/x")
    table.remove("gone/x", "lost/x", deletion_timestamp_ms=table.now_ms + 1_000_000)
    table.stray("a/b/c/old").stray("hidden/_x/y").stray("recent/file").stray("between/old")
    table.directory("empty/inner").directory("young/inner")
    (tmp_path / "lost/x").unlink()
    table.age("**/*", 9).age("recent/file", -1).age("young/inner", -1)
    chain = chain_of(tmp_path)
    report = chain.plan()
    expected = {"a", "a/b", "a/b/c", "between", "empty", "empty/inner"}
    assert directories(report) == expected

    (tmp_path / "between/new").write_bytes(b"x")
    done = chain.execute(report)

    assert chain.ledger(done)["between"] == ("skipped", "not empty")
    assert done.done and done.done.directories == 5
    left = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_dir()}
    assert left - {"_delta_log"} == {
        "live", "gone", "lost", "hidden", "hidden/_x", "recent", "young", "young/inner", "between",
    }  # fmt: skip


@pytest.mark.oracle
def test_delta_spark_needs_more_runs_for_nested_directories(
    spark: SparkSession, tmp_path: Path
) -> None:
    TableBuilder(tmp_path).at(days_ago=9).create().add("x").stray("a/b/old").age("**/*", 9)

    delta_spark.vacuum(spark, tmp_path, 0)

    assert (tmp_path / "a/b").is_dir()
    assert not (tmp_path / "a/b/old").exists()


def test_root_stays_when_everything_goes(tmp_path: Path, chain_of: ChainOf) -> None:
    table = TableBuilder(tmp_path).at(days_ago=9).create().add("d/x").remove("d/x").age("**/*", 9)

    chain_of(tmp_path).vacuum()

    assert {p.name for p in tmp_path.iterdir()} == {"_delta_log"}
    assert table.log.is_dir()
