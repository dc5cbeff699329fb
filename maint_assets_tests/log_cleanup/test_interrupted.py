"""A log cleanup that is interrupted: it stops, each deleted file has its row, a rerun finishes."""

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from maint_assets_tests.log_builder import LogBuilder
from maint_assets_tests.oracles import delta_rs

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("spark")]

LEFT_OVER = 20_000
"""Temporary files of writers in the log: enough to be in the middle when the signal comes."""

VERSIONS = 21
ANCHOR = 10


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A log that begins with a checkpoint afterwards, and very many temporary files in it."""
    ages = range(60, 60 - 2 * VERSIONS, -2)
    log = LogBuilder(tmp_path / "table").commits(ages, checksums=True).checkpoint(ANCHOR)
    for _ in range(LEFT_OVER):
        path = log.log / f"_commit_{uuid.uuid4()}.json.tmp"
        path.touch()
        os.utime(path, (1.6e9, 1.6e9))
    return log.path


def _started(table: Path) -> subprocess.Popen[str]:
    options = ["--execute", "--yes", "--workspace", str(table.parent / "ws")]
    command = [sys.executable, "-m", "maint_assets.cli", "clean-log", str(table), *options]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def _in_the_middle(table: Path) -> subprocess.Popen[str]:
    """The process once some batches are recorded."""
    process, deadline = _started(table), time.monotonic() + 180
    while process.poll() is None and time.monotonic() < deadline:
        if len(list(table.parent.glob("ws/*/deleted_logs/*/rows/part-*.parquet"))) >= 2:
            break
        time.sleep(0.002)
    return process


def _rows(table: Path, stage: str) -> list[dict[str, str]]:
    return [
        row
        for rows in table.parent.glob(f"ws/*/{stage}/*/rows")
        if list(rows.glob("part-*.parquet"))
        for row in ds.dataset(rows, format="parquet").to_table().to_pylist()
    ]


def _deleted_by_ledger(table: Path) -> set[str]:
    rows = _rows(table, "deleted_logs")
    assert all(row["outcome"] in {"deleted", "skipped"} for row in rows)
    return {row["path"] for row in rows if row["outcome"] == "deleted"}


def _planned(table: Path) -> set[str]:
    return {row["path"] for row in _rows(table, "expired_logs")}


def _gone(table: Path) -> set[str]:
    return {path for path in _planned(table) if not (table / path).exists()}


def _finishes(table: Path, before: list[object]) -> None:
    """The next run deletes what was left, and each planned file has its row then."""
    said, _ = _started(table).communicate(timeout=180)
    assert _gone(table) == _planned(table) == _deleted_by_ledger(table), said
    assert len(_planned(table)) > LEFT_OVER + ANCHOR
    assert delta_rs.rows(table) == before
    assert not list(table.parent.glob("ws/*/deleted_logs/*/rows/_intents/*.arrow"))


@pytest.mark.parametrize(
    ("number", "to_all"),
    [
        (signal.SIGTERM, False),
        pytest.param(signal.SIGINT, True, marks=pytest.mark.long),
        pytest.param(signal.SIGHUP, True, marks=pytest.mark.long),
        pytest.param(signal.SIGINT, False, marks=pytest.mark.long),
        pytest.param(signal.SIGHUP, False, marks=pytest.mark.long),
    ],
)
def test_a_signal_stops_the_cleanup_and_the_next_run_finishes(
    table: Path, number: signal.Signals, to_all: bool
) -> None:
    before = delta_rs.rows(table)
    process = _in_the_middle(table)
    (os.killpg if to_all else os.kill)(process.pid, number)
    said, _ = process.communicate(timeout=60)
    gone = _gone(table)
    time.sleep(1)

    assert _gone(table) == gone == _deleted_by_ledger(table), said
    assert gone != _planned(table), "the signal came too late to prove anything"
    assert process.returncode == 1
    planned = len(_planned(table))
    assert f"stopped: {len(gone):,} of {planned:,} paths were deleted" in " ".join(said.split())
    assert delta_rs.rows(table) == before
    _finishes(table, before)


@pytest.mark.long
def test_what_a_kill_leaves_open_is_resolved_by_the_next_run(table: Path) -> None:
    before = delta_rs.rows(table)
    process = _in_the_middle(table)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    earlier: set[str] | None = None
    while (gone := _gone(table)) != earlier:
        earlier = gone
        time.sleep(2)
    assert gone != _planned(table), "the kill came too late to prove anything"

    _finishes(table, before)
