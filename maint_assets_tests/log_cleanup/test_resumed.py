"""Wherever a cleanup stops, no checkpoint that is left makes the next run reject the anchor."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from maint_assets.log_cleanup.deletion import delete_planned
from maint_assets_tests.log_cleanup.logs import (
    daily_log,
    locations_of,
    plan_of,
    planned,
    planned_rows,
    single,
)
from maint_assets_tests.support.builder import TableBuilder
from maint_assets_tests.support.edits import edit_rows

ANCHOR, NEWEST = 10, 20

Damage = Callable[[TableBuilder], Any]


def _larger(row: dict[str, Any]) -> None:
    if row["add"]:
        row["add"]["size"] += 1


def _wrong(*versions: int) -> Damage:
    """Make checkpoints of these versions differ from the commits."""

    def damage(table: TableBuilder) -> None:
        for version in versions:
            edit_rows(table.log / single(version), _larger)

    return damage


def _beginning_at_3(table: TableBuilder) -> None:
    """Let the log begin with a right checkpoint that is followed by a wrong one."""
    _wrong(5)(table)
    for version in range(3):
        (table.log / f"{version:020d}.json").unlink()


def _twins(table: TableBuilder) -> None:
    """The same, with a wrong twin of the right checkpoint, which readers do not pick."""
    _beginning_at_3(table)
    _wrong(3)(table)


LOGS: dict[str, Damage] = {
    "a wrong one": _wrong(5),
    "two wrong ones": _wrong(3, 5),
    "a wrong one after the first": _beginning_at_3,
    "a wrong twin of the first": _twins,
}


@pytest.mark.slow
@pytest.mark.parametrize("what", LOGS)
def test_the_anchor_stays_the_anchor_wherever_a_cleanup_ends(tmp_path: Path, what: str) -> None:
    def first(table: TableBuilder) -> None:
        table.checkpoint()
        if what == "a wrong twin of the first":
            table.checkpoint("v2-json", parts=0)

    at = {3: first, 5: lambda table: table.checkpoint(), ANCHOR: lambda table: table.checkpoint()}
    table = daily_log(tmp_path / "t", at=at, checksums=False, features=("v2Checkpoint",))
    LOGS[what](table)
    rows, found = planned_rows(table.path)
    assert found.anchor_version == ANCHOR
    paths = rows["path"].to_pylist()

    for number in range(len(paths)):
        copy, ledger = tmp_path / str(number), tmp_path / f"ledger-{number}"
        shutil.copytree(table.path, copy)
        for path in paths[:number]:
            (copy / path).unlink()

        names, found = planned(copy)
        ledger.mkdir()
        plan = plan_of(copy, len(paths), anchor=ANCHOR)
        done = delete_planned(rows.to_batches(), plan, locations_of(plan, ledger))

        assert (found.anchor_version, len(names)) == (ANCHOR, len(paths) - number), number
        assert done.earliest_version == ANCHOR
        assert done.count("missing") == number
        assert done.count("deleted") == len(names)
