"""Files of a table that are reached by another way than the walk below its root."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from maint_assets.errors import GuardError
from maint_assets_tests.oracles import delta_rs, delta_spark
from maint_assets_tests.support.builder import TableBuilder
from maint_assets_tests.support.chain import Chain, files
from maint_assets_tests.vacuum.conftest import ChainOf

pytestmark = pytest.mark.usefixtures("spark")

ALLOWED = {"allow_missing_files": True}


def absolute(table: TableBuilder, path: str, *names: str) -> TableBuilder:
    """A live file below the root that the log names by absolute paths only; old."""
    (table.path / path).write_bytes(b"x")
    add = {"partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
    return table.commit([{"add": add | {"path": name}} for name in names]).age("**/*", 9)


def story(path: Path) -> TableBuilder:
    return TableBuilder(path).at(days_ago=9).create().add("a", "gone").remove("gone")


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """The directory of the table ``t``, mounted a second time."""
    if os.geteuid():
        pytest.skip("only root mounts a directory")
    (tmp_path / "t").mkdir()
    (tmp_path / "m").mkdir()
    subprocess.run(["mount", "--bind", tmp_path / "t", tmp_path / "m"], check=True)
    yield tmp_path / "m"
    subprocess.run(["umount", tmp_path / "m"], check=True)


def test_a_live_file_that_is_named_by_another_mount_is_refused(
    tmp_path: Path, mounted: Path, chain_of: ChainOf
) -> None:
    absolute(story(tmp_path / "t"), "b", f"file:{mounted}/b")
    chain = chain_of(tmp_path / "t", **ALLOWED)

    report = chain.plan()
    assert files(report) == {"b", "gone"}
    with pytest.raises(GuardError, match=r"1 planned files are .* the log names by another path"):
        chain.execute(report)

    assert (tmp_path / "t/b").exists()


@pytest.mark.parametrize("name", ["gone", "q%20q"])
def test_a_file_that_a_newer_commit_names_by_another_mount_stays(
    tmp_path: Path, mounted: Path, chain_of: ChainOf, name: str
) -> None:
    """Also by a writer that does not encode."""
    table = story(tmp_path / "t").stray("q%20q").age("**/*", 9)
    chain = chain_of(table.path)
    report = chain.plan()
    table.commit([{"add": table.live["a"] | {"path": f"{mounted}/{name}"}}])

    done = chain.execute(report)

    assert chain.ledger(done)[name] == ("skipped", "named by a commit newer than the plan")


@pytest.mark.parametrize(
    "name", ["/b.parquet", "file:/elsewhere/t/b.parquet", "s3://l/t/b.parquet"]
)
def test_a_live_file_of_a_table_that_was_moved_is_refused(
    spark: SparkSession, tmp_path: Path, chain_of: ChainOf, name: str
) -> None:
    """Also where missing files are allowed: its name is that of a planned one."""
    absolute(story(tmp_path), "b.parquet", name)

    with pytest.raises(GuardError, match=r"names by another path, b\.parquet among them"):
        chain_of(tmp_path, **ALLOWED).vacuum()

    assert (tmp_path / "b.parquet").exists()
    if name.startswith("/"):
        assert "b.parquet" in delta_spark.planned_files(spark, tmp_path, retention_hours=0)
        assert "b.parquet" not in delta_rs.planned_files(tmp_path, retention_hours=0)


def test_a_live_file_elsewhere_that_is_gone_is_refused_unless_allowed(
    tmp_path: Path, chain_of: ChainOf
) -> None:
    absolute(story(tmp_path / "t"), "other", "/no/such/file", f"file:{tmp_path}/there")
    (tmp_path / "there").write_bytes(b"x")

    with pytest.raises(GuardError, match="1 active files were not found, /no/such/file among them"):
        chain_of(tmp_path / "t").vacuum()

    assert files(chain_of(tmp_path / "t", **ALLOWED).vacuum()) == {"gone", "other"}


def test_a_partition_that_is_a_link_is_no_missing_file(
    spark: SparkSession, tmp_path: Path, chain_of: ChainOf
) -> None:
    table = TableBuilder(tmp_path / "t").at(days_ago=9).create(partition_columns=["p"])
    table.add("a", partition={"p": "1"}).add("b", "c", partition={"p": "2"}).remove("c")
    (table.path / "p=1").rename(tmp_path / "p1")
    (table.path / "p=1").symlink_to(tmp_path / "p1")
    table.stray("p=1/stray").age("**/*", 9)

    assert files(chain_of(table.path).vacuum()) == {"p=2/c"}
    assert len(delta_spark.rows(spark, table.path)) == 4


def test_a_log_in_a_live_partition_closes_it_and_nothing_is_missing(
    tmp_path: Path, chain_of: ChainOf
) -> None:
    table = TableBuilder(tmp_path).at(days_ago=9).create(partition_columns=["p"])
    table.add("a", "d", partition={"p": "1"}).add("b", "c", partition={"p": "2"})
    table.remove("c").remove("d").stray("p=1/_delta_log/x").age("**/*", 9)

    assert files(chain_of(tmp_path).vacuum()) == {"p=2/c"}


def test_the_source_of_a_clone_below_the_clone_is_left_alone(
    spark: SparkSession, tmp_path: Path, chain_of: ChainOf
) -> None:
    source = TableBuilder(tmp_path / "inner").at(days_ago=9).create().add("a", "x").remove("x")
    clone = TableBuilder(tmp_path).at(days_ago=9).create().add("own", "gone").remove("gone")
    clone.commit([{"add": source.live["a"] | {"path": f"file:{source.path}/a"}}]).age("**/*", 9)
    rows = delta_spark.rows(spark, tmp_path)

    done = chain_of(tmp_path).vacuum()

    assert done.error is None
    assert files(done) == {"gone"}
    assert delta_spark.rows(spark, tmp_path) == rows
    assert (source.path / "x").exists()


@pytest.mark.parametrize("mode", ["full", "lite"])
def test_live_and_retained_files_of_a_partition_that_is_a_link_into_the_table_stay(
    tmp_path: Path, chain_of: ChainOf, mode: str
) -> None:
    """The walk finds them where they lie, by paths that the log does not name."""
    table = TableBuilder(tmp_path).at(days_ago=9).create(partition_columns=["p"])
    table.add("a", "old", "lately", partition={"p": "1"}).remove("old").at(days_ago=1)
    table.remove("lately")
    (tmp_path / "p=1").rename(tmp_path / "real")
    (tmp_path / "p=1").symlink_to("real")
    other = {"path": "real/a", "deletionTimestamp": 1, "dataChange": True}
    table.commit([{"remove": other}], version=4).age("**/*", 9).age(f"_delta_log/{3:020}.json", 1)

    done = chain_of(tmp_path, retention="2 days", allow_short_retention=True, mode=mode).vacuum()

    assert done.error is None
    assert files(done) == ({"real/old"} if mode == "full" else set())
    assert {path.name for path in (tmp_path / "real").iterdir()} >= {"a", "lately"}


def test_a_live_file_that_is_a_link_into_the_table_refuses_a_plan_with_what_it_leads_to(
    tmp_path: Path, chain_of: ChainOf
) -> None:
    table = story(tmp_path).stray("d/it").age("**/*", 9)
    (tmp_path / "a").rename(tmp_path / "d/it")
    (tmp_path / "a").symlink_to("d/it")
    table.age("**/*", 9)

    with pytest.raises(GuardError, match="names by another path, d/it among them"):
        chain_of(tmp_path).vacuum()

    assert (tmp_path / "d/it").exists()


def test_a_newer_commit_that_names_a_file_through_a_link_keeps_it(
    tmp_path: Path, chain_of: ChainOf
) -> None:
    table = story(tmp_path).stray("real/x").age("**/*", 9).age("real", 9)
    (tmp_path / "l").symlink_to("real")
    chain = chain_of(tmp_path)
    report = chain.plan()
    assert "real/x" in files(report)
    table.commit([{"add": table.live["a"] | {"path": "l/x"}}])

    done = chain.execute(report)

    assert chain.ledger(done)["real/x"] == ("skipped", "named by a commit newer than the plan")


@pytest.fixture
def mounted_inside(tmp_path: Path) -> Iterator[TableBuilder]:
    """A table whose partition is another directory of it, mounted a second time."""
    if os.geteuid():
        pytest.skip("only root mounts a directory")
    table = TableBuilder(tmp_path).at(days_ago=9).create(partition_columns=["p"])
    table.add("a", partition={"p": "1"})
    (tmp_path / "p=1").rename(tmp_path / "store")
    (tmp_path / "p=1").mkdir()
    table.age("**/*", 9)
    subprocess.run(["mount", "--bind", tmp_path / "store", tmp_path / "p=1"], check=True)
    yield table
    subprocess.run(["umount", tmp_path / "p=1"], check=True)


def test_a_live_file_that_a_mount_inside_of_the_table_shows_twice_is_refused(
    mounted_inside: TableBuilder, chain_of: ChainOf
) -> None:
    with pytest.raises(GuardError, match="names by another path, store/a among them"):
        chain_of(mounted_inside.path).vacuum()

    assert (mounted_inside.path / "store/a").exists()


@pytest.mark.parametrize("checkpoint", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_file_added_and_removed_by_two_spellings_of_its_path_is_removed(
    spark: SparkSession, tmp_path: Path, chain_of: ChainOf, checkpoint: bool
) -> None:
    """As in Delta; a rewrite does not bring its rows back."""
    table = TableBuilder(tmp_path / "t").at(days_ago=9).create().add("a")
    table.add("b", path=f"file:{table.path}/b")
    if checkpoint:
        table.checkpoint()
    removal = {"path": f"{table.path}/b", "deletionTimestamp": 1, "dataChange": True}
    table.commit([{"remove": removal}]).add("c").age("**/*", 9)
    rows = delta_spark.rows(spark, table.path)
    theirs = delta_spark.planned_files(spark, table.path, retention_hours=0)

    assert files(chain_of(table.path).plan()) == theirs == {"b"}
    chain = Chain.compacting(table.path, tmp_path / "workspace")
    done = chain.compact().done
    assert done is not None and done.files_removed == 2
    assert delta_spark.rows(spark, table.path) == rows
