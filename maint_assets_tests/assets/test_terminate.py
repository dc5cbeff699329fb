"""Terminate ends a run whose later stage hangs in a long Spark job."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

END_SECONDS = 20

SCRIPT = """
import sys, time
import dagster as dg
from maint_assets.assets.spark_resource import session, spark_resource, stage

resource = spark_resource({"spark.master": "local[1]"})

@dg.asset
def first(context: dg.AssetExecutionContext) -> None:
    with stage(lambda: session(resource), context.run.run_id, "first") as spark:
        spark.spark.range(1).count()

def slow(batches):
    for batch in batches:
        time.sleep(300)
        yield batch

@dg.asset(deps=[first])
def hangs(context: dg.AssetExecutionContext) -> None:
    with stage(lambda: session(resource), context.run.run_id, "hangs") as spark:
        print("HANGS", flush=True)
        spark.spark.range(1).mapInArrow(slow, "id long").collect()

with dg.DagsterInstance.ephemeral() as instance:
    try:
        dg.materialize([first, hangs], instance=instance)
    finally:
        print("ENDED", *[run.status.value for run in instance.get_runs()], flush=True)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("spark")  # for its environment: Java and the workers' Python
def test_an_interrupt_ends_a_stage_that_hangs_in_spark(tmp_path: Path) -> None:
    script = tmp_path / "hanging.py"
    script.write_text(SCRIPT)
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, script], stdout=subprocess.PIPE, stderr=log, text=True, cwd=tmp_path
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "HANGS\n", (tmp_path / "log").read_text()[-2000:]
            time.sleep(3)
            started = time.monotonic()
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=60)
            seconds = time.monotonic() - started
        finally:
            process.kill()

    assert out.startswith("ENDED")
    assert "SUCCESS" not in out
    assert seconds < END_SECONDS
