"""Terminate during a deletion, by the GraphQL mutation that the button of the UI sends."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow.dataset as ds
import pytest

from maint_assets_tests.support.interrupting import Strays
from maint_assets_tests.ui.browser import INSTANCE
from maint_assets_tests.ui.webserver import ROOT, asked, ended, locations, serving

pytestmark = [pytest.mark.ui, pytest.mark.slow, pytest.mark.usefixtures("spark")]

STRAYS = 30_000
STAGES = ("snapshot", "valid_files", "listing", "diff", "deletion")
CONFIG = """
workspace: out
tables:
  - {name: orders, uri: orders, vacuum: {approval: auto, max_delete_share: 1}}
"""
LAUNCH = """
mutation($stages: [AssetKeyInput!]!) { launchRun(executionParams: {runConfigData: "{}", selector: {
  repositoryLocationName: "maint_assets", repositoryName: "__repository__",
  jobName: "__ASSET_JOB", assetSelection: $stages
}}) { __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A DAGSTER_HOME with a table of one live file and very many untracked ones."""
    (tmp_path / "dagster.yaml").write_text(INSTANCE)
    (tmp_path / "maintenance.yaml").write_text(CONFIG)
    Strays(tmp_path / "orders", STRAYS).make()
    return tmp_path


@pytest.fixture
def address(home: Path) -> Iterator[str]:
    env = {"DAGSTER_HOME": str(home), "MAINT_ASSETS_CONFIG": str(home / "maintenance.yaml")}
    command = ["dagster-webserver", "-w", str(ROOT / "workspace.yaml")]
    with serving(command, env, home / "webserver.log") as found:
        yield found


def _launched(address: str) -> str:
    assert locations(address)
    stages = [{"path": ["maintenance", "orders", stage]} for stage in STAGES]
    body: dict[str, Any] = {"query": LAUNCH, "variables": {"stages": stages}}
    answer = httpx.post(f"{address}/graphql", json=body, timeout=60).json()
    assert "data" in answer, answer
    return answer["data"]["launchRun"]["run"]["runId"]


def _wait_for_batches(home: Path) -> None:
    until = time.monotonic() + 180
    while len(list(home.glob("out/orders/deletion/*/rows/part-*.parquet"))) < 2:
        assert time.monotonic() < until, "the deletion did not begin"
        time.sleep(0.002)


def _deleted_by_ledger(home: Path) -> set[str]:
    [ledger] = home.glob("out/orders/deletion/*/rows")
    rows = ds.dataset(ledger, format="parquet").to_table().to_pylist()
    return {row["path"] for row in rows if row["outcome"] == "deleted"}


def test_terminate_cancels_the_run_and_each_deleted_path_has_its_row(
    home: Path, address: str
) -> None:
    run_id = _launched(address)
    _wait_for_batches(home)
    asked(address, f'mutation {{ terminateRun(runId: "{run_id}") {{ __typename }} }}')

    assert ended(address, after=0, seconds=90) == "CANCELED"

    strays = Strays(home / "orders", STRAYS)
    gone = strays.gone
    time.sleep(1)
    assert strays.gone == gone, "a task deleted on after the end"
    assert strays.left, "Terminate came too late to prove anything"
    assert _deleted_by_ledger(home) == gone
    newest = max((home / "orders" / "_delta_log").glob("*.json"))
    [end] = [json.loads(line)["commitInfo"] for line in newest.read_text().splitlines()]
    assert (end["operation"], end["operationParameters"]) == ("VACUUM END", {"status": "FAILED"})
    assert end["operationMetrics"]["numDeletedFiles"] == str(len(gone))
    started = asked(
        address,
        f'{{ runOrError(runId: "{run_id}") {{ ... on Run '
        "{ stepStats { stepKey status attempts { startTime } } } } }",
    )["runOrError"]["stepStats"]
    assert {step["stepKey"].rpartition("__")[2]: len(step["attempts"]) for step in started} == (
        dict.fromkeys(STAGES, 1)
    )
