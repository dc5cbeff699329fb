"""VACUUM LITE: only files that the log shows as removed; we record its progress ourselves."""

from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from maint_assets.errors import LogGapError, LogTooShortError
from maint_assets.snapshot.head import table_head
from maint_assets.storage.location import Location
from maint_assets.vacuum.handled import handled_version
from maint_assets_tests.oracles import delta_spark
from maint_assets_tests.oracles.feature_tables import FEATURE_TABLES
from maint_assets_tests.support.builder import DAY_MS, TableBuilder
from maint_assets_tests.support.chain import Chain, files
from maint_assets_tests.vacuum.conftest import ChainOf

pytestmark = pytest.mark.usefixtures("spark")


def story(path: Path) -> TableBuilder:
    """Two live files, two removed in commits of their own, and an untracked file; all old."""
    table = TableBuilder(path).at(days_ago=9).create().add("a", "b", "x", "y")
    return table.remove("x").remove("y").stray("stray").age("**/*", 9)


def left(path: Path) -> set[str]:
    return {file.name for file in path.iterdir() if file.is_file()}


def commit(table: TableBuilder, version: int) -> Path:
    return table.log / f"{version:020}.json"


def test_lite_takes_what_was_removed_and_no_stray(tmp_path: Path, chain_of: ChainOf) -> None:
    story(tmp_path)

    done = chain_of(tmp_path, mode="lite").vacuum()

    assert files(done) == {"x", "y"}
    assert done.planned.by_kind == {"removed": 2}
    assert done.planned.plan.share == pytest.approx(0.5, abs=0.1)
    assert left(tmp_path) == {"a", "b", "stray"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "feature",
    [
        "deletionVectors",
        pytest.param("plain", marks=pytest.mark.long),
        pytest.param("partitioned", marks=pytest.mark.long),
        pytest.param("changeDataFeed", marks=pytest.mark.long),
    ],
)
def test_lite_plan_is_that_of_delta(
    spark: SparkSession, tmp_path: Path, chain_of: ChainOf, feature: str
) -> None:
    FEATURE_TABLES[feature](spark, tmp_path)
    (tmp_path / "stray").touch()

    theirs = delta_spark.planned_files(spark, tmp_path, retention_hours=0, what="LITE")
    report = chain_of(tmp_path, mode="lite").plan()

    assert files(report) == {name for name in theirs if (tmp_path / name).exists()} != set()
    before = delta_spark.rows(spark, tmp_path)
    assert chain_of(tmp_path, mode="lite").vacuum().error is None
    assert [repr(row) for row in delta_spark.rows(spark, tmp_path)] == [repr(r) for r in before]


def test_a_file_that_was_removed_and_restored_stays(
    spark: SparkSession, tmp_path: Path, chain_of: ChainOf
) -> None:
    story(tmp_path)
    spark.sql(f"RESTORE {delta_spark.table(tmp_path)} TO VERSION AS OF 2").collect()

    assert files(chain_of(tmp_path, mode="lite").plan()) == {"x"}


def test_repeated_lite_finds_nothing_more(tmp_path: Path, chain_of: ChainOf) -> None:
    story(tmp_path)
    chain = chain_of(tmp_path, mode="lite")

    first, second = chain.vacuum(), chain.vacuum()

    assert (files(first), files(second)) == ({"x", "y"}, set())


def test_lite_refuses_a_log_that_lacks_commits(
    spark: SparkSession, tmp_path: Path, chain_of: ChainOf
) -> None:
    table = story(tmp_path).checkpoint()
    commit(table, 0).unlink()
    chain = chain_of(tmp_path, mode="lite")

    with pytest.raises(Py4JJavaError, match="VACUUM LITE cannot delete all eligible files"):
        delta_spark.planned_files(spark, tmp_path, retention_hours=0, what="LITE")
    with pytest.raises(LogTooShortError, match="VACUUM LITE cannot delete all") as caught:
        chain.plan()

    assert caught.value.exit_code == 3


@pytest.mark.parametrize("first", ["lite", "full"])
def test_after_a_complete_run_the_log_before_it_may_go(
    spark: SparkSession, tmp_path: Path, chain_of: ChainOf, first: str
) -> None:
    """Also after a FULL run, which makes delta-spark forget its own progress."""
    table = story(tmp_path)
    chain = chain_of(tmp_path, mode=first)
    chain.vacuum()
    table.version += 2
    table.at(days_ago=1).remove("b").checkpoint()
    table.age("**/*", 1)
    for version in range(3):
        commit(table, version).unlink()

    assert files(lite(chain).plan()) == {"b"}

    commit(table, 3).unlink()
    commit(table, 4).unlink()
    with pytest.raises(LogTooShortError):
        lite(chain).plan()


def lite(chain: Chain) -> Chain:
    """The same chain on the same workspace, in LITE mode."""
    vacuum = chain.table.vacuum.model_copy(update={"mode": "lite"})
    return Chain(chain.launcher, chain.table.model_copy(update={"vacuum": vacuum}))


def test_what_was_not_deleted_is_found_again(tmp_path: Path, chain_of: ChainOf) -> None:
    """delta-spark's progress moves past such a file."""
    story(tmp_path)
    chain = chain_of(tmp_path, mode="lite")
    report = chain.plan()
    (tmp_path / "x").write_bytes(b"touched meanwhile")

    assert chain.ledger(chain.execute(report))["x"] == ("skipped", "changed since it was planned")

    assert files(chain.vacuum()) == {"x"}
    assert left(tmp_path) == {"a", "b", "stray"}


def test_a_removal_dated_later_than_its_commit_is_not_forgotten(
    tmp_path: Path, chain_of: ChainOf
) -> None:
    table = TableBuilder(tmp_path).at(days_ago=9).create().add("x", "y")
    later_ms = table.now_ms - 2 * DAY_MS
    table.remove("x", deletion_timestamp_ms=later_ms).remove("y").age("**/*", 9)
    chain = chain_of(tmp_path, mode="lite", retention="5 days")

    assert files(chain.vacuum()) == {"y"}

    sooner = chain.table.vacuum.model_copy(update={"retention": timedelta(days=1)})
    again = Chain(chain.launcher, chain.table.model_copy(update={"vacuum": sooner}))
    assert files(again.vacuum()) == {"x"}


@pytest.mark.parametrize("first", ["lite", "full"])
def test_a_removed_file_that_is_young_again_stays_and_is_found_later(
    tmp_path: Path, chain_of: ChainOf, first: str
) -> None:
    """A name used again, or a file copied back for a RESTORE that is not yet in the log."""
    table = story(tmp_path)
    (tmp_path / "x").write_bytes(b"again")
    chain = chain_of(tmp_path, mode=first, retention="1 day")

    assert "x" not in files(chain.vacuum())

    table.age("x", 9)
    assert files(lite(chain).vacuum()) == {"x"}


def test_a_hole_in_the_log_is_named(tmp_path: Path, chain_of: ChainOf) -> None:
    table = story(tmp_path).checkpoint()
    commit(table, 2).unlink()

    with pytest.raises(LogGapError, match="1 commits between 0 and 3 are missing"):
        chain_of(tmp_path, mode="lite").plan()


def test_progress_of_another_table_at_the_same_place_is_none(
    tmp_path: Path, chain_of: ChainOf
) -> None:
    story(tmp_path)
    chain = chain_of(tmp_path, mode="lite")
    chain.vacuum()

    known = chain.launcher.store.handled("t")

    assert known is not None
    head = table_head(Location.of(str(tmp_path)))
    assert handled_version(known, head) >= 3
    assert handled_version(msgspec.structs.replace(known, table_id="another id"), head) == -1
