"""Logs left by power losses, restored backups and odd writers: no retained file is lost."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from maint_assets.delta.features import Operation
from maint_assets.errors import CorruptLogError, LogGapError, LogTooShortError, StalePlanError
from maint_assets.snapshot import replay
from maint_assets.snapshot.commits import commit_mark
from maint_assets.snapshot.newer_commits import NewerCommits
from maint_assets.storage.location import Location
from maint_assets_tests.oracles import delta_rs, delta_spark
from maint_assets_tests.support.builder import TableBuilder, tree
from maint_assets_tests.support.chain import files
from maint_assets_tests.support.edits import Edit, edit_rows
from maint_assets_tests.vacuum.conftest import ChainOf

pytestmark = pytest.mark.usefixtures("spark")

RETAINED = {"retention": "7 days", "allow_short_retention": True}


def story(path: Path) -> TableBuilder:
    """Three files, each in its own commit, one removed, and an untracked file; all old."""
    table = TableBuilder(path).at(days_ago=9).create().add("a").add("b").add("c").remove("a")
    return table.stray("stray").age("**/*", 9)


def commit(table: TableBuilder, version: int) -> Path:
    return table.log / f"{version:020}.json"


@pytest.mark.parametrize("content", [b"", b"\n\n \n", b"{}\n", b'{"add":null}\n{"remove":null}\n'])
@pytest.mark.parametrize("version", [2, 4])
def test_a_commit_without_an_action_is_a_broken_log(
    tmp_path: Path, chain_of: ChainOf, content: bytes, version: int
) -> None:
    table = story(tmp_path)
    commit(table, version).write_bytes(content)
    before = tree(tmp_path)

    with pytest.raises(CorruptLogError, match=rf"{version:020}\.json is a commit without any"):
        chain_of(tmp_path).vacuum()

    assert tree(tmp_path) == before


def test_an_empty_commit_makes_peers_delete_what_it_added(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Unlike ours, their plans contain the file that version 3 added."""
    table = story(tmp_path)
    commit(table, 3).write_bytes(b"")

    assert "c" in delta_spark.planned_files(spark, tmp_path, retention_hours=0)
    assert "c" in delta_rs.planned_files(tmp_path, retention_hours=0)


def test_a_commit_of_an_unknown_action_is_no_broken_log(tmp_path: Path, chain_of: ChainOf) -> None:
    table = story(tmp_path)
    commit(table, 5).write_text('{"invented":{"x":1}}\n')

    assert files(chain_of(tmp_path).plan()) == {"a", "stray"}


@pytest.mark.parametrize("name", ["5.json", "0005.json", "000000000000000000005.json"])
def test_a_commit_by_an_unusual_name_is_refused_by_it(
    tmp_path: Path, chain_of: ChainOf, name: str
) -> None:
    table = story(tmp_path)
    table.write_log(name, json.dumps({"commitInfo": {}}))

    with pytest.raises(LogGapError, match=f"{name} does not have the 20 digits"):
        chain_of(tmp_path).plan()


@pytest.mark.parametrize("name", ["5.json", "000000000000000000005.json"])
def test_a_commit_by_an_unusual_name_ends_a_deletion_that_was_planned(
    tmp_path: Path, chain_of: ChainOf, name: str
) -> None:
    table = story(tmp_path)
    chain = chain_of(tmp_path)
    report = chain.plan()
    table.write_log(name, json.dumps({"add": table.live["b"] | {"path": "a"}}))

    with pytest.raises(LogGapError, match="20 digits"):
        chain.execute(report)

    assert (tmp_path / "a").exists()


def test_an_add_that_is_null_does_not_hide_the_remove_beside_it(
    tmp_path: Path, chain_of: ChainOf
) -> None:
    """Before a checkpoint only removes are read: they keep the files of retained versions."""
    table = TableBuilder(tmp_path).at(days_ago=9).create().add("a", "b").at(days_ago=2)
    removal = table.removed("a", table.clock_ms) | {"x": 1}
    table.commit([]).checkpoint()
    lines = ['{"commitInfo":{"operation":"DELETE"}}', json.dumps({"add": None, **removal})]
    table.write_log(f"{2:020}.json", "\n".join(lines)).age("a", 9)
    spelled = json.dumps(removal["remove"]).replace('"path"', '"\\u0070ath"')
    escaped = '{"add": {"path": "q", "size": 1}, "re\\u006dove": ' + spelled + "}"

    assert files(chain_of(tmp_path, **RETAINED).plan()) == set()
    table.write_log(f"{2:020}.json", "\n".join([lines[0], escaped])).age("a", 9)
    assert files(chain_of(tmp_path, **RETAINED).plan()) == set()


@pytest.mark.parametrize("stamp", ["absent", "seconds"])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_file_removed_a_minute_ago_stays_whatever_its_tombstone_says(
    spark: SparkSession, tmp_path: Path, chain_of: ChainOf, stamp: str, checkpoint: bool
) -> None:
    """The commit is young, and so is the checkpoint where only that contains the removal."""
    table = TableBuilder(tmp_path).at(days_ago=9).create().add("a", "b").at(hours_ago=1)
    removal = table.removed("a", table.clock_ms // 1000)["remove"]
    if stamp == "absent":
        del removal["deletionTimestamp"]
    table.commit([{"remove": removal}], operation="DELETE").age("a", 9)
    if checkpoint:
        table.checkpoint()
        commit(table, 1).unlink()
        commit(table, 0).unlink()

    assert files(chain_of(tmp_path, **RETAINED).plan()) == set()
    assert files(chain_of(tmp_path, mode="lite", **RETAINED).plan()) == set()
    if stamp == "absent":
        assert delta_spark.planned_files(spark, tmp_path) == {"a"}
        assert delta_rs.planned_files(tmp_path) == {"a"}


def test_an_older_removal_of_the_same_file_does_not_date_the_newest_one(
    tmp_path: Path, chain_of: ChainOf
) -> None:
    table = (
        TableBuilder(tmp_path).at(days_ago=19).create().add("a", "b").at(days_ago=18).remove("a")
    )
    add = {"path": "a", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
    table.commit([{"add": add}]).at(hours_ago=1)
    table.commit([{"remove": {"path": "a", "dataChange": True}}]).age("a", 19)

    assert files(chain_of(tmp_path, **RETAINED).plan()) == set()


def test_change_data_stays_as_long_as_its_commit_is_retained(
    spark: SparkSession, tmp_path: Path, chain_of: ChainOf
) -> None:
    """For files copied with old times, or by a slow clock: Delta looks at their age alone."""
    cdc = "_change_data/cdc-1.parquet"
    table = TableBuilder(tmp_path).at(days_ago=9).create().add("a").at(days_ago=2)
    table.stray(cdc).stray("_change_data/stray")
    action = {"path": cdc, "partitionValues": {}, "size": 5, "dataChange": False}
    table.commit([{"cdc": action}]).age("_change_data/*", 9).age("_change_data", 9)

    assert files(chain_of(tmp_path, **RETAINED).plan()) == {"_change_data/stray"}
    assert cdc in delta_spark.planned_files(spark, tmp_path)
    assert cdc in delta_rs.planned_files(tmp_path)
    assert cdc in files(chain_of(tmp_path, retention="1 day", allow_short_retention=True).plan())


@pytest.mark.parametrize("shape", ["small", "large"])
def test_a_file_that_a_wrong_checkpoint_lost_stays(
    spark: SparkSession,
    tmp_path: Path,
    chain_of: ChainOf,
    monkeypatch: pytest.MonkeyPatch,
    shape: str,
) -> None:
    """The commits from version 0 on are still there and contain the whole table."""
    if shape == "large":
        monkeypatch.setattr(replay, "SMALL_LOG_BYTES", 0)
    table = TableBuilder(tmp_path / "t").at(days_ago=19).create().add("a", "b").add("c", "d")
    table.remove("b").at(days_ago=12).checkpoint().add("e").stray("stray").age("**/*", 11)
    edit_rows(next(table.path.glob("_delta_log/*.checkpoint.parquet")), without_add("a"))

    report = chain_of(table.path, **RETAINED).plan()

    plan = report.planned.plan
    assert (files(report), plan.lost_files, plan.lost_example) == ({"b", "stray"}, 1, "a")
    assert "a" in delta_spark.planned_files(spark, table.path)
    assert "a" in delta_rs.planned_files(table.path)


@pytest.mark.parametrize("shape", ["small", "large"])
@pytest.mark.parametrize("commits", ["brought it back", "never removed it"])
def test_a_file_whose_old_tombstone_a_wrong_checkpoint_kept_stays(
    spark: SparkSession,
    tmp_path: Path,
    chain_of: ChainOf,
    monkeypatch: pytest.MonkeyPatch,
    commits: str,
    shape: str,
) -> None:
    """The checkpoint misses a RESTORE, or the log was restored from before the DELETE."""
    if shape == "large":
        monkeypatch.setattr(replay, "SMALL_LOG_BYTES", 0)
    table = TableBuilder(tmp_path / "t").at(days_ago=40).create().add("a", "b")
    add, tombstone = table.live["a"], table.removed("a", table.clock_ms)["remove"]
    if commits == "brought it back":
        table.commit([{"remove": tombstone}]).commit([{"add": add}], operation="RESTORE")
    del table.live["a"]
    table.tombstones = {("a", None): tombstone}
    table.at(days_ago=3).add("c").checkpoint().add("e").stray("stray").age("**/*", 30)

    report = chain_of(table.path, **RETAINED).plan()

    plan = report.planned.plan
    assert (files(report), plan.lost_files, plan.lost_example) == ({"stray"}, 1, "a")
    assert "a" in delta_spark.planned_files(spark, table.path)
    assert "a" in delta_rs.planned_files(table.path)


def test_a_file_that_a_covered_commit_adds_and_removes_stays_where_the_checkpoint_lost_it(
    spark: SparkSession, tmp_path: Path, chain_of: ChainOf
) -> None:
    """delta-spark reads the file in the version of that commit."""
    table = TableBuilder(tmp_path / "t").at(days_ago=40).create().add("a", "b")
    add = table.live["a"]
    table.commit([table.removed("a", table.clock_ms), {"add": add}]).at(days_ago=3).add("c")
    version = table.version - 1
    table.checkpoint().add("e").age("**/*", 30)
    edit_rows(next(table.path.glob("_delta_log/*.checkpoint.parquet")), without_add("a"))
    before = delta_spark.rows(spark, table.path, version)

    report = chain_of(table.path, **RETAINED).plan()

    assert (len(before), files(report), report.planned.plan.lost_files) == (4, set(), 1)
    assert "a" in delta_spark.planned_files(spark, table.path)


def test_commits_before_a_gap_do_not_tell_what_a_checkpoint_lost(
    tmp_path: Path, chain_of: ChainOf
) -> None:
    """The missing commit may have removed the file."""
    table = TableBuilder(tmp_path / "t").at(days_ago=19).create().add("a").add("b").remove("a")
    table.add("c").checkpoint().add("e").age("**/*", 11)
    (table.path / f"_delta_log/{3:020d}.json").unlink()
    edit_rows(next(table.path.glob("_delta_log/*.checkpoint.parquet")), without_tombstones)

    plan = chain_of(table.path, **RETAINED).plan().planned.plan

    assert (plan.files, plan.lost_files) == (1, 0)


def without_add(path: str) -> Edit:
    def edit(row: dict[str, Any]) -> None:
        if row["add"] and row["add"]["path"] == path:
            row["add"] = None

    return edit


def without_tombstones(row: dict[str, Any]) -> None:
    row["remove"] = None


def put_back(table: TableBuilder, backup: Path) -> None:
    """Replace the log by its backup."""
    shutil.rmtree(table.log)
    shutil.copytree(backup, table.log)


def test_a_backup_put_back_since_the_plan_ends_the_deletion(
    tmp_path: Path, chain_of: ChainOf
) -> None:
    """The plan's versions exist again as other commits, none of which removes the file."""
    table = story(tmp_path / "t")
    commit(table, 4).rename(tmp_path / "4")
    shutil.copytree(table.log, tmp_path / "backup")
    (tmp_path / "4").rename(commit(table, 4))
    chain = chain_of(table.path)
    report = chain.plan()
    assert "a" in files(report)

    put_back(table, tmp_path / "backup")
    table.commit([], version=4).commit([], version=5)
    with pytest.raises(StalePlanError, match=r"0004\.json is missing, or is not"):
        chain.execute(report)

    assert (table.path / "a").exists()


def test_what_lite_has_handled_holds_for_one_log_only(tmp_path: Path, chain_of: ChainOf) -> None:
    table = story(tmp_path / "t")
    shutil.copytree(table.log, tmp_path / "backup")
    table.remove("b", deletion_timestamp_ms=1).age("**/*", 9)
    chain = chain_of(table.path, mode="lite")
    assert files(chain.vacuum()) == {"a", "b"}

    put_back(table, tmp_path / "backup")
    for version in (5, 6, 7):
        table.commit([], version=version)
    (table.path / "b").write_bytes(b"b")
    table.commit([{"remove": {"path": "c", "deletionTimestamp": 1, "dataChange": True}}], version=8)
    table.age("**/*", 9)

    assert files(chain.plan()) == {"c"}


def test_a_handled_log_whose_commits_are_gone_is_not_trusted(
    tmp_path: Path, chain_of: ChainOf
) -> None:
    table = story(tmp_path)
    chain = chain_of(tmp_path, mode="lite")
    chain.vacuum()
    table.version += 2
    table.at(days_ago=1).remove("b").checkpoint()
    for version in range(7):
        commit(table, version).unlink()

    with pytest.raises(LogTooShortError, match="run a full VACUUM"):
        chain.plan()


@pytest.mark.parametrize("content", [b"", b"{", b'{"table_id": 3}', b"\xff\xfe"])
def test_a_broken_handled_json_stops_no_mode(
    tmp_path: Path, chain_of: ChainOf, content: bytes
) -> None:
    story(tmp_path)
    chain = chain_of(tmp_path, mode="lite")
    place = Path(chain.launcher.settings.workspace, "t", "handled.json")
    place.parent.mkdir()
    place.write_bytes(content)

    assert files(chain.vacuum()) == {"a"}
    assert json.loads(place.read_text())["version"] >= 4


HOSTILE = (
    "_delta_log/00000000000000000001.json", "_delta_log/_last_checkpoint", "_hid/x", ".h.parquet",
    "d/_hid/x", "d/.x", "d/_delta_log/0.json", "nested/data", "linked/x", "link", "fifo", "d",
    "a\0b", "x" * 300, "../outside", "d/../_delta_log/00000000000000000002.json",
)  # fmt: skip


def hostile(path: Path) -> TableBuilder:
    """Old removals of paths that a walk would never list."""
    table = TableBuilder(path).at(days_ago=9).create().add("a", "real/x").add("b")
    for name in HOSTILE[:8]:
        if not (table.path / name).exists():
            table.stray(name)
    table.stray("nested/_delta_log/0.json").stray("../outside")
    (table.path / "linked").symlink_to(table.path / "real")
    (table.path / "link").symlink_to(table.path / "a")
    os.mkfifo(table.path / "fifo")
    removed = [
        {"remove": {"path": name.replace("\0", "%00"), "deletionTimestamp": 1, "dataChange": True}}
        for name in HOSTILE
    ]
    cdc = [{"cdc": {"path": name, "size": 1, "dataChange": False}} for name in HOSTILE[:8]]
    return table.commit([*removed, *cdc]).age("**/*", 9)


@pytest.mark.parametrize("mode", ["lite", "full"])
def test_removals_of_the_log_and_of_hidden_files_delete_nothing(
    tmp_path: Path, chain_of: ChainOf, mode: str
) -> None:
    table = hostile(tmp_path / "t")
    there = [table.path / name for name in HOSTILE if "\0" not in name]
    there = [path for path in there if len(path.name) < 255 and os.path.lexists(path)]

    done = chain_of(table.path, mode=mode).vacuum()

    assert done.error is None
    assert len(there) == 14
    assert all(map(os.path.lexists, there))


def test_lite_plans_what_a_walk_would_show_of_removed_paths(
    tmp_path: Path, chain_of: ChainOf
) -> None:
    table = hostile(tmp_path / "t").remove("b", deletion_timestamp_ms=1).age("**/*", 9)

    assert files(chain_of(table.path, mode="lite").plan()) == {"b"}


def test_delta_lite_deletes_a_commit_that_a_removal_names(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Unlike ours, the plan of delta-spark contains the commit."""
    table = TableBuilder(tmp_path).at(days_ago=9).create().add("a").add("b").at(days_ago=8)
    name = f"_delta_log/{1:020}.json"
    table.commit([{"remove": {"path": name, "deletionTimestamp": 1, "dataChange": True}}])

    assert name in delta_spark.planned_files(spark, tmp_path, retention_hours=0, what="LITE")


def test_a_log_put_back_between_two_batches_ends_the_deletion(tmp_path: Path) -> None:
    table = story(tmp_path)
    place = Location.of(str(tmp_path))
    mark = commit_mark(place, 4)
    newer = NewerCommits(
        place, table_id=table.metadata["id"], version=4, mark=mark, operation=Operation.VACUUM
    )
    newer.refresh()
    table.commit([{"remove": {"path": "b", "deletionTimestamp": 1, "dataChange": True}}])
    newer.refresh()
    assert newer.paths == {"b"}

    table.commit([{"add": table.live["c"] | {"path": "a"}}], version=5)
    with pytest.raises(StalePlanError, match=r"0005\.json is missing, or is not the commit"):
        newer.refresh()


def compacted(table: TableBuilder) -> None:
    table.write_log(f"{1:020}.{table.version:020}.compacted.json", "{}")


LOST = {
    "checksum": lambda table: table.checksum(),
    "hint": lambda table: table.hint(),
    "compaction": compacted,
}


@pytest.mark.parametrize("lost", LOST)
def test_a_lost_newest_commit_is_recognised_by_what_it_left(
    spark: SparkSession, tmp_path: Path, chain_of: ChainOf, lost: str
) -> None:
    """A power loss takes the whole commit: the files that it added would look untracked."""
    table = story(tmp_path).add("d")
    LOST[lost](table)
    commit(table, 5).unlink()
    table.age("**/*", 9)
    before = tree(tmp_path)

    with pytest.raises(LogGapError, match=r"restore the missing files of _delta_log, or remove"):
        chain_of(tmp_path).vacuum()

    assert tree(tmp_path) == before
    if lost != "hint":
        assert "d" in delta_spark.planned_files(spark, tmp_path, retention_hours=0)


@pytest.mark.parametrize("odd", ["link", "directory", "fifo"])
def test_a_newest_commit_that_is_no_file_is_refused_by_name(
    tmp_path: Path, chain_of: ChainOf, odd: str
) -> None:
    table = story(tmp_path)
    make_odd(commit(table, 5), odd)

    with pytest.raises(
        CorruptLogError, match=rf"{5:020}\.json is a directory, a device or a dangling link"
    ):
        chain_of(tmp_path).plan()


@pytest.mark.parametrize("odd", ["link", "directory", "fifo"])
def test_a_commit_that_is_no_file_ends_a_deletion_that_was_planned(
    tmp_path: Path, odd: str
) -> None:
    table = story(tmp_path)
    place = Location.of(str(tmp_path))
    mark = commit_mark(place, 4)
    newer = NewerCommits(
        place, table_id=table.metadata["id"], version=4, mark=mark, operation=Operation.VACUUM
    )
    make_odd(commit(table, 5), odd)

    with pytest.raises((CorruptLogError, LogGapError), match=f"{5:020}.json"):
        newer.refresh()


def make_odd(path: Path, odd: str) -> None:
    if odd == "link":
        path.symlink_to("nowhere")
    elif odd == "directory":
        path.mkdir()
    else:
        os.mkfifo(path)


@pytest.mark.parametrize("what", ["log", "commit", "nested"])
def test_a_log_that_lies_below_the_root_behind_a_link_stays(
    tmp_path: Path, chain_of: ChainOf, what: str
) -> None:
    table = story(tmp_path)
    if what == "nested":
        TableBuilder(tmp_path / "n").at(days_ago=9).create().add("x").checkpoint()
    moved = {"log": table.log, "commit": commit(table, 1), "nested": tmp_path / "n/_delta_log"}[
        what
    ]
    to = tmp_path / ("visible" if what != "commit" else f"visible/{1:020}.json")
    to.parent.mkdir(exist_ok=True)
    moved.rename(to)
    moved.symlink_to(to)
    table.age("**/*", 9).age("visible", 9)
    names = {path.name for path in (tmp_path / "visible").iterdir()}

    done = chain_of(tmp_path).vacuum()

    assert done.error is None
    assert names <= {path.name for path in (tmp_path / "visible").iterdir()}


def test_a_commit_time_long_before_any_table_was_does_not_date_a_removal(
    tmp_path: Path, chain_of: ChainOf
) -> None:
    ict = {"delta.enableInCommitTimestamps": "true"}
    table = TableBuilder(tmp_path).at(days_ago=9)
    table.info = {"inCommitTimestamp": 1_000_000_000}
    table.create(features=["inCommitTimestamp"], configuration=ict).add("a", "b").at(hours_ago=1)
    table.commit([{"remove": {"path": "a", "dataChange": True}}]).age("a", 9)

    assert files(chain_of(tmp_path, **RETAINED).plan()) == set()


def test_a_young_commit_protects_whatever_time_the_checkpoint_has(
    tmp_path: Path, chain_of: ChainOf
) -> None:
    table = TableBuilder(tmp_path).at(days_ago=9).create().add("a", "b").at(hours_ago=1)
    old_ms = table.now_ms - 20 * 86_400_000
    table.remove("a", deletion_timestamp_ms=old_ms)
    key = next(iter(table.tombstones))
    table.tombstones[key] = table.tombstones[key] | {"deletionTimestamp": old_ms + 5}
    table.checkpoint().age("a", 9)

    assert files(chain_of(tmp_path, **RETAINED).plan()) == set()


def test_a_commit_time_in_a_young_commit_that_is_too_early_does_not_date_its_change_data(
    spark: SparkSession, tmp_path: Path, chain_of: ChainOf
) -> None:
    """The writer's clock was slow. delta-spark deletes the file by its modification time."""
    ict = {"delta.enableInCommitTimestamps": "true", "delta.enableChangeDataFeed": "true"}
    table = TableBuilder(tmp_path).at(days_ago=40)
    table.info = {"inCommitTimestamp": table.clock_ms}
    table.create(features=["inCommitTimestamp", "changeDataFeed"], configuration=ict).add("a")
    change = "_change_data/cdc-1.parquet"
    table.stray(change)
    table.at(hours_ago=1).commit([{"cdc": {"path": change, "size": 5, "dataChange": False}}])
    table.age("_change_data/*", 40)

    assert files(chain_of(tmp_path, **RETAINED).plan()) == set()
    assert change in delta_spark.planned_files(spark, tmp_path)
