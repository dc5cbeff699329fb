"""Anchors that are yet to be written: the plan reports it if one cannot be."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from maint_assets_tests.log_cleanup.conftest import CleaningOf
from maint_assets_tests.log_cleanup.logs import daily_log, of_versions, planned, single
from maint_assets_tests.support.builder import TableBuilder, tree
from maint_assets_tests.support.edits import edit_rows, rewrite
from maint_assets_tests.support.mounts import read_only

Damage = Callable[[TableBuilder], Any]

MYSTERY = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["mystery"]}


def _log(path: Path) -> TableBuilder:
    """Versions up to 13 have expired, and the only checkpoint is that of version 18."""
    return daily_log(path, checkpoints=(18,), checksums=False)


def _appended(version: int, *actions: dict[str, Any]) -> Damage:
    def append(table: TableBuilder) -> None:
        file = table.log / f"{version:020d}.json"
        lines = [json.dumps(action) + "\n" for action in actions]
        rewrite(file, file.read_text() + "".join(lines))

    return append


def _meanwhile(changed: Callable[[TableBuilder], dict[str, Any]]) -> Damage:
    """Change the protocol or metadata in version 8, and change it back in version 15."""

    def edit(table: TableBuilder) -> None:
        action = changed(table)
        _appended(8, action)(table)
        former = {"protocol": table.protocol, "metaData": table.metadata}
        _appended(15, {name: former[name] for name in action})(table)

    return edit


def _without_values(table: TableBuilder) -> None:
    file = table.log / f"{3:020d}.json"
    rewrite(file, file.read_text().replace('"partitionValues": {}', '"partitionValues": null'))


def _wrong_checkpoint(table: TableBuilder) -> None:
    """Copy the checkpoint of version 18 to version 5."""
    (table.log / single(5)).write_bytes((table.log / single(18)).read_bytes())
    edit_rows(table.log / single(5), lambda row: row)


REMOVED = {"remove": {"path": "part-00003.parquet", "deletionTimestamp": 1, "dataChange": True}}

IMPOSSIBLE: dict[str, tuple[Damage, str]] = {
    "a file added and removed by one commit": (
        _appended(3, REMOVED), f"{3:020d}.json both adds and removes part-00003.parquet",
    ),
    "an add without partition values": (
        _without_values, f"{3:020d}.json cannot be read (add.partitionValues is null)",
    ),
    "a feature": (
        _meanwhile(lambda _: {"protocol": MYSTERY | {"writerFeatures": ["mystery"]}}), "mystery",
    ),
    "a schema": (
        _meanwhile(lambda table: {"metaData": table.metadata | {"schemaString": "{"}}),
        "the schema in its metadata cannot be read",
    ),
    "a checkpoint that is wrong": (
        _wrong_checkpoint, "it would be made from checkpoint 5, which is not sound",
    ),
    "a checkpoint of the version": (
        lambda table: (table.log / single(13)).write_bytes(b""), f"{single(13)} exists already",
    ),
    "a commit": (
        lambda table: (table.log / f"{3:020d}.json").unlink(), "commits before it are gone",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_an_anchor_that_cannot_be_written_is_not_planned(tmp_path: Path, what: str) -> None:
    table = _log(tmp_path)
    damage, why = IMPOSSIBLE[what]
    damage(table)

    names, found = planned(tmp_path, creates_anchor=True)

    assert (names, found.anchor_version, found.creates_anchor) == (set(), None, False)
    assert found.stop_reason in {"no_checkpoint_before_cutoff", "anchor_invalid"}
    (note,) = found.notes
    assert note.startswith("no checkpoint of version 13 can be written: ")
    assert why in note


def test_an_anchor_is_not_planned_in_a_log_that_is_read_only(tmp_path: Path) -> None:
    table = _log(tmp_path)

    with read_only(table.log):
        _, found = planned(tmp_path, creates_anchor=True)

    (note,) = found.notes
    assert note.endswith("_delta_log cannot be written to")


def test_an_anchor_is_planned_where_a_later_commit_settles_what_one_left_open(
    tmp_path: Path, cleaning_of: CleaningOf
) -> None:
    table = _log(tmp_path)
    _appended(3, REMOVED)(table)
    _appended(9, REMOVED)(table)
    (table.log / single(18)).unlink()

    names, found = planned(tmp_path, creates_anchor=True)

    assert (names, found.creates_anchor) == (of_versions(*range(13)) & names, True)
    report = cleaning_of(tmp_path, create_anchor_checkpoint=True).clean().json()
    assert report["checkpoint_written"] == 13


def test_nothing_is_written_where_the_anchor_would_be_made_of_a_wrong_checkpoint(
    tmp_path: Path, cleaning_of: CleaningOf
) -> None:
    table = _log(tmp_path)
    _wrong_checkpoint(table)
    before = tree(tmp_path)

    report = cleaning_of(tmp_path, create_anchor_checkpoint=True).clean().json()

    assert (report["stop_reason"], report["checkpoint_written"]) == ("anchor_invalid", None)
    assert tree(tmp_path) == before
