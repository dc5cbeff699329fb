"""Files of a table that have another path than the one found by a walk of its root."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from maint_assets.errors import GuardError
from maint_assets.storage import read
from maint_assets.storage.location import Location
from maint_assets_tests.oracles import delta_rs, delta_spark
from maint_assets_tests.support.builder import TableBuilder, tree
from maint_assets_tests.support.chain import Chain, files
from maint_assets_tests.support.mounts import mount
from maint_assets_tests.vacuum.conftest import ChainOf

pytestmark = pytest.mark.usefixtures("spark")

ALLOWED = {"allow_missing_files": True}


def absolute(table: TableBuilder, path: str, *names: str) -> TableBuilder:
    """Add an old live file below the root that the log names by absolute paths only."""
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
    """Also if the writer does not encode paths."""
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
    """Also if missing files are allowed: a planned file has the same name."""
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
    """The walk finds them under their real paths, which the log does not name."""
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
    """A table whose partition is a bind mount of another of its directories."""
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
    """As in Delta; compaction does not bring its rows back."""
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


@pytest.mark.parametrize("way", ["link", "mount"])
def test_a_live_vector_that_is_a_link_or_a_mount_refuses_a_plan_with_what_it_leads_to(
    tmp_path: Path, chain_of: ChainOf, way: str
) -> None:
    table = story(tmp_path / "t").delete_rows("a", 0)
    (vector,) = table.path.glob("deletion_vector_*.bin")
    (table.path / "d").mkdir()
    with moved(vector, table.path / "d/it", way):
        table.age("**/*", 9)

        with pytest.raises(GuardError, match="names by another path, d/it among them"):
            chain_of(table.path).vacuum()

    assert (table.path / "d/it").exists()


@contextlib.contextmanager
def moved(file: Path, to: Path, way: str) -> Iterator[None]:
    """Move a file, and show it at its old path through a link or a mount."""
    file.rename(to)
    if way == "link":
        file.symlink_to(to)
        yield
        return
    if os.geteuid():
        pytest.skip("only root mounts a file")
    file.touch()
    subprocess.run(["mount", "--bind", to, file], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", file], check=True)


@pytest.mark.parametrize("mode", ["lite", "inventory"])
@pytest.mark.parametrize("what", ["file", "partition"])
def test_other_listings_than_a_walk_see_that_a_live_file_is_a_link(
    spark: SparkSession, tmp_path: Path, chain_of: ChainOf, mode: str, what: str
) -> None:
    """These listings contain no links, so they would plan a removed file to which one points."""
    path = tmp_path / "t"
    table = TableBuilder(path).at(days_ago=9).create(partition_columns=["p"])
    table.add("a", partition={"p": "1"}).add("old", partition={"p": "2"}).remove("old")
    live, removed = path / "p=1/a", path / "p=2/old"
    live.rename(removed)
    if what == "file":
        live.symlink_to(removed)
    else:
        (path / "p=1").rmdir()
        (tmp_path / "p1").mkdir()
        (tmp_path / "p1/a").symlink_to(removed)
        (path / "p=1").symlink_to(tmp_path / "p1")
    table.age("**/*", 9)
    asked: dict[str, Any] = {"mode": "lite"}
    if mode == "inventory":
        rows = [{"path": str(removed), "size": 1, "isDir": False, "modificationTime": 1}]
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "inventory.parquet")
        asked = {"mode": "inventory", "inventory": f"{tmp_path}/inventory.parquet"}
    before = delta_spark.rows(spark, path)

    with pytest.raises(GuardError, match="names by another path, p=2/old among them"):
        chain_of(path, **asked).vacuum()

    assert delta_spark.rows(spark, path) == before


def test_a_partition_that_leads_out_of_the_table_and_back_by_a_mount_keeps_its_files(
    spark: SparkSession, tmp_path: Path, mounted: Path, chain_of: ChainOf
) -> None:
    table = TableBuilder(tmp_path / "t").at(days_ago=9).create(partition_columns=["p"])
    table.add("a", partition={"p": "1"})
    (table.path / "p=1").rename(table.path / "store")
    (table.path / "p=1").symlink_to(mounted / "store")
    table.age("**/*", 9)

    with pytest.raises(GuardError, match="names by another path, store/a among them"):
        chain_of(table.path).vacuum()

    assert len(delta_spark.rows(spark, table.path)) == 2


@pytest.mark.parametrize("way", ["link", "mount"])
def test_a_newer_commit_that_names_a_link_to_a_planned_file_keeps_it(
    tmp_path: Path, chain_of: ChainOf, way: str
) -> None:
    table = story(tmp_path / "t").stray("d/it").age("**/*", 9)
    chain = chain_of(table.path)
    report = chain.plan()
    assert {"d/it", "gone"} <= files(report)
    with moved(table.path / "gone", table.path / "tmp", way):
        Path(table.path / "tmp").replace(table.path / "d/it")
        if way == "link":
            (table.path / "gone").unlink()
            (table.path / "gone").symlink_to("d/it")
        table.commit([{"add": table.live["a"] | {"path": "gone"}}])

        done = chain.execute(report)

    assert chain.ledger(done)["d/it"] == ("skipped", "named by a commit newer than the plan")


def test_a_mount_below_a_root_with_any_name_is_seen(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root mounts a directory")
    root = tmp_path / "a b\n#\\\tc"
    (root / "m").mkdir(parents=True)
    location = Location.of(str(root))
    assert not read.has_mounts(location)

    subprocess.run(["mount", "--bind", tmp_path, root / "m"], check=True)
    try:
        assert read.has_mounts(location)
    finally:
        subprocess.run(["umount", root / "m"], check=True)


def test_a_live_file_that_an_overlay_shows_as_another_is_refused(
    tmp_path: Path, chain_of: ChainOf
) -> None:
    """The file has another device and inode in the overlay."""
    if os.geteuid():
        pytest.skip("only root mounts an overlay")
    for name in ("upper", "work", "m"):
        (tmp_path / name).mkdir()
    absolute(story(tmp_path / "t"), "b", f"file:{tmp_path}/m/b")
    layers = f"lowerdir={tmp_path}/t,upperdir={tmp_path}/upper,workdir={tmp_path}/work"
    mount("-t", "overlay", "overlay", "-o", layers, str(tmp_path / "m"))
    try:
        shown, own = read.file_id(f"{tmp_path}/m/b"), read.file_id(f"{tmp_path}/t/b")
        if shown is None or own is None or shown.device == own.device:
            pytest.skip("this overlay shows the device of the files below")

        with pytest.raises(GuardError, match="names by another path, b among them"):
            chain_of(tmp_path / "t", **ALLOWED).vacuum()
    finally:
        subprocess.run(["umount", tmp_path / "m"], check=True)

    assert (tmp_path / "t/b").exists()


def test_a_copy_of_a_table_may_have_the_files_of_the_original_beside_its_own(
    tmp_path: Path, chain_of: ChainOf
) -> None:
    """Two files on one device with equal names, sizes and times are still two files."""
    table = absolute(story(tmp_path / "t"), "b", f"file:{tmp_path}/other/b")
    shutil.copytree(table.path, tmp_path / "other")

    done = chain_of(table.path).vacuum()

    assert (done.error, files(done)) == (None, {"b", "gone"})
    assert (tmp_path / "other/b").exists()


def test_where_a_live_file_was_not_listed_another_name_of_it_is_no_leave_to_delete_it(
    tmp_path: Path, chain_of: ChainOf
) -> None:
    """A hard link stands in for a file system that ignores case in names."""
    table = TableBuilder(tmp_path).at(days_ago=9).create(partition_columns=["p"])
    table.add("a", partition={"p": "1"}).stray("p=1/_delta_log/x")
    os.link(tmp_path / "p=1/a", tmp_path / "A")
    table.age("**/*", 9)

    with pytest.raises(GuardError, match="names by another path, A among them"):
        chain_of(tmp_path).vacuum()

    assert (tmp_path / "A").exists()


@pytest.mark.parametrize("mode", ["full", "inventory"])
@pytest.mark.parametrize("what", ["sidecars", "sidecar", "log", "hint"])
def test_what_links_of_the_log_lead_to_stays(
    spark: SparkSession, tmp_path: Path, chain_of: ChainOf, what: str, mode: str
) -> None:
    table = TableBuilder(tmp_path / "t").at(days_ago=9).create(features=("v2Checkpoint",))
    table.add("a", "gone").remove("gone").checkpoint("v2-json", parts=1)
    (table.log / "_last_checkpoint").write_text('{"version":2,"size":3}')
    place = {
        "sidecars": table.log / "_sidecars",
        "sidecar": next((table.log / "_sidecars").iterdir()),
        "log": table.log,
        "hint": table.log / "_last_checkpoint",
    }[what]
    to = table.path / "kept" / ("it" if place.is_file() else "d")
    to.parent.mkdir()
    place.rename(to)
    place.symlink_to(to)
    table.age("**/*", 9)
    before, asked = tree(table.path), dict[str, Any]()
    if mode == "inventory":
        entries = [path for path in table.path.rglob("*") if path.is_file()]
        rows = [
            {
                "path": str(path),
                "size": path.stat().st_size,
                "isDir": False,
                "modificationTime": path.stat().st_mtime_ns // 1_000_000,
            }
            for path in entries
        ]
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "inventory.parquet")
        asked = {"mode": "inventory", "inventory": f"{tmp_path}/inventory.parquet"}

    done = chain_of(table.path, log_commits=False, **asked).vacuum()

    assert (done.error, files(done)) == (None, {"gone"})
    assert before.keys() - tree(table.path) == {"gone"}
    assert len(delta_spark.rows(spark, table.path)) == 2
