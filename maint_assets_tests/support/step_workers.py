"""A job of two branches with one worker per step; the first worker sends itself a SIGINT."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import dagster as dg

from maint_assets.assets import factory
from maint_assets.assets.chain import STAGES
from maint_assets.assets.spark_resource import spark_resource
from maint_assets.assets.stage_run import StageRun
from maint_assets.assets.stage_store import Dataset, StageResult, StageStore
from maint_assets_tests.support.stepping import KEEP, Nothing, built, idle

NOTES = "MAINT_ASSETS_BEGUN"
"""The environment variable for the file to which each stage writes its name."""

BRANCHES = ("compaction_bins", "rewritten_files", "expired_logs", "deleted_logs")


def worked(run: StageRun, *_: Any) -> StageResult:
    """The work of a stage: record its start; the first stage interrupts its worker."""
    run.refuse_stopping()
    notes = Path(os.environ[NOTES])
    is_first = not notes.exists()
    with notes.open("a") as file:
        file.write(f"{run.stage}\n")
    if is_first:
        os.kill(os.getpid(), signal.SIGINT)
    return run.result(Dataset(0, "digest", {}), Nothing())


def branches() -> dg.JobDefinition:
    """A job of both branches, one step at a time."""
    factory.STAGES = {name: idle(stage, worked) for name, stage in STAGES.items()}
    store = StageStore(base_uri=os.environ[NOTES] + ".out", pyspark=spark_resource({}))
    keys = [dg.AssetKey([KEEP, "t", name]) for name in BRANCHES]
    defs = dg.Definitions(
        assets=built(),
        jobs=[dg.define_asset_job("branches", selection=keys)],
        resources={factory.RESOURCE: store},
        executor=dg.multiprocess_executor.configured({"max_concurrent": 1}),
    )
    return defs.resolve_job_def("branches")
