"""Runs of all three branches in one process, each interrupted at one moment of one stage.

    python -m maint_assets_tests.stopping DIRECTORY STAGE:MOMENT:SIGNAL ...

Prints a JSON line for each: what the run came to. Moments: ``before`` the first Spark job of the
stage, ``in`` a job, ``after`` its work and before its materialisation.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg

from maint_assets.assets import factory
from maint_assets.assets.jobs import executed_keys, stage_store
from maint_assets.assets.run import StageRun
from maint_assets.assets.stages import STAGES, Stage
from maint_assets.config import (
    CompactionSettings,
    LogCleanupSettings,
    Maintenance,
    TableSettings,
    VacuumSettings,
)
from maint_assets_tests.log_builder import LogBuilder

RETRIES = dg.RetryPolicy(max_retries=2, delay=0.1)
WAIT_SECONDS = 60


def signals_in_a_job(run: StageRun, number: int, ended: threading.Event) -> None:
    """Sends the signal as soon as Spark has an active job."""
    tracker = run.store.spark.sparkContext.statusTracker()
    until = time.monotonic() + WAIT_SECONDS
    while not ended.is_set() and time.monotonic() < until:
        if tracker.getActiveJobsIds():
            os.kill(os.getpid(), number)
            return
        time.sleep(0.001)


def interrupted(
    run: StageRun,
    *rest: Any,
    work: Callable[..., Any],
    moment: str,
    number: int,
    begun: list[str],
) -> Any:
    """The work of a stage, with a signal at its moment; ``begun`` gets the stage each time."""
    begun.append(run.stage)
    ended = threading.Event()
    if moment == "before":
        os.kill(os.getpid(), number)
    if moment == "in":
        threading.Thread(target=signals_in_a_job, args=(run, number, ended)).start()
    try:
        made = work(run, *rest)
    finally:
        ended.set()
    if moment == "after":
        os.kill(os.getpid(), number)
    return made


def with_signal(stage: Stage, begun: list[str], *, moment: str, number: int) -> Stage:
    """A stage that notes its begin, and sends the signal at the moment; none where it is empty."""
    name = "compute" if stage.compute is not None else "execute"
    work = getattr(stage, name)
    played = partial(interrupted, work=work, moment=moment, number=number, begun=begun)
    return replace(stage, **{name: played})


def table(path: Path) -> TableSettings:
    """A table on which each branch finds something to do, and does it unattended."""
    log = LogBuilder(path).commits(range(60, 18, -2), checksums=True).checkpoint(10)
    log.table.stray("stray.parquet", age_days=20)
    return TableSettings(
        name="t",
        uri=str(path),
        vacuum=VacuumSettings(approval="auto", max_delete_share=1),
        compaction=CompactionSettings(approval="auto"),
        log_cleanup=LogCleanupSettings(approval="auto"),
    )


def played(
    directory: Path, settings: Maintenance, store: Any, *, scenario: tuple[str, str, str]
) -> dict[str, Any]:
    """What a run came to that was interrupted."""
    name, moment, number = scenario
    begun: list[str] = []
    factory.STAGES = {
        each: with_signal(
            stage, begun, moment=moment if each == name else "", number=signal.Signals[number]
        )
        for each, stage in STAGES.items()
    }
    one = table(directory / "-".join(scenario))
    assets = factory.build_maintenance_assets(one, retries=RETRIES)
    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize(
            assets,
            selection=executed_keys(one, settings.key_prefix),
            instance=instance,
            resources={factory.RESOURCE: store},
            raise_on_error=False,
        )
        [run] = instance.get_runs()
        return {
            "scenario": ":".join(scenario),
            "begun": begun,
            "status": run.status.value,
            "retried": [e.step_key for e in result.all_events if e.is_step_up_for_retry],
            "materialized": [
                e.asset_key.path[-1]
                for e in result.all_events
                if e.is_step_materialization and e.asset_key
            ],
        }


def main(directory: Path, scenarios: list[str]) -> None:
    """Plays each scenario on a table of its own."""
    directory.mkdir(exist_ok=True)
    settings = Maintenance(workspace=str(directory / "ws"), tables=())
    store = stage_store(settings)
    for each in scenarios:
        name, moment, number = each.split(":")
        found = played(directory, settings, store, scenario=(name, moment, number))
        print(json.dumps(found), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
