"""An interrupted deletion: it stops on any signal, and each deleted path has its row."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

from maint_assets_tests.support.interrupting import Command, Strays, signalled, when_still

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("spark")]

STRAYS = 30_000


@pytest.fixture
def strays(tmp_path: Path) -> Strays:
    return Strays(tmp_path / "table", STRAYS).make()


@pytest.fixture
def vacuum(strays: Strays) -> Command:
    return Command("vacuum", strays.table, "deletion")


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
    strays: Strays, vacuum: Command, number: signal.Signals, to_all: bool
) -> None:
    process = vacuum.in_the_middle()
    output = signalled(process, number, to_all=to_all, times=2)  # the second must not harm
    gone = strays.gone
    time.sleep(1)

    assert strays.gone == gone == vacuum.deleted(), output
    assert strays.left, "the signal came too late to prove anything"
    end = _last_commit(strays.table)
    assert end["operation"] == "VACUUM END"
    assert end["operationParameters"] == {"status": "FAILED"}
    assert end["operationMetrics"]["numDeletedFiles"] == str(len(gone))  # type: ignore[index]
    assert process.returncode == 1
    assert f"stopped: {len(gone):,} of {STRAYS:,} paths were deleted" in " ".join(output.split())
    assert "KeyError" not in output


def test_what_a_kill_leaves_open_is_resolved_by_the_next_run(
    strays: Strays, vacuum: Command
) -> None:
    process = vacuum.in_the_middle()
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    when_still(lambda: strays.gone)
    assert strays.left, "the kill came too late to prove anything"

    output, _ = vacuum.started().communicate(timeout=180)

    assert not strays.left, output
    assert vacuum.deleted() == strays.gone
    assert not vacuum.open_batches()
