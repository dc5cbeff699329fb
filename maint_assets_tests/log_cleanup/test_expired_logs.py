"""What a plan deletes of a log, and what it keeps: PROTOCOL's "Metadata Cleanup".

Version v of the tests' log is 40 - v days old; with 26 days kept, versions up to 13 have expired.
"""

import json
from pathlib import Path

import pytest

from maint_assets_tests.log_cleanup.logs import (
    commits,
    daily_log,
    of_versions,
    parts,
    planned,
    planned_rows,
    single,
)
from maint_assets_tests.support.builder import TableBuilder
from maint_assets_tests.support.edits import rewrite

UUID = "01234567-89ab-cdef-0123-456789abcdef"


def test_all_before_the_newest_checkpoint_that_the_cutoff_needs_goes(tmp_path: Path):
    daily_log(tmp_path, checkpoints=(5, 10, 18))

    names, found = planned(tmp_path)

    assert names == of_versions(*range(10)) | {single(5)}
    assert (found.cutoff_version, found.anchor_version, found.stop_reason) == (13, 10, None)
    assert (found.earliest_before, found.earliest_after) == (0, 10)


def test_a_checkpoint_that_is_the_first_to_stay_is_no_anchor_for_the_versions_before(
    tmp_path: Path,
):
    daily_log(tmp_path, checkpoints=(5, 14))

    names, found = planned(tmp_path)

    assert names == of_versions(*range(5))
    assert found.anchor_version == 5


def test_a_checkpoint_of_the_newest_expired_commit_is_the_anchor(tmp_path: Path):
    daily_log(tmp_path, checkpoints=(5, 13))

    assert planned(tmp_path)[0] == of_versions(*range(13)) | {single(5)}


def test_a_commit_exactly_at_the_cutoff_has_expired(tmp_path: Path):
    def to_midnight(table: TableBuilder) -> None:
        table.age("_delta_log/00000000000000000014.json", 26 + 10 / 24)

    daily_log(tmp_path, checkpoints=(14,), at={14: to_midnight})

    assert planned(tmp_path)[1].cutoff_version == 14


@pytest.mark.parametrize(("granularity", "newest"), [("day", 12), ("hour", 13), ("minute", 13)])
def test_the_cutoff_is_cut_to_a_day_an_hour_or_a_minute(
    tmp_path: Path, granularity: str, newest: int
):
    daily_log(tmp_path, checkpoints=(5,))

    found = planned(tmp_path, days=26.9, granularity=granularity)[1]

    assert found.cutoff_version == newest


def test_late_file_times_keep_versions_longer(tmp_path: Path):
    def late(table: TableBuilder) -> None:
        table.age("_delta_log/00000000000000000009.json", 15)

    daily_log(tmp_path, checkpoints=(5, 10), at={20: late})

    names, found = planned(tmp_path)

    assert found.cutoff_version == 8
    assert names == of_versions(*range(5))


def test_times_in_commits_count_not_those_of_files(tmp_path: Path):
    builder = _with_times_in_commits(tmp_path)
    builder.age("_delta_log/*", 0)

    names, found = planned(tmp_path)

    assert (found.cutoff_version, found.anchor_version) == (13, 10)
    assert names == commits(*range(10)) | {single(5)}


def test_times_in_commits_and_of_files_are_never_mixed(tmp_path: Path):
    builder = _with_times_in_commits(tmp_path, enabled=16)
    builder.age("_delta_log/*", 0)

    assert planned(tmp_path)[1].stop_reason == "no_expired_commit"


def _with_times_in_commits(path: Path, *, enabled: int | None = None) -> TableBuilder:
    day_ms = 86_400_000
    configuration = {"delta.enableInCommitTimestamps": "true"}
    probe = TableBuilder(path)
    if enabled is not None:
        configuration |= {
            "delta.inCommitTimestampEnablementVersion": str(enabled),
            "delta.inCommitTimestampEnablementTimestamp": str(1_795_341_600_000 - 24 * day_ms),
        }
    builder = daily_log(
        path,
        checkpoints=(5, 10),
        checksums=False,
        features=("inCommitTimestamp",),
        configuration=configuration,
    )
    for version in range(21):
        file = probe.log / f"{version:020d}.json"
        info, *rest = file.read_text().splitlines()
        content = json.loads(info)
        content["commitInfo"]["inCommitTimestamp"] = content["commitInfo"]["timestamp"]
        file.write_text("\n".join([json.dumps(content), *rest]) + "\n")
    return builder


def test_nothing_goes_without_an_expired_commit(tmp_path: Path):
    daily_log(tmp_path, checkpoints=(5, 10))

    names, found = planned(tmp_path, days=60)

    assert (names, found.stop_reason, found.earliest_after) == (set(), "no_expired_commit", 0)


def test_nothing_goes_without_a_checkpoint_before_the_cutoff(tmp_path: Path):
    daily_log(tmp_path, checkpoints=(14, 18))

    names, found = planned(tmp_path)

    assert (names, found.stop_reason) == (set(), "no_checkpoint_before_cutoff")


def test_nothing_goes_where_the_property_forbids_it_unless_forced(tmp_path: Path):
    configuration = {"delta.enableExpiredLogCleanup": "false"}
    daily_log(tmp_path, checkpoints=(5, 10), configuration=configuration)

    assert planned(tmp_path)[1].stop_reason == "disabled"
    assert planned(tmp_path, force=True)[1].anchor_version == 10


def test_nothing_goes_when_a_commit_after_the_anchor_is_missing(tmp_path: Path):
    daily_log(tmp_path, checkpoints=(5, 10, 18))
    (tmp_path / "_delta_log" / "00000000000000000015.json").unlink()

    names, found = planned(tmp_path)

    assert (names, found.stop_reason) == (set(), "gap")
    assert (found.earliest_before, found.earliest_after, found.ending) == (0, 0, [])


def test_nothing_is_left_to_do_after_all_went(tmp_path: Path):
    daily_log(tmp_path, checkpoints=(5, 10))
    for name in planned(tmp_path)[0]:
        (tmp_path / "_delta_log" / name).unlink()

    names, found = planned(tmp_path)

    assert (names, found.stop_reason, found.earliest_before) == (set(), "nothing_to_delete", 10)


def test_holes_below_the_anchor_do_not_matter(tmp_path: Path):
    daily_log(tmp_path, checkpoints=(5, 10))
    for version in (3, 7):
        (tmp_path / "_delta_log" / f"{version:020d}.json").unlink()

    names, found = planned(tmp_path)

    assert names == of_versions(*range(10)) - commits(3, 7) | {single(5)}
    assert (found.earliest_before, found.earliest_after) == (0, 10)
    assert found.ending == [(0, 2), (5, 6)]


def test_versions_over_a_checkpoint_that_cannot_be_opened_do_not_end(tmp_path: Path):
    log = daily_log(tmp_path, checkpoints=(5, 8, 10)).log
    for version in range(5):
        (log / f"{version:020d}.json").unlink()
    rewrite(log / single(5), "PAR1")

    found = planned(tmp_path)[1]

    assert (found.earliest_before, found.earliest_after) == (8, 10)
    assert found.ending == [(8, 9)]


def test_min_keep_version_moves_the_anchor_back(tmp_path: Path):
    daily_log(tmp_path, checkpoints=(5, 10))

    assert planned(tmp_path, min_keep_version=9)[1].anchor_version == 5
    assert planned(tmp_path, min_keep_version=10)[1].anchor_version == 10
    assert planned(tmp_path, min_keep_version=4)[1].stop_reason == "no_checkpoint_before_cutoff"


def test_an_anchor_may_be_written_at_the_newest_expired_commit(tmp_path: Path):
    daily_log(tmp_path, checkpoints=(18,))

    names, found = planned(tmp_path, creates_anchor=True)

    assert (found.anchor_version, found.creates_anchor, found.earliest_after) == (13, True, 13)
    assert names == of_versions(*range(13))


def test_no_anchor_is_written_where_commits_are_missing(tmp_path: Path):
    daily_log(tmp_path, checkpoints=(18,))
    (tmp_path / "_delta_log" / "00000000000000000003.json").unlink()

    assert planned(tmp_path, creates_anchor=True)[1].stop_reason == "no_checkpoint_before_cutoff"


@pytest.mark.parametrize("damage", ["empty", "truncated", "one_part_missing", "other_counts"])
def test_an_anchor_that_is_not_sound_is_passed_over_for_an_older_one(tmp_path: Path, damage: str):
    def damaged(table: TableBuilder) -> None:
        table.checkpoint(parts=3 if damage == "one_part_missing" else 1)
        file = min(table.log.glob("*10.checkpoint*.parquet"))
        if damage == "empty":
            file.write_bytes(b"")
        elif damage == "truncated":
            file.write_bytes(file.read_bytes()[:-200])
        elif damage == "one_part_missing":
            file.unlink()
        else:
            text = json.loads((table.log / f"{10:020d}.crc").read_text()) | {"numFiles": 3}
            (table.log / f"{10:020d}.crc").write_text(json.dumps(text))

    daily_log(tmp_path, checkpoints=(5,), at={10: damaged})

    names, found = planned(tmp_path)

    assert (names, found.anchor_version) == (of_versions(*range(5)), 5)
    assert bool(found.rejected) == (damage in {"truncated", "other_counts"})


def test_nothing_goes_when_no_checkpoint_before_the_cutoff_is_sound(tmp_path: Path):
    daily_log(tmp_path, checkpoints=(10, 18))
    (tmp_path / "_delta_log" / single(10)).write_bytes(b"PAR1 no parquet")

    names, found = planned(tmp_path)

    assert (names, found.stop_reason, len(found.rejected)) == (set(), "anchor_invalid", 1)


def test_parts_go_together_and_incomplete_ones_with_them(tmp_path: Path):
    at = {
        5: lambda table: table.checkpoint(parts=3),
        7: lambda table: table.checkpoint(parts=2),
        10: lambda table: table.checkpoint(parts=3),
    }
    daily_log(tmp_path, at=at)
    (tmp_path / "_delta_log" / min(parts(7, 2))).unlink()

    rows, found = planned_rows(tmp_path)

    reasons = {row["path"][11:]: row["reason"] for row in rows.to_pylist()}
    assert found.anchor_version == 10
    assert parts(5, 3) | {max(parts(7, 2))} <= set(reasons)
    assert reasons[max(parts(7, 2))] == "incomplete"
    assert not parts(10, 3) & set(reasons)


def test_compactions_and_staged_commits_go_up_to_the_anchor(tmp_path: Path):
    builder = daily_log(tmp_path, checkpoints=(5, 10))
    covered = {f"{a:020d}.{b:020d}.compacted.json" for a, b in ((0, 4), (6, 9), (10, 12))}
    for name in (*covered, f"{11:020d}.{12:020d}.compacted.json"):
        builder.write_log(name, "{}\n")
    staged = {f"_staged_commits/{v:020d}.{UUID}.json" for v in (1, 9, 10)}
    (builder.log / "_staged_commits").mkdir()
    for name in (*staged, f"_staged_commits/{12:020d}.{UUID}.json", "_staged_commits/zzz.tmp"):
        builder.write_log(name, "{}\n")

    names, _ = planned(tmp_path)

    assert names == of_versions(*range(10)) | {single(5)} | covered | staged


def test_old_temporary_files_go_young_and_foreign_ones_stay(tmp_path: Path):
    builder = daily_log(tmp_path, checkpoints=(5, 10))
    old = {f"_commit_{UUID}.json.tmp", f".{7:020d}.json.{UUID}.tmp"}
    others = {f".{20:020d}.json.{UUID}.tmp", "_last_vacuum_info", "notes.txt", f".x.{UUID}"}
    for name, days in [*((name, 30) for name in old), *((name, 1.5) for name in others)]:
        builder.write_log(name, "x").age(f"_delta_log/{name}", days)

    names, _ = planned(tmp_path)

    assert names == of_versions(*range(10)) | {single(5)} | old


def test_hadoops_checksums_go_with_their_files_and_after_them(tmp_path: Path):
    builder = daily_log(tmp_path, checkpoints=(5, 10), checksums=False)
    beside = {f".{name}.crc" for name in commits(*range(21))}
    for name in beside:
        builder.write_log(name, "x").age(f"_delta_log/{name}", 30)
    (builder.log / f"{2:020d}.json").unlink()

    rows, _ = planned_rows(tmp_path)

    names = [row["path"][11:] for row in rows.to_pylist()]
    assert set(names) & beside == {f".{name}.crc" for name in commits(*range(10))}
    assert all(name.startswith(".") for name in names[-10:])


def test_the_order_of_deletion_leaves_a_log_at_each_step(tmp_path: Path):
    builder = daily_log(tmp_path, checkpoints=(5, 10))
    builder.write_log(f"{0:020d}.{4:020d}.compacted.json", "{}\n")

    rows, _ = planned_rows(tmp_path)

    found = [(row["kind"], row["version"]) for row in rows.to_pylist()]
    assert found == [
        ("compaction", 0),
        ("checkpoint", 5),
        *(("commit", version) for version in range(10)),
        *(("checksum", version) for version in range(10)),
    ]


def test_a_vacuum_lite_that_lags_behind_is_reported(tmp_path: Path):
    builder = daily_log(tmp_path, checkpoints=(5, 10))
    text = json.dumps({"latestCommitVersionOutsideOfRetentionWindow": 4})
    builder.write_log("_last_vacuum_info", text)

    assert "up to 4" in planned(tmp_path)[1].notes[0]


def test_links_and_directories_with_names_of_the_log_are_never_planned(tmp_path: Path):
    builder = daily_log(tmp_path, checkpoints=(5, 10), checksums=False)
    (builder.log / f"{3:020d}.crc").symlink_to(tmp_path / "elsewhere")
    (builder.log / f"{4:020d}.crc").mkdir()

    assert planned(tmp_path)[0] == commits(*range(10)) | {single(5)}
