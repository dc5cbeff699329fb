"""A compaction in a process that is killed."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from maint_assets_tests.support.killing import MODULE


def settings(step: str) -> dict[str, Any]:
    """The settings of both runs of a test with this step."""
    return {"max_bytes_per_commit": 1} | ({"zorder_by": ["id"]} if "ordered" in step else {})


def killed(folder: Path, step: str, asked: dict[str, Any] | None = None) -> None:
    """Run the command in a process that is killed at the step, and that ends for no other reason.

    ``asked`` replaces the settings of the step.
    """
    config = folder / "maintenance.yaml"
    config.write_text(
        "workspace: ./ws\n"
        f"spark: {{spark.python.daemon.module: {MODULE}}}\n"
        f"tables:\n- {{name: t, uri: ./table, compaction: {json.dumps(asked or settings(step))}}}\n"
    )
    arguments = ["run", str(config), "--only", "compaction", "--execute", "--json"]
    process = subprocess.run(
        [sys.executable, "-m", MODULE, step, *arguments],
        capture_output=True,
        text=True,
        start_new_session=True,
        timeout=180,
        check=False,
    )
    assert process.returncode == -signal.SIGKILL, process.stderr
