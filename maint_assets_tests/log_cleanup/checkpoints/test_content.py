"""A readable checkpoint whose content differs from that of the commits is no anchor.

Versions up to 13 have expired, as in test_expired_logs.
"""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql import SparkSession

from maint_assets.errors import StalePlanError
from maint_assets.log_cleanup.checkpoints.soundness import Soundness, soundness_of_each
from maint_assets.log_cleanup.deletion import delete_planned
from maint_assets.log_cleanup.log_directory import log_directory
from maint_assets.storage.location import Location
from maint_assets_tests.log_cleanup.logs import (
    commits,
    locations_of,
    plan_of,
    planned,
    planned_rows,
)
from maint_assets_tests.log_cleanup.wrong_checkpoints import (
    ALIKE,
    WRONG,
    WRONG_OF_FILES,
    also_removed,
    lost,
    of_adds,
    of_c,
    partitioned,
    story,
    top,
    without,
)
from maint_assets_tests.support.builder import TableBuilder
from maint_assets_tests.support.edits import edit_rows, rewrite

PROTECTED = {"delta.setTransactionRetentionDuration": "interval 1 days"}
DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("kind", "parts"),
    [("classic", 1), ("v2-json", 0), ("v2-json", 2), ("v2-parquet", 2)],
)
def test_sound_checkpoints_agree_with_the_commits(tmp_path: Path, kind: str, parts: int):
    story(tmp_path, 5, 10, kind=kind, parts=parts)

    found = planned(tmp_path)[1]

    assert (found.anchor_version, found.rejected, found.notes) == (10, [], [])


@pytest.mark.parametrize(
    ("kind", "parts"),
    [("classic", 1), ("v2-json", 0), ("v2-json", 2), ("v2-parquet", 2)],
)
def test_an_older_checkpoint_by_a_newer_name_is_no_anchor(tmp_path: Path, kind: str, parts: int):
    builder = story(tmp_path, 5, 10, kind=kind, parts=parts)
    newer = top(builder, 10)
    shutil.copy2(top(builder, 5), newer)
    if newer.suffix == ".json":
        rewrite(newer, newer.read_text().replace('"version": 5}', '"version": 10}'))
    if kind == "v2-parquet":
        edit_rows(newer, lambda row: (row["checkpointMetadata"] or {}).update(version=10))

    names, found = planned(tmp_path)

    assert (found.anchor_version, len(found.rejected)) == (5, 1)
    assert "4 live files, not 6" in found.rejected[0]
    assert {name for name in names if "/" not in name} == commits(*range(5))


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("checkpoints", [(5, 10), (10,)], ids=["since checkpoint 5", "since 0"])
def test_a_checkpoint_that_commits_contradict_is_no_anchor(
    tmp_path: Path, what: str, checkpoints: tuple[int, ...]
):
    builder = story(tmp_path, *checkpoints)
    edit, message = WRONG[what]
    edit_rows(top(builder, 10), edit)

    found = planned(tmp_path)[1]

    assert found.anchor_version == (5 if 5 in checkpoints else None)
    assert message in found.rejected[0]


def test_what_the_checksum_counts_right_may_still_be_wrong(tmp_path: Path):
    builder = story(tmp_path, 5)
    totals = dict(builder.totals())
    builder = story(tmp_path / "t", 5, 10)
    live = {"numFiles": 6, "tableSizeBytes": _live_bytes(builder, 10)}
    crc = f"{10:020d}.crc"
    builder.write_log(crc, json.dumps(totals | live))
    assert planned(tmp_path / "t")[1].anchor_version == 10

    edit_rows(top(builder, 10), of_c({"path": "c2"}))

    assert planned(tmp_path / "t")[1].anchor_version == 5


def _live_bytes(builder: TableBuilder, version: int) -> int:
    rows = pq.read_table(top(builder, version), columns=["add"])["add"].to_pylist()
    return sum(row["size"] for row in rows if row)


def test_files_twice_are_refused_though_nothing_is_there_to_compare(tmp_path: Path):
    builder = story(tmp_path, 10)
    (builder.log / f"{3:020d}.json").unlink()
    edit_rows(top(builder, 10), of_c({"path": "b"}))

    found = planned(tmp_path)[1]

    assert found.stop_reason == "anchor_invalid"
    assert "twice" in found.rejected[0]


def test_the_plan_says_that_a_content_was_not_compared(tmp_path: Path):
    builder = story(tmp_path, 10)
    (builder.log / f"{3:020d}.json").unlink()

    found = planned(tmp_path)[1]

    assert found.anchor_version == 10
    assert "the content of checkpoint 10 was not compared" in found.notes[0]


def test_a_commit_that_cannot_be_read_leaves_nothing_to_compare(tmp_path: Path):
    builder = story(tmp_path, 10)
    rewrite(builder.log / f"{3:020d}.json", '{"add":')

    found = planned(tmp_path)[1]

    assert found.anchor_version == 10
    assert f"{3:020d}.json has an invalid line" in found.notes[0]


def test_an_older_checkpoint_that_is_not_sound_is_not_compared_with(tmp_path: Path):
    builder = story(tmp_path, 3, 5, 10)
    edit_rows(top(builder, 5), without("protocol"))

    found = planned(tmp_path)[1]

    assert (found.anchor_version, found.notes) == (10, [])


def test_a_checkpoint_that_was_made_of_a_wrong_one_is_no_anchor(tmp_path: Path):
    builder = story(tmp_path, 3, 5, 10)
    for version in (5, 10):
        edit_rows(top(builder, version), lost)

    names, found = planned(tmp_path)

    assert (found.anchor_version, found.notes) == (3, [])
    assert [text.partition(" differs")[0] for text in found.rejected] == [
        "checkpoint 10", "checkpoint 5"
    ]  # fmt: skip
    assert names == commits(0, 1, 2)


def test_a_right_checkpoint_is_the_anchor_whatever_an_older_one_says(tmp_path: Path):
    builder = story(tmp_path, 5, 10)
    edit_rows(top(builder, 5), lost)

    found = planned(tmp_path)[1]

    assert (found.anchor_version, found.notes) == (10, [])
    assert [text.partition(":")[0] for text in found.rejected] == [
        "checkpoint 5 differs from the commits up to it"
    ]


def test_the_plan_says_of_which_checkpoint_a_comparison_began(tmp_path: Path):
    builder = story(tmp_path, 5, 8, 10)
    (builder.log / f"{3:020d}.json").unlink()

    found = planned(tmp_path)[1]

    assert (found.anchor_version, found.rejected) == (10, [])
    assert "compared from checkpoint 5 on, which cannot be checked" in found.notes[0]


def test_a_commit_that_cannot_be_read_is_passed_by_the_next_checkpoint(tmp_path: Path):
    builder = story(tmp_path, 5, 8, 10)
    rewrite(builder.log / f"{3:020d}.json", '{"add":')
    edit_rows(top(builder, 10), lost)

    found = planned(tmp_path)[1]

    assert found.anchor_version == 8
    assert "checkpoint 10 differs from checkpoint 5 and the commits" in found.rejected[0]


def test_more_wrong_checkpoints_than_one_replay_compares_are_all_passed_over(tmp_path: Path):
    builder = story(tmp_path, 3, 5, 6, 7, 8, 9, 10)
    for version in range(5, 11):
        edit_rows(top(builder, version), lost)

    found = planned(tmp_path)[1]

    assert (found.anchor_version, len(found.rejected)) == (3, 6)


def test_a_wrong_checkpoint_is_named_where_nothing_goes(tmp_path: Path):
    builder = story(tmp_path, 5, 10)
    for version in range(5):
        (builder.log / f"{version:020d}.json").unlink()
    edit_rows(top(builder, 10), without("protocol"))

    found = planned(tmp_path)[1]

    assert (found.stop_reason, len(found.rejected)) == ("nothing_to_delete", 1)


def test_a_checkpoint_that_holds_a_live_file_as_removed_too_is_no_anchor(tmp_path: Path):
    builder = story(tmp_path, 5, 10)
    edit_rows(top(builder, 10), also_removed)

    found = planned(tmp_path)[1]

    assert found.anchor_version == 5
    assert "of its live files also as removed" in found.rejected[0]


def test_an_application_that_could_expire_for_a_while_may_be_left_out(tmp_path: Path):
    builder = story(tmp_path, 10)
    for version, settings in ((5, PROTECTED), (8, {})):
        file = builder.log / f"{version:020d}.json"
        action = {"metaData": builder.metadata | {"configuration": settings}}
        rewrite(file, file.read_text() + json.dumps(action) + "\n")
    edit_rows(top(builder, 10), without("txn"))

    assert planned(tmp_path)[1].anchor_version == 10


@pytest.mark.parametrize("what", WRONG_OF_FILES)
def test_other_partition_values_or_statistics_are_no_anchor(tmp_path: Path, what: str):
    builder = partitioned(tmp_path, 5, 10)
    edit, message = WRONG_OF_FILES[what]
    edit_rows(top(builder, 10), edit)

    found = planned(tmp_path)[1]

    assert found.anchor_version == 5
    assert message in found.rejected[0]


@pytest.mark.parametrize("what", ALIKE)
def test_what_a_checkpoint_leaves_out_or_spells_otherwise_is_no_fault(tmp_path: Path, what: str):
    builder = partitioned(tmp_path, 5, 10)
    edit_rows(top(builder, 10), ALIKE[what])

    assert planned(tmp_path)[1].anchor_version == 10


def test_row_ids_do_not_matter_without_row_tracking(tmp_path: Path):
    builder = partitioned(tmp_path, 5, 10, features=())
    edit_rows(top(builder, 10), of_adds(baseRowId=None, defaultRowCommitVersion=None))

    assert planned(tmp_path)[1].anchor_version == 10


@pytest.mark.parametrize("kept", [True, False])
def test_an_application_that_has_expired_may_be_left_out(tmp_path: Path, kept: bool):
    builder = story(tmp_path, 5, 10, configuration={} if kept else PROTECTED)
    edit_rows(top(builder, 10), without("txn"))

    assert planned(tmp_path)[1].anchor_version == (5 if kept else 10)


@pytest.mark.parametrize("kept", ["5 days", "60 days"])
def test_an_application_may_be_left_out_only_if_it_had_expired(tmp_path: Path, kept: str):
    """Expired at the time of the checkpoint, 30 days ago."""
    builder = story(tmp_path, 5, 10, configuration=retained(kept))
    update_transactions(builder, (2, 7), builder.now_ms - 37 * DAY_MS)
    assert planned(tmp_path)[1].anchor_version == 10

    edit_rows(top(builder, 10), without("txn"))

    found = planned(tmp_path)[1]
    assert found.anchor_version == (10 if kept == "5 days" else 5)


def test_an_application_that_no_commit_has_is_a_fault(tmp_path: Path):
    """Expired or not: its readers would skip a transaction that was never committed."""
    builder = story(tmp_path, 5, 10, configuration=PROTECTED)
    edit_rows(top(builder, 10), lambda row: row["txn"] and row["txn"].update(appId="app2"))

    found = planned(tmp_path)[1]

    assert (found.anchor_version, found.rejected) == (
        5, ["checkpoint 10 differs from the commits up to it: another txn app2"]
    )  # fmt: skip


def retained(interval: str) -> dict[str, str]:
    return {"delta.setTransactionRetentionDuration": f"interval {interval}"}


def update_transactions(builder: TableBuilder, versions: tuple[int, ...], at_ms: int) -> None:
    """Set the time of last update in commits and checkpoints."""
    for version in versions:
        file = builder.log / f"{version:020d}.json"
        rewrite(file, file.read_text().replace('"lastUpdated": 1}', f'"lastUpdated": {at_ms}}}'))
    for file in builder.log.glob("*.checkpoint.parquet"):
        edit_rows(file, lambda row: row["txn"] and row["txn"].update(lastUpdated=at_ms))


def test_an_anchor_whose_content_changed_since_the_plan_is_refused(tmp_path: Path):
    builder = story(tmp_path / "t", 5, 10)
    rows, found = planned_rows(tmp_path / "t")
    plan = plan_of(tmp_path / "t", rows.num_rows, anchor=found.anchor_version or 0)
    edit_rows(top(builder, 10), of_c({"path": "c2"}))
    before = sorted(builder.log.iterdir())
    (tmp_path / "ledger").mkdir()

    with pytest.raises(StalePlanError, match="other live files"):
        delete_planned(rows.to_batches(), plan, locations_of(plan, tmp_path / "ledger"))

    assert sorted(builder.log.iterdir()) == before


def test_a_deletion_that_was_broken_off_goes_on_without_the_commits(tmp_path: Path):
    builder = story(tmp_path / "t", 5, 10)
    rows, found = planned_rows(tmp_path / "t")
    plan = plan_of(tmp_path / "t", rows.num_rows, anchor=found.anchor_version or 0)
    for version in range(8):
        (builder.log / f"{version:020d}.json").unlink()
    (tmp_path / "ledger").mkdir()

    done = delete_planned(rows.to_batches(), plan, locations_of(plan, tmp_path / "ledger"))

    assert done.outcomes["commit"] == {"missing": 8, "deleted": 2}
    assert done.earliest_version == 10


@pytest.mark.parametrize("by_spark", [False, True])
def test_checkpoints_by_delta_rs_are_what_the_commits_make(
    spark: SparkSession, tmp_path: Path, by_spark: bool
):
    odd = ["a b/é%=", "ü%20x", None, "x:y?#", "plain"]
    rows = pa.table({"id": range(10), "p": pa.array([*odd, *odd], pa.string())})
    if by_spark:
        pairs = [(row["id"], row["p"]) for row in rows.to_pylist()]
        found = spark.createDataFrame(pairs, "id BIGINT, p STRING")
        found.write.format("delta").partitionBy("p").save(str(tmp_path))
    else:
        write_deltalake(tmp_path, rows, partition_by=["p"])
    terms = CommitProperties(app_transactions=[Transaction("app", 3)])
    DeltaTable(tmp_path).create_checkpoint()
    for _ in range(2):
        DeltaTable(tmp_path).delete("p = 'a b/é%='")
        write_deltalake(tmp_path, rows, mode="append", commit_properties=terms)
        DeltaTable(tmp_path).create_checkpoint()

    log = log_directory(Location.of(str(tmp_path)))

    assert [each.version for each in log.checkpoints] == [4, 2, 0]
    assert set(soundness_of_each(log, log.checkpoints).values()) == {Soundness()}
