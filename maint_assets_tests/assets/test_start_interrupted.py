"""A signal while Spark is starting: no process that was started for it is left."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from maint_assets_tests.support.builder import TableBuilder

SECONDS = 60


def _until(done: Path) -> None:
    deadline = time.monotonic() + SECONDS
    while not done.exists() or not done.read_text():
        assert time.monotonic() < deadline, f"{done} was not written"
        time.sleep(0.02)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("to_all", [False, True])
def test_a_java_that_has_not_answered_yet_is_ended(tmp_path: Path, to_all: bool) -> None:
    TableBuilder(tmp_path / "t").create().add("a")
    home, pid = tmp_path / "spark", tmp_path / "pid"
    submit = home / "bin" / "spark-submit"
    submit.parent.mkdir(parents=True)
    submit.write_text(f"#!/bin/sh\necho $$ > {pid}\nexec sleep 600\n")
    submit.chmod(0o755)
    command = [sys.executable, "-m", "maint_assets.cli", "vacuum", str(tmp_path / "t")]
    process = subprocess.Popen(
        [*command, "--workspace", str(tmp_path / "ws")],
        env={**os.environ, "SPARK_HOME": str(home)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A background process of a shell ignores the signal, and so do its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    _until(pid)

    (os.killpg if to_all else os.kill)(process.pid, signal.SIGINT)
    output = process.communicate(timeout=SECONDS)[1]

    java = int(pid.read_text())
    is_left = _is_running(java)
    if is_left:
        os.kill(java, signal.SIGKILL)
    assert not is_left
    assert (process.returncode, "stopped; nothing more was done" in output) == (1, True), output
