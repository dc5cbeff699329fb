"""A compaction that is killed between two steps: nothing is lost, and the next run finishes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from maint_assets_tests.builder import TableBuilder

DAYS = 40

STEPS = {
    "a new file is written": "table/day=*/part-*.parquet",
    "a commit is written": "table/_delta_log/*[4-7][1-9].json",
    "a batch is recorded": "ws/*/rewritten_files/*/rows/part-*.parquet",
}


def rows(table: Path) -> list[Any]:
    return sorted(DeltaTable(table).to_pyarrow_table().to_pylist(), key=repr)


def config(folder: Path) -> Path:
    """Commits of one bin each."""
    file = folder / "maintenance.yaml"
    file.write_text(
        "workspace: ./ws\n"
        "tables:\n- {name: t, uri: ./table, compaction: {max_bytes_per_commit: 1}}\n"
    )
    return file


def killed(command: list[str], folder: Path, step: str) -> None:
    """Kills the whole process group once the step is seen."""
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    deadline = time.monotonic() + 180
    while not list(folder.glob(step)) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    assert process.poll() is None, "the kill came too late to prove anything"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    time.sleep(3)  # Spark's Python workers notice that Spark is gone


@pytest.mark.slow
@pytest.mark.parametrize(
    "step",
    [
        pytest.param("a new file is written", marks=pytest.mark.long),
        "a commit is written",
        pytest.param("a batch is recorded", marks=pytest.mark.long),
    ],
)
def test_rows_stay_and_the_next_run_finishes(step: str, tmp_path: Path) -> None:
    table = TableBuilder(tmp_path / "table").create(partition_columns=["day"])
    for day in range(DAYS):
        table.commit(
            [table.added(f"{file}.parquet", partition={"day": f"{day:02}"}) for file in range(3)],
            operation="WRITE",
        )
    before = rows(table.path)
    run = [sys.executable, "-m", "maint_assets.cli", "run", str(config(tmp_path))]
    command = [*run, "--only", "compaction", "--execute", "--json"]

    killed(command, tmp_path, STEPS[step])

    assert rows(table.path) == before
    left = DeltaTable(table.path).get_add_actions().num_rows
    assert left > DAYS, "the kill came too late to prove anything"
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    report = json.loads(done.stdout)["tables"]["t"]["compaction"]
    assert rows(table.path) == before
    assert DeltaTable(table.path).get_add_actions().num_rows == DAYS
    assert report["files_removed"] - report["files_added"] == left - DAYS
