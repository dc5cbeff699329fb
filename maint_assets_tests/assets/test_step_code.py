"""A SIGINT in Dagster's code around a stage: nothing starts after it, what was done is recorded."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from maint_assets.assets import factory
from maint_assets_tests.support import step_workers

pytestmark = pytest.mark.slow

ALL = {"compaction_bins", "rewritten_files"}


def _played(every: int, *files: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "maint_assets_tests.support.stepping", str(every), *files]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    *found, last = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert (last["where"], last["status"]) == (None, "SUCCESS")
    return found


def _refuse_more(found: dict[str, Any]) -> None:
    assert len(found["begun"]) == len(set(found["begun"])), found
    assert len(found["begun"]) == found["begun_before"], found
    # Between our result and its record Dagster raises at once: only there the result is lost.
    is_held = found["where"].startswith("maint_assets/")
    assert set(found["materialized"]) >= set(found["done"] if is_held else ()), found
    whole = set(found["materialized"]) == ALL
    assert found["status"] in ({"SUCCESS", "FAILURE"} if whole else {"FAILURE"}), found


def test_nothing_begins_after_a_signal_in_the_code_of_a_step() -> None:
    found = _played(121)

    assert len(found) > 10
    for each in found:
        _refuse_more(each)


def test_nothing_begins_after_a_signal_where_dagster_would_retry() -> None:
    for each in _played(3, "dagster/_core/execution/plan/utils.py"):
        _refuse_more(each)


@pytest.mark.long
def test_nothing_begins_after_a_signal_at_any_line_of_a_step() -> None:
    for each in _played(1):
        _refuse_more(each)


def test_a_signal_to_one_worker_keeps_other_branches_from_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = tmp_path / "begun"
    # The job is built in this process too, which replaces the stages in the factory.
    monkeypatch.setattr(factory, "STAGES", factory.STAGES)
    monkeypatch.setenv(step_workers.NOTES, str(begun))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))

    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        result = dg.execute_job(
            dg.reconstructable(step_workers.branches), instance, raise_on_error=False
        )

    assert not result.success
    assert len(begun.read_text().split()) == 1, begun.read_text()
