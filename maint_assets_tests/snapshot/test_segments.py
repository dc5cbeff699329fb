"""The files that make up a version: every checkpoint gives the same state as all commits."""

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from maint_assets.snapshot import replay
from maint_assets.snapshot.head import table_head
from maint_assets.snapshot.schemas import SNAPSHOT_SCHEMA
from maint_assets.storage.location import Location
from maint_assets_tests.snapshot.segments import V2, finish, story

KINDS = [("classic", 1), ("classic", 3), ("v2-json", 2), ("v2-parquet", 2), ("v2-parquet", 0)]


def head_of(path: Path):
    return table_head(Location.of(str(path)))


def state(spark: SparkSession, path: Path) -> set[tuple[object, ...]]:
    scratch = str(path.with_name(f"scratch of {path.name}"))
    shares = replay.snapshot(spark, head_of(path), parallelism=2, scratch=scratch)
    rows = [row for share in shares for row in share.as_frame(SNAPSHOT_SCHEMA).collect()]
    names = ("action", "path", "dv_id", "dv_path", "size", "deletion_ms")
    found = [tuple(row[name] for name in names) for row in rows if row.action != "commit"]
    assert len(found) == len(set(found))
    return {tuple(row) for row in found}


@pytest.mark.slow
@pytest.mark.parametrize("way", ["one task", "streamed", "buckets"])
def test_every_checkpoint_gives_the_state_of_all_commits(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    finish(story(tmp_path / "plain"))
    whole = state(spark, tmp_path / "plain")
    if way != "one task":
        monkeypatch.setattr(replay, "SMALL_LOG_BYTES", -1)
        monkeypatch.setattr(replay, "SHARE_BYTES", 1_000)
    if way == "buckets":
        monkeypatch.setattr(replay, "BUCKET_BYTES", 3_000)
    states = {}

    for kind, parts in KINDS[:4]:
        for history in (True, False):
            table = story(tmp_path / f"{kind}{parts}{history}").checkpoint(kind, parts=parts)
            finish(table)
            for version in range(0 if not history else 99, table.version - 3):
                (table.log / f"{version:020}.json").unlink()
            states[kind, parts, history] = state(spark, table.path)

    assert {key: found ^ whole for key, found in states.items() if found != whole} == {}


@pytest.mark.parametrize(
    "hint",
    ["", "{", "[]", '{"version": 9, "size": 1}', '{"version": 0}', '{"version": 6, "parts": 7}'],
)
def test_hint_is_never_the_authority(tmp_path: Path, hint: str) -> None:
    table = story(tmp_path).checkpoint(hint=False)
    finish(table)
    table.write_log("_last_checkpoint", hint)

    head = head_of(tmp_path)

    assert head.version == table.version
    assert head.segment.checkpoint and head.segment.checkpoint.version == 6


def test_newest_complete_checkpoint_is_taken_and_incomplete_ones_are_not(tmp_path: Path) -> None:
    table = story(tmp_path).checkpoint().add("late").checkpoint(parts=3).add("later")
    (table.log / f"{7:020}.checkpoint.{2:010}.{3:010}.parquet").unlink()

    checkpoint = head_of(tmp_path).segment.checkpoint

    assert checkpoint and checkpoint.version == 6


def test_names_that_are_no_commits_are_passed_over(tmp_path: Path) -> None:
    table = story(tmp_path).add("last")
    commit = (table.log / f"{7:020}.json").read_text()
    table.write_log(f"{0:020}.{7:020}.compacted.json", "garbage")
    (table.log / "_staged_commits").mkdir()
    table.write_log(f"_staged_commits/{8:020}.00000000-0000-4000-8000-000000000009.json", commit)
    table.write_log(f".{8:020}.json.tmp", commit).write_log("_commit_1.json.tmp", commit)
    table.write_log(f"{8:020}.json.bak", commit).write_log("notes.txt", "x")

    assert head_of(tmp_path).version == 7


def test_protocol_and_metadata_are_the_newest_across_checkpoint_and_tail(tmp_path: Path) -> None:
    table = story(tmp_path).checkpoint("v2-json")
    longer = table.metadata | {
        "configuration": V2 | {"delta.deletedFileRetentionDuration": "interval 40 days"}
    }
    table.commit([{"metaData": longer}]).add("last")

    head = head_of(tmp_path)

    assert head.properties.deleted_file_retention_ms == 40 * 86_400_000
    assert "v2Checkpoint" in (head.protocol.reader_features or [])


def test_classic_name_may_hold_a_v2_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    table = story(tmp_path).checkpoint("v2-parquet", parts=2)
    whole = state(spark, tmp_path)
    top = next(table.log.glob("*.checkpoint.*.parquet"))
    shutil.move(top, table.log / f"{6:020}.checkpoint.parquet")
    for version in range(6):
        (table.log / f"{version:020}.json").unlink()

    assert state(spark, tmp_path) == whole
