"""Runs of all three branches in one process, each interrupted at one moment of one stage.

    python -m maint_assets_tests.support.stopping DIRECTORY STAGE:MOMENT:SIGNAL ...

Prints one JSON line with the result of each run. Moments: ``before`` the first Spark job of the
stage, ``in`` a job, ``done`` when all is deleted or committed but not yet reported, ``after`` its
work and before its materialisation. SIGNAL may be TERMINATE: what the UI's button does to the run.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg

from maint_assets.assets import factory
from maint_assets.assets.chain import STAGES, Stage
from maint_assets.assets.jobs import executed_keys, stage_store
from maint_assets.assets.stage_run import StageRun
from maint_assets.assets.stages import log_cleanup
from maint_assets.compaction import execution
from maint_assets.config import (
    CompactionSettings,
    LogCleanupSettings,
    Maintenance,
    TableSettings,
    VacuumSettings,
)
from maint_assets.vacuum import history
from maint_assets_tests.support.log_builder import LogBuilder

RETRIES = dg.RetryPolicy(max_retries=2, delay=0.1)
WAIT_SECONDS = 60
END = "VACUUM END"

LAST_ACTS: dict[str, tuple[Any, str]] = {
    "deletion": (history, "end"),
    "rewritten_files": (execution, "commit_rewrites"),
    "deleted_logs": (log_cleanup, "ledger_parts"),
}
"""The call of each executing stage after which only its result remains to be reported."""


def send(run: StageRun, name: str) -> None:
    """Send a signal to this process; TERMINATE as Dagster does it."""
    if name == "TERMINATE":
        found = run.instance.get_run_by_id(run.run_ids[0])
        assert found is not None
        run.instance.report_run_canceling(found)
    os.kill(os.getpid(), signal.SIGINT if name == "TERMINATE" else signal.Signals[name])


def signals_in_a_job(run: StageRun, name: str, ended: threading.Event) -> None:
    """Send the signal as soon as Spark has an active job."""
    tracker = run.store.spark.sparkContext.statusTracker()
    until = time.monotonic() + WAIT_SECONDS
    while not ended.is_set() and time.monotonic() < until:
        if tracker.getActiveJobsIds():
            send(run, name)
            return
        time.sleep(0.001)


@contextlib.contextmanager
def signal_when_done(run: StageRun, name: str) -> Iterator[None]:
    """Send the signal after the last call of the stage in this context."""
    owner, act = LAST_ACTS[run.stage]
    call = getattr(owner, act)

    def acted(*args: Any, **kwargs: Any) -> Any:
        found = call(*args, **kwargs)
        send(run, name)
        return found

    setattr(owner, act, acted)
    try:
        yield
    finally:
        setattr(owner, act, call)


def interrupted(
    run: StageRun,
    *rest: Any,
    work: Callable[..., Any],
    moment: str,
    name: str,
    begun: list[str],
) -> Any:
    """The work of a stage, with a signal at its moment; the stage is appended to ``begun``."""
    begun.append(run.stage)
    ended = threading.Event()
    if moment == "before":
        send(run, name)
    if moment == "in":
        threading.Thread(target=signals_in_a_job, args=(run, name, ended)).start()
    is_done = signal_when_done(run, name) if moment == "done" else contextlib.nullcontext()
    try:
        with is_done:
            made = work(run, *rest)
    finally:
        ended.set()
    if moment == "after":
        send(run, name)
    return made


def with_signal(stage: Stage, begun: list[str], *, moment: str, name: str) -> Stage:
    """A stage that records its start, and sends the signal at the moment; no signal if empty."""
    step = "compute" if stage.compute is not None else "execute"
    work = getattr(stage, step)
    played = partial(interrupted, work=work, moment=moment, name=name, begun=begun)
    return replace(stage, **{step: played})


def ends(path: Path) -> list[str]:
    """The statuses in the VACUUM END commits of a table."""
    lines = [
        line for log in path.glob("_delta_log/*.json") for line in log.read_text().splitlines()
    ]
    found = [json.loads(line).get("commitInfo", {}) for line in lines]
    return [each["operationParameters"]["status"] for each in found if each.get("operation") == END]


def table(path: Path) -> TableSettings:
    """A table with something to do for each branch, which all run unattended."""
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
    """The result of a run that was interrupted."""
    name, moment, sent = scenario
    begun: list[str] = []
    factory.STAGES = {
        each: with_signal(stage, begun, moment=moment if each == name else "", name=sent)
        for each, stage in STAGES.items()
    }
    one = table(directory / "-".join(scenario))
    assets = factory.build_maintenance_assets(one, retries=RETRIES)
    stages = executed_keys(one, settings.key_prefix)
    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize(
            assets,
            selection=stages,
            instance=instance,
            resources={factory.RESOURCE: store},
            raise_on_error=False,
        )
        [run] = instance.get_runs()
        return {
            "scenario": ":".join(scenario),
            "begun": begun,
            "left": len(stages) - len(begun),
            "ends": ends(Path(one.uri)),
            "status": run.status.value,
            "retried": [e.step_key for e in result.all_events if e.is_step_up_for_retry],
            "materialized": [
                e.asset_key.path[-1]
                for e in result.all_events
                if e.is_step_materialization and e.asset_key
            ],
        }


def main(directory: Path, scenarios: list[str]) -> None:
    """Run each scenario on its own table."""
    directory.mkdir(exist_ok=True)
    settings = Maintenance(workspace=str(directory / "ws"), tables=())
    store = stage_store(settings)
    for each in scenarios:
        name, moment, sent = each.split(":")
        found = played(directory, settings, store, scenario=(name, moment, sent))
        print(json.dumps(found), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
