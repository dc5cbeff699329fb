"""A deletion that is interrupted, however: it stops, and each deleted path has its row."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from maint_assets_tests.builder import TableBuilder

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("spark")]

STRAYS = 30_000


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """One live file, and very many that may go."""
    table = tmp_path / "table"
    TableBuilder(table).create().add("live.parquet")
    for number in range(STRAYS):
        (table / f"stray-{number:05d}.parquet").touch()
        os.utime(table / f"stray-{number:05d}.parquet", (1.6e9, 1.6e9))
    return table


def _started(table: Path) -> subprocess.Popen[str]:
    options = ["--execute", "--yes", "--workspace", str(table.parent / "ws")]
    command = [sys.executable, "-m", "maint_assets.cli", "vacuum", str(table), *options]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def _in_the_middle(table: Path) -> subprocess.Popen[str]:
    """The process once some batches are recorded."""
    process, deadline = _started(table), time.monotonic() + 180
    while process.poll() is None and time.monotonic() < deadline:
        if len(list(table.parent.glob("ws/*/deletion/*/rows/part-*.parquet"))) >= 2:
            break
        time.sleep(0.002)
    return process


def _left(table: Path) -> set[str]:
    return {path.name for path in table.glob("stray-*")}


def _deleted_by_ledger(table: Path) -> set[str]:
    rows = [
        row
        for ledger in table.parent.glob("ws/*/deletion/*/rows")
        for row in ds.dataset(ledger, format="parquet").to_table().to_pylist()
    ]
    assert all(row["outcome"] in {"deleted", "skipped"} for row in rows)
    return {row["path"] for row in rows if row["outcome"] == "deleted"}


def _gone(table: Path) -> set[str]:
    return {f"stray-{number:05d}.parquet" for number in range(STRAYS)} - _left(table)


def _last_commit(table: Path) -> dict[str, object]:
    newest = max((table / "_delta_log").glob("*.json"))
    lines = [json.loads(line) for line in newest.read_text().splitlines()]
    return next(line["commitInfo"] for line in lines if "commitInfo" in line)


@pytest.mark.parametrize(
    ("number", "to_all"),
    [
        (signal.SIGTERM, False),
        pytest.param(signal.SIGINT, True, marks=pytest.mark.long),
        pytest.param(signal.SIGHUP, True, marks=pytest.mark.long),
        pytest.param(signal.SIGINT, False, marks=pytest.mark.long),
        pytest.param(signal.SIGTERM, True, marks=pytest.mark.long),
        pytest.param(signal.SIGHUP, False, marks=pytest.mark.long),
    ],
)
def test_a_signal_stops_all_tasks_before_the_end_is_written(
    table: Path, number: signal.Signals, to_all: bool
) -> None:
    process = _in_the_middle(table)
    for _ in range(2):  # the second must not break the end
        (os.killpg if to_all else os.kill)(process.pid, number)
        time.sleep(0.05)
    said, _ = process.communicate(timeout=60)
    gone = _gone(table)
    time.sleep(1)

    assert _gone(table) == gone == _deleted_by_ledger(table), said
    assert _left(table), "the signal came too late to prove anything"
    end = _last_commit(table)
    assert end["operation"] == "VACUUM END"
    assert end["operationParameters"] == {"status": "FAILED"}
    assert end["operationMetrics"]["numDeletedFiles"] == str(len(gone))  # type: ignore[index]
    assert process.returncode == 1
    assert f"stopped: {len(gone):,} of {STRAYS:,} paths were deleted" in " ".join(said.split())
    assert "KeyError" not in said


def test_what_a_kill_leaves_open_is_resolved_by_the_next_run(table: Path) -> None:
    process = _in_the_middle(table)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    before = set[str]()
    while (gone := _gone(table)) != before:
        before = gone
        time.sleep(2)
    assert _left(table), "the kill came too late to prove anything"

    said, _ = _started(table).communicate(timeout=180)

    assert not _left(table), said
    assert _deleted_by_ledger(table) == _gone(table)
    assert not list(table.parent.glob("ws/*/deletion/*/rows/_intents/*.arrow"))
