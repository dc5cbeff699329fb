"""Commits of rewrites: commits of other writers are kept, and lost bins are not committed."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from maint_assets.commit.rewrite import committing
from maint_assets.commit.rewrite.committing import commit_rewrites
from maint_assets.commit.rewrite.values import RewrittenBin
from maint_assets.errors import (
    ConflictError,
)
from maint_assets.storage.location import Location
from maint_assets.storage.write import put_if_absent
from maint_assets_tests.support.builder import TableBuilder, tree
from maint_assets_tests.support.rewriting import (
    Terms,
    backfilled,
    head_of,
    lines,
    live,
    merged,
    names,
    of_kind,
    table_of,
    two_bins,
)

ICT = {"delta.enableInCommitTimestamps": "true"}
TRACKED = ["rowTracking", "domainMetadata"]
DOMAIN = "delta.rowTracking"

Put = Callable[[Location, str, bytes], bool]


def domain(mark: int) -> dict[str, object]:
    text = f'{{"rowIdHighWaterMark":{mark}}}'
    return {"domainMetadata": {"domain": DOMAIN, "configuration": text, "removed": False}}


def test_commit_replaces_the_inputs_and_changes_no_data(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    head, bins = two_bins(tmp_path)

    done = commit_rewrites(head, bins, Terms().request())

    assert (done.version, done.kept, done.dropped) == (5, tuple(bins), ())
    assert set(live(tmp_path)) == {"ab.parquet", "cd.parquet"}
    kinds = [next(iter(line)) for line in lines(tmp_path, 5)]
    assert kinds == ["commitInfo", "add", "add", "remove", "remove", "remove", "remove"]
    added, removed = of_kind(tmp_path, 5, "add"), of_kind(tmp_path, 5, "remove")
    assert {action["dataChange"] for action in [*added, *removed]} == {False}
    assert removed[0] == {
        "path": "a",
        "deletionTimestamp": 999_999,
        "dataChange": False,
        "extendedFileMetadata": True,
        "partitionValues": {},
        "size": table.live["a"]["size"],
        "stats": '{"numRecords":2}',
    }


def test_commit_info_says_what_was_done_in_the_order_of_delta(tmp_path: Path) -> None:
    table_of(tmp_path, configuration=ICT, features=["inCommitTimestamp"])
    path = tmp_path / f"_delta_log/{4:020}.json"
    path.write_text(path.read_text().replace('"timestamp"', '"inCommitTimestamp":5,"timestamp"'))
    head, bins = two_bins(tmp_path)

    done = commit_rewrites(head, bins, Terms().request())

    info = lines(tmp_path, 5)[0]["commitInfo"]
    assert list(info) == [
        "inCommitTimestamp",
        "timestamp",
        "operation",
        "operationParameters",
        "readVersion",
        "isolationLevel",
        "isBlindAppend",
        "operationMetrics",
        "engineInfo",
        "txnId",
    ]
    assert info["operationMetrics"] == done.metrics
    assert (info["readVersion"], info["isolationLevel"]) == (4, "SnapshotIsolation")
    assert (info["inCommitTimestamp"], info["txnId"]) == (1_000_000, "txn-1")


def test_removes_tell_the_logical_file_as_the_log_had_it(tmp_path: Path) -> None:
    table = TableBuilder(tmp_path).create(partition_columns=["p"])
    table.add("a b", partition={"p": None}, rows=3, tags={"k": "v"}).delete_rows("a b", 1)
    ((key, add),) = live(tmp_path).items()
    vector = msgspec.to_builtins(add.deletion_vector)
    new = merged(tmp_path, "new").outputs[0]
    new = msgspec.structs.replace(new, stats='{"numRecords":2}')

    commit_rewrites(head_of(tmp_path), [RewrittenBin("0", (add,), (new,))], Terms().request())

    (removed,) = of_kind(tmp_path, 3, "remove")
    assert (removed["path"], removed["deletionVector"]) == (key, vector)
    assert (removed["partitionValues"], removed["tags"]) == ({"p": None}, {"k": "v"})
    assert "deletionVector" not in of_kind(tmp_path, 3, "add")[0]


TOLERATED: dict[str, Callable[[TableBuilder], object]] = {
    "append": lambda table: table.add("e"),
    "removal elsewhere": lambda table: table.add("e").remove("e"),
    "transaction": lambda table: table.commit([{"txn": {"appId": "s", "version": 3}}]),
    "domain of a user": lambda table: table.commit([
        {"domainMetadata": {"domain": "mine", "configuration": "{}", "removed": False}}
    ]),
    "harmless property": lambda table: table.commit([
        {"metaData": table.metadata | {"configuration": {"delta.checkpointInterval": "3"}}}
    ]),
    "statistics again": lambda table: table.commit([
        {"add": table.live["a"] | {"dataChange": False, "tags": {"new": "tag"}}}
    ]),
}


@pytest.mark.parametrize("winner", TOLERATED)
def test_winner_that_touches_no_input_is_tolerated(tmp_path: Path, winner: str) -> None:
    table = table_of(tmp_path)
    head, bins = two_bins(tmp_path)
    TOLERATED[winner](table)

    done = commit_rewrites(head, bins, Terms().request())

    assert (done.version, done.dropped) == (table.version + 1, ())
    assert lines(tmp_path, table.version + 1)[0]["commitInfo"]["readVersion"] == 4
    assert {"a", "b", "c", "d"}.isdisjoint(live(tmp_path))


def test_remove_has_the_tags_that_an_input_got_meanwhile(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    head, bins = two_bins(tmp_path)
    TOLERATED["statistics again"](table)

    commit_rewrites(head, bins, Terms().request())

    assert of_kind(tmp_path, 6, "remove")[0]["tags"] == {"new": "tag"}


LOSSES: dict[str, Callable[[TableBuilder], object]] = {
    "delete": lambda table: table.remove("a"),
    "deletion vector": lambda table: table.delete_rows("a", 0),
    "other optimize": lambda table: table.commit([
        {"remove": table.removed("a", 1)["remove"] | {"dataChange": False}},
        {"add": table.added("x")["add"] | {"dataChange": False}},
    ]),
    "restored again": lambda table: table.remove("a").commit([
        {"add": {"path": "a", "size": 1, "partitionValues": {}, "dataChange": True}}
    ]),
    "other spelling": lambda table: table.commit([
        {"remove": {"path": f"file://{table.path}/a", "dataChange": True}}
    ]),
}


@pytest.mark.parametrize("winner", LOSSES)
def test_only_the_bin_that_lost_an_input_is_dropped(tmp_path: Path, winner: str) -> None:
    table = table_of(tmp_path)
    head, bins = two_bins(tmp_path)
    LOSSES[winner](table)

    done = commit_rewrites(head, bins, Terms().request())

    assert (names(done.kept), names(done.dropped)) == (["cd"], ["ab"])
    assert done.dropped[0].reason.startswith("a was ")
    assert done.metrics["numRemovedFiles"] == "2"
    assert {"b", "cd.parquet"} <= set(live(tmp_path))
    assert "ab.parquet" not in live(tmp_path)


def test_nothing_is_committed_when_every_bin_lost_an_input(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    head, bins = two_bins(tmp_path)
    table.remove("a", "d")
    before = tree(tmp_path)

    done = commit_rewrites(head, bins, Terms().request())

    assert (done.version, done.kept, names(done.dropped)) == (None, (), ["ab", "cd"])
    assert tree(tmp_path) == before


CLOSED: dict[str, tuple[Callable[[TableBuilder], object], str]] = {
    "row tracking": (
        lambda table: table.commit([
            {"metaData": table.metadata | {"configuration": {"delta.enableRowTracking": "true"}}}
        ]),
        "delta.enablerowtracking",
    ),
    "protocol": (
        lambda table: table.commit([{"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}]),
        "columnMapping was added",
    ),
    "another table": (
        lambda table: table.commit([{"metaData": table.metadata | {"id": "another"}}]),
        "replaced",
    ),
}


@pytest.mark.parametrize("winner", CLOSED)
def test_winner_that_changes_the_table_is_a_conflict(tmp_path: Path, winner: str) -> None:
    table = table_of(tmp_path)
    head, bins = two_bins(tmp_path)
    change, found = CLOSED[winner]
    change(table)
    before = tree(tmp_path)

    with pytest.raises(ConflictError, match=found) as raised:
        commit_rewrites(head, bins, Terms().request())

    assert raised.value.files_may_be_removed
    assert tree(tmp_path) == before


def racing(path: Path, monkeypatch: pytest.MonkeyPatch, *moves: Callable[[], object]) -> None:
    """Let another writer make each move right before one of our writes."""
    left = list(moves)

    def put(location: Location, name: str, body: bytes) -> bool:
        if left:
            left.pop(0)()
        return put_if_absent(location, name, body)

    monkeypatch.setattr(committing, "put_if_absent", put)


def test_lost_races_number_rows_and_time_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = [*TRACKED, "inCommitTimestamp"]
    table = TableBuilder(tmp_path).create(features=features).add("a").add("b")
    enabled = [{"metaData": table.metadata | {"configuration": ICT}}, domain(3)]
    table.commit([{"commitInfo": {"inCommitTimestamp": 2_000_000}}, *enabled])
    _in_commit_time(table, 3, 2_000_000)
    head, bins = head_of(tmp_path), [merged(tmp_path, "ab")]
    winner = {"commitInfo": {"inCommitTimestamp": 3_000_000}}

    racing(
        tmp_path,
        monkeypatch,
        lambda: table.commit([domain(9)]),
        lambda: table.commit([winner, domain(19)]),
    )
    terms = Terms()
    done = commit_rewrites(head, bins, terms.request())

    assert (done.version, len(terms.pauses)) == (6, 2)
    (added,) = of_kind(tmp_path, 6, "add")
    assert (added["baseRowId"], added["defaultRowCommitVersion"]) == (20, 6)
    (moved,) = of_kind(tmp_path, 6, "domainMetadata")
    assert '"rowIdHighWaterMark":23' in moved["configuration"]
    assert lines(tmp_path, 6)[0]["commitInfo"]["inCommitTimestamp"] == 3_000_001


def _in_commit_time(table: TableBuilder, version: int, ict_ms: int) -> None:
    path = table.log / f"{version:020}.json"
    path.write_text(
        path.read_text().replace('{"timestamp"', f'{{"inCommitTimestamp":{ict_ms},"timestamp"', 1)
    )


def test_backfill_gives_the_removes_its_row_ids(tmp_path: Path) -> None:
    table = TableBuilder(tmp_path).create(features=TRACKED).add("a").add("b")
    head, bins = head_of(tmp_path), [merged(tmp_path, "ab")]
    inputs = bins[0].inputs
    ids = [{"baseRowId": n * 2, "defaultRowCommitVersion": n + 1} for n in range(2)]
    adds = [backfilled(add, **fields) for add, fields in zip(inputs, ids, strict=True)]
    table.commit([*adds, domain(3)], operation="ROW TRACKING BACKFILL")

    commit_rewrites(head, bins, Terms().request())

    removed = of_kind(tmp_path, 4, "remove")
    assert [{key: each[key] for key in ids[0]} for each in removed] == ids
    assert of_kind(tmp_path, 4, "add")[0]["baseRowId"] == 4


def test_row_ids_that_changed_after_they_were_copied_lose_the_bin(tmp_path: Path) -> None:
    table = TableBuilder(tmp_path).create(features=TRACKED).add("a", baseRowId=0).add("b")
    head, bins = head_of(tmp_path), [merged(tmp_path, "ab")]
    table.commit([backfilled(bins[0].inputs[0], baseRowId=7)])

    done = commit_rewrites(head, bins, Terms(row_ids_kept=True).request())

    assert done.version is None
    assert "got other row ids" in done.dropped[0].reason


def test_suspended_row_tracking_gives_no_ids(tmp_path: Path) -> None:
    suspended = {"delta.rowTrackingSuspended": "true"}
    TableBuilder(tmp_path).create(features=TRACKED, configuration=suspended).add("a")

    commit_rewrites(head_of(tmp_path), [merged(tmp_path, "new")], Terms().request())

    assert "baseRowId" not in of_kind(tmp_path, 2, "add")[0]
    assert of_kind(tmp_path, 2, "domainMetadata") == []


def test_bin_without_live_rows_commits_its_removes_alone(tmp_path: Path) -> None:
    table = TableBuilder(tmp_path).create(features=["deletionVectors"]).add("a", rows=2)
    table.delete_rows("a", 0, 1)
    bins = [RewrittenBin("0", tuple(live(tmp_path).values()), ())]

    done = commit_rewrites(head_of(tmp_path), bins, Terms().request())

    assert (done.version, live(tmp_path)) == (3, {})
    assert (done.metrics["numDeletionVectorsRemoved"], done.metrics["maxFileSize"]) == ("1", "0")
