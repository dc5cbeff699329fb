"""An interrupted log cleanup: it stops, each deleted file has its row, a rerun finishes."""

import os
import signal
import time
import uuid
from pathlib import Path

import pytest

from maint_assets_tests.oracles import delta_rs
from maint_assets_tests.support.interrupting import Command, make_old, signalled, when_still
from maint_assets_tests.support.log_builder import LogBuilder

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("spark")]

LEFT_OVER = 20_000
"""Temporary files of writers in the log: so many that the signal comes in the middle."""

VERSIONS = 21
ANCHOR = 10


@pytest.fixture
def cleanup(tmp_path: Path) -> Command:
    """The command that cleans a log with a checkpoint and very many temporary files."""
    ages = range(60, 60 - 2 * VERSIONS, -2)
    log = LogBuilder(tmp_path / "table").commits(ages, checksums=True).checkpoint(ANCHOR)
    for _ in range(LEFT_OVER):
        make_old(log.log / f"_commit_{uuid.uuid4()}.json.tmp")
    return Command("clean-log", log.path, "deleted_logs")


def _planned(cleanup: Command) -> set[str]:
    return {row["path"] for row in cleanup.rows("expired_logs")}


def _gone(cleanup: Command) -> set[str]:
    return {path for path in _planned(cleanup) if not (cleanup.table / path).exists()}


def _finishes(cleanup: Command, before: list[object]) -> None:
    """Assert that the next run deletes the rest, and that each planned file then has its row."""
    output, _ = cleanup.started().communicate(timeout=180)
    assert _gone(cleanup) == _planned(cleanup) == cleanup.deleted(), output
    assert len(_planned(cleanup)) > LEFT_OVER + ANCHOR
    assert delta_rs.rows(cleanup.table) == before
    assert not cleanup.open_batches()


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
    cleanup: Command, number: signal.Signals, to_all: bool
) -> None:
    before = delta_rs.rows(cleanup.table)
    process = cleanup.in_the_middle()
    output = signalled(process, number, to_all=to_all)
    gone = _gone(cleanup)
    time.sleep(1)

    assert _gone(cleanup) == gone == cleanup.deleted(), output
    assert gone != _planned(cleanup), "the signal came too late to prove anything"
    assert process.returncode == 1
    planned = len(_planned(cleanup))
    assert f"stopped: {len(gone):,} of {planned:,} paths were deleted" in " ".join(output.split())
    assert delta_rs.rows(cleanup.table) == before
    _finishes(cleanup, before)


@pytest.mark.long
def test_what_a_kill_leaves_open_is_resolved_by_the_next_run(cleanup: Command) -> None:
    before = delta_rs.rows(cleanup.table)
    process = cleanup.in_the_middle()
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    when_still(lambda: _gone(cleanup))
    assert _gone(cleanup) != _planned(cleanup), "the kill came too late to prove anything"

    _finishes(cleanup, before)
