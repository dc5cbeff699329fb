"""Kill -9 after each class of deletions: every kept version stays readable, a rerun finishes."""

import signal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from maint_assets.log_cleanup.deletion import delete_planned
from maint_assets.log_cleanup.expired_logs import ORDER
from maint_assets_tests.log_cleanup.logs import (
    daily_log,
    locations_of,
    plan_of,
    planned,
    planned_rows,
)
from maint_assets_tests.oracles import delta_rs
from maint_assets_tests.support.builder import TableBuilder
from maint_assets_tests.support.killing import Step, exit_of_killed

UUID = "01234567-89ab-cdef-0123-456789abcdef"
ANCHOR, NEWEST = 10, 20


def _log_of_every_kind(path: Path) -> TableBuilder:
    at = {
        3: lambda table: table.checkpoint(),
        5: lambda table: table.checkpoint("v2-json", parts=2),
        ANCHOR: lambda table: table.checkpoint("v2-parquet", parts=2),
        18: lambda table: table.checkpoint("v2-json", parts=2),
    }
    builder = daily_log(path, at=at, features=("v2Checkpoint",))
    (builder.log / "_staged_commits").mkdir()
    names = (
        f"{0:020d}.{4:020d}.compacted.json",
        f"_commit_{UUID}.json.tmp",
        f"_staged_commits/{9:020d}.{UUID}.json",
        f".{2:020d}.json.crc",
        f"{4:020d}.checkpoint.{1:010d}.{2:010d}.parquet",
    )
    for name in names:
        builder.write_log(name, "x").age(f"_delta_log/{name}", 30)
    return builder


def _kept(path: Path) -> dict[int, Any]:
    """The files of each kept version by delta-rs; for some versions their rows."""
    return {
        version: delta_rs.rows(path, version)
        if version in {ANCHOR, NEWEST}
        else sorted(DeltaTable(path, version=version).file_uris())
        for version in range(ANCHOR, NEWEST + 1)
    }


@pytest.mark.slow
@pytest.mark.parametrize("kind", ORDER)
def test_every_kept_version_is_readable_when_all_is_killed_after_a_class(tmp_path: Path, kind: str):
    path, ledger = tmp_path / "table", tmp_path / "ledger"
    ledger.mkdir()
    builder = _log_of_every_kind(path)
    before = _kept(path)
    rows, found = planned_rows(path)
    kinds = rows["kind"].to_pylist()
    assert (found.anchor_version, set(kinds)) == (ANCHOR, set(ORDER))
    plan = plan_of(path, rows.num_rows, anchor=ANCHOR)
    deletion = (rows.to_batches(), plan, locations_of(plan, ledger))
    killed_at = kinds.index(kind) + kinds.count(kind) - 1
    step = Step("maint_assets.storage.write:delete_log_file", "before", nth=killed_at + 1)

    assert exit_of_killed(step, delete_planned, *deletion) == -signal.SIGKILL

    left = [row["path"] for row in rows.to_pylist() if (path / row["path"]).exists()]
    assert len(left) == rows.num_rows - killed_at
    assert _kept(path) == before
    again, found = planned(path)
    assert {f"_delta_log/{name}" for name in again} == set(left)
    assert found.anchor_version == ANCHOR
    delete_planned(*deletion)
    assert _kept(path) == before
    assert planned(path)[1].stop_reason == "nothing_to_delete"
    assert (builder.log / f"{ANCHOR:020d}.json").exists()
