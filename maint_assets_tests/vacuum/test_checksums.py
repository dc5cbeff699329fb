"""Checksum files of Hadoop's local file system are deleted with their files."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from maint_assets.cli.vacuum import VacuumReport, planned_paths
from maint_assets_tests.oracles import delta_spark
from maint_assets_tests.support.builder import TableBuilder
from maint_assets_tests.support.chain import directories
from maint_assets_tests.support.story import Story
from maint_assets_tests.vacuum.conftest import ChainOf

pytestmark = pytest.mark.usefixtures("spark")

SUM = b"crc\0\0\0\2\0\1\2\3\4"


def story(path: Path) -> TableBuilder:
    """Live, removed and untracked files with checksums, and checksums without a file; all old."""
    table = TableBuilder(path).at(days_ago=9).create().add("l/a", "r/b").remove("r/b").stray("s/c")
    for name in ("l/.a.crc", "r/.b.crc", "s/.c.crc", "o/.gone.crc", "x/._h.crc"):
        table.stray(name, content=SUM)
    return table.stray("n/.odd.crc", content=b"no sum").stray("n/.e").age("**/*", 9).age("*", 9)


def planned(report: VacuumReport) -> set[str]:
    return set(planned_paths(report.diff, directories=False))


@pytest.mark.parametrize("mode", ["full", "lite"])
def test_the_sum_of_a_file_goes_with_it(tmp_path: Path, chain_of: ChainOf, mode: str) -> None:
    story(tmp_path)

    done = chain_of(tmp_path, mode=mode).vacuum()

    removed = {"r/b", "r/.b.crc"}
    strays = {"s/c", "s/.c.crc", "o/.gone.crc"} if mode == "full" else set[str]()
    assert planned(done) == removed | strays
    assert directories(done) == ({"r", "s", "o"} if mode == "full" else set())
    assert done.error is None
    assert all((tmp_path / path).exists() for path in ("l/.a.crc", "n/.odd.crc", "x/._h.crc"))


def test_a_young_sum_stays_and_keeps_its_directory(tmp_path: Path, chain_of: ChainOf) -> None:
    story(tmp_path).age("r/.b.crc", 0).age("r", 9)

    report = chain_of(tmp_path, retention="1 day").plan()

    assert {"r/b", "r/.b.crc"} & planned(report) == {"r/b"}
    assert "r" not in directories(report)


def test_a_sum_that_the_log_names_stays(tmp_path: Path, chain_of: ChainOf) -> None:
    table = story(tmp_path)
    add = table.live["l/a"] | {"path": "s/.c.crc", "size": len(SUM)}
    table.commit([{"add": add}])

    report = chain_of(tmp_path).plan()

    assert planned(report) == {"r/b", "r/.b.crc", "s/c", "o/.gone.crc"}


def test_the_sum_of_a_file_that_a_commit_brings_back_stays(
    tmp_path: Path, chain_of: ChainOf
) -> None:
    table = story(tmp_path)
    chain = chain_of(tmp_path)
    report = chain.plan()
    table.commit([{"add": table.live["l/a"] | {"path": "r/b"}}])

    done = chain.execute(report)

    skipped = ("skipped", "named by a commit newer than the plan")
    assert [chain.ledger(done)[path] for path in ("r/b", "r/.b.crc")] == [skipped] * 2


def test_delta_leaves_sums_and_their_directories_behind(spark: SparkSession, story: Story) -> None:
    """On a table that Spark wrote, we also delete the checksums and the emptied partition."""
    story.create(partition="p").append(1, p="a").append(2, p="b").delete("p = 'a'").wait(days=8)
    theirs = delta_spark.planned_files(spark, story.path, retention_hours=0)

    done = story.vacuum()

    assert planned(done) == theirs | {
        f"{path.rpartition('/')[0]}/.{path.rpartition('/')[2]}.crc" for path in theirs
    }
    assert not (story.path / "p=a").exists()
    assert len(list((story.path / "p=b").iterdir())) == 2


def test_sums_in_a_directory_with_a_newline_in_its_name_are_sums(
    tmp_path: Path, chain_of: ChainOf
) -> None:
    table = TableBuilder(tmp_path).at(days_ago=9).create().add("a\nb/x", "a\nb/y").remove("a\nb/y")
    table.stray("a\nb/.x.crc", content=SUM).stray("a\nb/.y.crc", content=SUM)
    table.stray("a\nb/.odd.crc", content=b"abc").age("**/*", 9)

    assert planned(chain_of(tmp_path).plan()) == {"a\nb/y", "a\nb/.y.crc"}
