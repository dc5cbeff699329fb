"""A killed deletion: its ledger is correct, and the next run deletes the rest."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from maint_assets_tests.support.interrupting import Command, Strays, when_still

STRAYS = 20_000


@pytest.mark.long
@pytest.mark.jvm
@pytest.mark.slow
def test_killed_deletion_has_a_true_ledger_and_is_finished_by_the_next(tmp_path: Path) -> None:
    strays = Strays(tmp_path / "table", STRAYS).make()
    vacuum = Command("vacuum", strays.table, "deletion")
    process = vacuum.in_the_middle(batches=3)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    when_still(vacuum.parts)

    recorded, left = vacuum.rows(), strays.left
    assert recorded
    assert all(row["outcome"] == "deleted" for row in recorded)
    assert not any((strays.table / row["path"]).exists() for row in recorded)
    assert left, "the kill came too late to prove anything"

    done = subprocess.run(vacuum.arguments("--json"), capture_output=True, text=True, check=True)

    report = json.loads(done.stdout)
    assert report["candidates"]["files"] == report["deleted"]["files"] == len(left)
    assert not strays.left
    assert (strays.table / "live.parquet").exists()
