"""After an interrupt no later stage starts and nothing is retried, whenever it arrives."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("spark")]  # for its environment

PLANNING = ("snapshot", "valid_files", "listing", "diff", "compaction_bins", "expired_logs")
EXECUTING = ("deletion", "rewritten_files", "deleted_logs")
MOMENTS = ("before", "in", "after")
SIGNALS = ("SIGINT", "SIGTERM", "TERMINATE")
FEW = ("deletion:in:SIGTERM", "rewritten_files:after:TERMINATE", "deleted_logs:done:SIGINT")


def _played(directory: Path, *scenarios: str) -> list[dict[str, Any]]:
    command = [
        sys.executable,
        "-m",
        "maint_assets_tests.support.stopping",
        str(directory),
        *scenarios,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(found) == len(scenarios), done.stderr[-3000:]
    return found


def _refuse_later_stages(found: dict[str, Any]) -> None:
    """Assert that nothing started after the signal, and that completed stages are in Dagster."""
    stage, moment, sent = found["scenario"].split(":")
    is_late = moment == "in" and stage in found["materialized"]  # it arrived in the last job
    is_done = stage in EXECUTING and (is_late or moment in {"done", "after"})
    assert found["begun"][-1] == stage, found
    assert found["begun"].count(stage) == 1, found
    assert found["retried"] == [], found
    assert found["materialized"] == (found["begun"] if is_done else found["begun"][:-1]), found
    if is_done and not found["left"]:
        assert found["status"] == "SUCCESS", found
    else:
        assert found["status"] == ("CANCELED" if sent == "TERMINATE" else "FAILURE"), found
    if stage == "deletion":
        expected = ["COMPLETED"] if is_done else ["FAILED"]
        assert found["ends"] == ([] if moment == "before" else expected), found


def test_an_interrupt_at_any_moment_is_the_last_of_its_run(tmp_path: Path) -> None:
    for found in _played(tmp_path / "runs", *FEW):
        _refuse_later_stages(found)


@pytest.mark.long
@pytest.mark.parametrize("stage", EXECUTING)
def test_an_interrupt_of_each_executing_stage_that_is_done_leaves_its_result(
    tmp_path: Path, stage: str
) -> None:
    for found in _played(tmp_path / "runs", *(f"{stage}:done:{sent}" for sent in SIGNALS)):
        _refuse_later_stages(found)


@pytest.mark.long
@pytest.mark.parametrize("stage", [*PLANNING, *EXECUTING])
def test_an_interrupt_of_each_stage_at_each_moment_is_the_last_of_its_run(
    tmp_path: Path, stage: str
) -> None:
    scenarios = [f"{stage}:{moment}:{number}" for moment in MOMENTS for number in SIGNALS]

    for found in _played(tmp_path / "runs", *scenarios):
        _refuse_later_stages(found)
