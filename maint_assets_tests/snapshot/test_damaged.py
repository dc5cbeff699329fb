"""Damaged logs: skipped where the log allows it, else one clear error and nothing changed."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from maint_assets.delta.features import Operation, unsupported
from maint_assets.errors import (
    CorruptLogError,
    LogGapError,
    MaintError,
    NotADeltaTableError,
    StorageError,
)
from maint_assets.snapshot.head import newest_head, table_head
from maint_assets.storage import read
from maint_assets.storage.location import Location
from maint_assets_tests.support.builder import TableBuilder, tree

Damage = Callable[[TableBuilder], object]


def story(path: Path) -> TableBuilder:
    table = TableBuilder(path).at(days_ago=9).create().add("a", "b").remove("a").checkpoint()
    return table.add("c").remove("b").checkpoint().add("d")


def commit(version: int) -> str:
    return f"{version:020}.json"


def checkpoint(version: int) -> str:
    return f"{version:020}.checkpoint.parquet"


def cut(table: TableBuilder, name: str, keep: float = 0.5) -> None:
    content = (table.log / name).read_bytes()
    (table.log / name).write_bytes(content[: int(len(content) * keep)])


def gone(table: TableBuilder, *names: str) -> None:
    for name in names:
        (table.log / name).unlink()


def test_checkpoint_by_a_name_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    table = TableBuilder(tmp_path).create(features=["v2Checkpoint"]).add("a").checkpoint("v2-json")
    (top,) = table.log.glob("*.checkpoint.*.json")
    top.rename(os.fsdecode(os.fsencode(table.log) + b"/%020d.checkpoint.\xff.json" % 1))

    for read_head in (table_head, newest_head):
        with pytest.raises(
            CorruptLogError, match=r"checkpoint\.\\udcff\.json .* not UTF-8"
        ) as found:
            read_head(Location.of(str(tmp_path)))
        assert str(found.value).isascii()


HARMLESS: dict[str, tuple[Damage, int | None]] = {
    "zero-byte checkpoint": (lambda t: cut(t, checkpoint(4), 0), 2),
    "truncated checkpoint": (lambda t: cut(t, checkpoint(4)), 2),
    "garbage checkpoint": (lambda t: (t.log / checkpoint(4)).write_bytes(b"PAR1" * 9), 2),
    "both checkpoints truncated": (lambda t: (cut(t, checkpoint(4)), cut(t, checkpoint(2))), None),
    "truncated checkpoint, old commits gone": (
        lambda t: (cut(t, checkpoint(4)), gone(t, commit(0), commit(1))), 2,
    ),
    "old commits gone": (lambda t: gone(t, commit(0), commit(1), commit(2)), 4),
    "hole before the checkpoint": (lambda t: gone(t, commit(3)), 4),
}  # fmt: skip


@pytest.mark.parametrize("what", HARMLESS)
def test_damage_that_the_log_makes_up_for_is_passed_over(tmp_path: Path, what: str) -> None:
    table = story(tmp_path)
    damage, base = HARMLESS[what]
    damage(table)

    segment = table_head(Location.of(str(tmp_path))).segment

    assert segment.version == 5
    assert (segment.checkpoint.version if segment.checkpoint else None) == base


REFUSED: dict[str, tuple[Damage, type[MaintError], str]] = {
    "gap": (
        lambda t: gone(t, checkpoint(2), checkpoint(4), commit(3)), LogGapError, commit(3),
    ),
    "gap after the checkpoint": (
        lambda t: (t.add("e"), gone(t, commit(5))),
        LogGapError,
        commit(5),
    ),
    "first commit gone": (
        lambda t: gone(t, checkpoint(2), checkpoint(4), commit(0)), LogGapError, commit(0),
    ),
    "all commits gone": (
        lambda t: gone(t, *(commit(v) for v in range(6))), LogGapError, "checkpoint 4",
    ),
    "commits from before the checkpoint on gone": (
        lambda t: gone(t, commit(3), commit(4), commit(5)), LogGapError, "checkpoint",
    ),
    "newest commits gone, checkpoint truncated": (
        lambda t: (cut(t, checkpoint(4)), gone(t, commit(3), commit(4), commit(5))),
        LogGapError, "checkpoint",
    ),
    "newest checkpoint truncated, hole below": (
        lambda t: (cut(t, checkpoint(4)), gone(t, commit(3))), CorruptLogError, checkpoint(4),
    ),
    "commit twice": (
        lambda t: t.write_log("5.json", (t.log / commit(5)).read_text()), LogGapError, "version 5",
    ),
    "truncated newest metadata": (
        lambda t: (t.commit([{"metaData": t.metadata}]), cut(t, commit(6), 0.6)),
        CorruptLogError, commit(6),
    ),
    "no protocol": (
        lambda t: (gone(t, checkpoint(2), checkpoint(4)), cut(t, commit(0), 0)),
        CorruptLogError, "without any action",
    ),
    "empty log": (
        lambda t: [p.unlink() for p in t.log.iterdir()],
        NotADeltaTableError,
        "_delta_log",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_damage_beyond_repair_is_one_sentence_and_nothing_touched(
    tmp_path: Path, what: str
) -> None:
    table = story(tmp_path)
    damage, kind, named = REFUSED[what]
    damage(table)
    before = tree(tmp_path)

    with pytest.raises(kind) as caught:
        table_head(Location.of(str(tmp_path)))

    assert type(caught.value) is kind
    assert caught.value.exit_code == (3 if kind is NotADeltaTableError else 1)
    assert str(tmp_path) in str(caught.value)
    assert named in str(caught.value)
    assert caught.value.remedy
    assert "\n" not in str(caught.value)
    assert tree(tmp_path) == before


def test_place_without_a_log_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x")

    for place in (tmp_path, tmp_path / "nothing", tmp_path / "x"):
        with pytest.raises(NotADeltaTableError, match="give the root of a Delta table"):
            table_head(Location.of(str(place)))


def test_sidecar_missing_or_of_other_size_falls_back_to_the_commits(tmp_path: Path) -> None:
    v2 = {"delta.checkpointPolicy": "v2"}
    table = TableBuilder(tmp_path).create(features=["v2Checkpoint"], configuration=v2).add("a", "b")
    table.checkpoint("v2-json", parts=2)
    sidecar = sorted((table.log / "_sidecars").iterdir())[0]
    sidecar.write_bytes(sidecar.read_bytes() + b"x")

    assert table_head(Location.of(str(tmp_path))).segment.checkpoint is None
    gone(table, commit(0))
    with pytest.raises(LogGapError, match=sidecar.name):
        table_head(Location.of(str(tmp_path)))


@pytest.mark.parametrize(
    "feature", ["feature of 2031", "catalogManaged", "adaptiveMetadata-preview"]
)
def test_feature_that_vacuum_must_not_meet_is_named(tmp_path: Path, feature: str) -> None:
    TableBuilder(tmp_path).create(features=[feature]).add("a")

    head = table_head(Location.of(str(tmp_path)))

    assert any(feature in reason for reason in unsupported(head.protocol, Operation.VACUUM))


def test_checksum_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    TableBuilder(tmp_path).create().add("a").checksum()
    sound = read.content

    def denied(location: Location, path: str) -> bytes:
        if path.endswith(".crc"):
            raise PermissionError(13, "Permission denied")
        return sound(location, path)

    monkeypatch.setattr(read, "content", denied)

    with pytest.raises(CorruptLogError, match=r"0001\.crc cannot be read .*Permission denied"):
        table_head(Location.of(str(tmp_path)))


def test_log_that_cannot_be_listed_is_named(tmp_path: Path) -> None:
    table = TableBuilder(tmp_path).create().add("a")
    (table.log / "loop").symlink_to(table.log / "loop")

    with pytest.raises(StorageError, match="_delta_log cannot be read"):
        table_head(Location.of(str(tmp_path)))


def test_broken_checksum_counts_as_absent(tmp_path: Path) -> None:
    table = story(tmp_path).checksum()
    assert table_head(Location.of(str(tmp_path))).checksum
    table.write_log(f"{5:020}.crc", json.dumps({"numFiles": 1})[:-3])

    assert table_head(Location.of(str(tmp_path))).checksum is None
