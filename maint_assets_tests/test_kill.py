"""A deletion that is killed: what its ledger says is true, and the next run finishes the rest."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from maint_assets_tests.builder import TableBuilder

STRAYS = 20_000


def _command(table: Path, workspace: Path) -> list[str]:
    options = ["--execute", "--json", "--workspace", str(workspace)]
    return [sys.executable, "-m", "maint_assets.cli", "vacuum", str(table), *options]


def _killed_in_the_middle(command: list[str], workspace: Path) -> list[Path]:
    """Kills the whole process group once some batches are recorded; the parts of the ledger."""
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    deadline = time.monotonic() + 180
    parts: list[Path] = []
    while len(parts) < 3 and process.poll() is None and time.monotonic() < deadline:
        parts = list(workspace.glob("*/deletion/*/rows/part-*.parquet"))
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return _when_all_is_still(workspace)


def _when_all_is_still(workspace: Path) -> list[Path]:
    """The parts of the ledger once Spark's Python workers have noticed that Spark is gone."""
    before: list[Path] = []
    while (parts := list(workspace.glob("*/deletion/*/rows/part-*.parquet"))) != before:
        before = parts
        time.sleep(2)
    return parts


@pytest.mark.slow
def test_killed_deletion_has_a_true_ledger_and_is_finished_by_the_next(tmp_path: Path) -> None:
    table = tmp_path / "table"
    TableBuilder(table).create().add("live.parquet")
    for number in range(STRAYS):
        (table / f"stray-{number:05d}.parquet").touch()
        os.utime(table / f"stray-{number:05d}.parquet", (1.6e9, 1.6e9))

    parts = _killed_in_the_middle(_command(table, tmp_path / "ws"), tmp_path / "ws")

    recorded = [row for part in parts for row in pq.read_table(part).to_pylist()]
    left = list(table.glob("stray-*"))
    assert recorded
    assert all(row["outcome"] == "deleted" for row in recorded)
    assert not any((table / row["path"]).exists() for row in recorded)
    assert left, "the kill came too late to prove anything"

    done = subprocess.run(
        _command(table, tmp_path / "ws"), capture_output=True, text=True, check=True
    )

    report = json.loads(done.stdout)
    assert report["candidates"]["files"] == report["deleted"]["files"] == len(left)
    assert not list(table.glob("stray-*"))
    assert (table / "live.parquet").exists()
