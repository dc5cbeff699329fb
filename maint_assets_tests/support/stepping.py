"""Runs of a planning and an executing stage without work, with a SIGINT at lines of Dagster's code.

    python -m maint_assets_tests.support.stepping EVERY [FILE ...]

Sends the signal at the first line that Dagster or we execute around a stage, in the next run
EVERY lines later, and so on to the end; with FILEs, only lines of these files count. Prints one
JSON line per run.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from types import FrameType
from typing import Any

import dagster as dg

from maint_assets.assets import factory
from maint_assets.assets.chain import STAGES, Stage
from maint_assets.assets.spark_resource import spark_resource
from maint_assets.assets.stage_run import StageRun
from maint_assets.assets.stage_store import Dataset, StageResult, StageStore
from maint_assets.config import CompactionSettings, LogCleanupSettings, TableSettings

WATCHED = (
    "dagster/_core/execution/plan/execute_plan.py",
    "dagster/_core/execution/plan/execute_step.py",
    "dagster/_core/execution/plan/compute.py",
    "dagster/_core/execution/plan/compute_generator.py",
    "dagster/_core/execution/plan/utils.py",
    "dagster/_core/errors.py",
    "dagster/_utils/__init__.py",
    "dagster/_utils/interrupts.py",
    "maint_assets/assets/factory.py",
    "maint_assets/assets/interrupts.py",
)
STAGE_NAMES = ("compaction_bins", "rewritten_files")
RETRIES = dg.RetryPolicy(max_retries=2, delay=0.01)
KEEP = "maintenance"


@dataclass(frozen=True)
class Nothing:
    """The summary of a stage that does nothing."""

    files: int = 0


class Lines:
    """Counts lines of the watched files, and sends the signal at one of them."""

    def __init__(self, at: int, begun: list[str], files: tuple[str, ...]) -> None:
        self.at, self.count, self.files = at, 0, files
        self.begun, self.begun_before = begun, 0
        self.where: str | None = None
        self.has_begun = False

    def called(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        """Trace the lines of a call in a watched file, from the first step on."""
        name = frame.f_code.co_filename
        self.has_begun |= name.endswith(WATCHED[0])
        return self.line if self.has_begun and name.endswith(self.files) else None

    def line(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any]:
        """Count a line; at the chosen one send the signal."""
        if event == "line":
            self.count += 1
            if self.count == self.at:
                sys.settrace(None)
                self.begun_before = len(self.begun)
                name = next(n for n in WATCHED if frame.f_code.co_filename.endswith(n))
                self.where = f"{name}:{frame.f_lineno} {frame.f_code.co_name}"
                os.kill(os.getpid(), signal.SIGINT)
        return self.line


def worked(run: StageRun, *_: Any, begun: list[str], done: list[str]) -> StageResult:
    """The work of a stage: only record that it started and ended."""
    run.refuse_stopping()
    begun.append(run.stage)
    if run.stage == STAGE_NAMES[-1]:
        run.hold()
        done.append(run.stage)
    return run.result(Dataset(0, "digest", {}), Nothing())


def idle(stage: Stage, work: Callable[..., StageResult]) -> Stage:
    """The stage with its work replaced."""
    step = "compute" if stage.compute is not None else "execute"
    shown: dict[str, Any] = {"line": str, "pictures": {}, "checks": (), "progress": lambda _: None}
    return replace(stage, **shown, **{step: work})


def assets(begun: list[str], done: list[str]) -> list[dg.AssetsDefinition]:
    """The stages of a table, which only record their start and end."""
    work = partial(worked, begun=begun, done=done)
    factory.STAGES = {name: idle(stage, work) for name, stage in STAGES.items()}
    return built()


def built() -> list[dg.AssetsDefinition]:
    """The stages of a table that does not exist."""
    settings = TableSettings(
        name="t",
        uri="/nowhere",
        compaction=CompactionSettings(approval="auto"),
        log_cleanup=LogCleanupSettings(approval="auto"),
    )
    return factory.build_maintenance_assets(settings, retries=RETRIES)


@contextlib.contextmanager
def traced(lines: Lines) -> Iterator[None]:
    """Count lines in this context."""
    sys.settrace(lines.called)
    try:
        yield
    finally:
        sys.settrace(None)


def played(directory: str, at: int, files: tuple[str, ...]) -> dict[str, Any]:
    """The result of a run with a signal at the nth line."""
    begun: list[str] = []
    done: list[str] = []
    lines, made = Lines(at, begun, files), assets(begun, done)
    keys = [dg.AssetKey([KEEP, "t", name]) for name in STAGE_NAMES]
    store = StageStore(base_uri=directory, pyspark=spark_resource({}))
    with dg.DagsterInstance.ephemeral() as instance:
        with contextlib.suppress(KeyboardInterrupt), traced(lines):  # outside of Dagster's steps
            dg.materialize(
                made,
                selection=keys,
                instance=instance,
                resources={factory.RESOURCE: store},
                raise_on_error=False,
            )
        [run] = instance.get_runs()
        kinds = {dg.DagsterEventType.ASSET_MATERIALIZATION, dg.DagsterEventType.STEP_UP_FOR_RETRY}
        found = instance.get_records_for_run(run.run_id, of_type=kinds).records
        events = [record.event_log_entry.get_dagster_event() for record in found]
    return {
        "at": at,
        "where": lines.where,
        "begun": begun,
        "begun_before": lines.begun_before,
        "done": done,
        "status": run.status.value,
        "retried": sum(event.is_step_up_for_retry for event in events),
        "materialized": [event.asset_key.path[-1] for event in events if event.asset_key],
    }


def main(every: int, files: tuple[str, ...]) -> None:
    """Run once for each of the lines."""
    with tempfile.TemporaryDirectory() as directory:
        at, found = 1, {"where": ""}
        while found["where"] is not None:
            found = played(directory, at, files)
            print(json.dumps(found), flush=True)  # noqa: T201
            at += every


if __name__ == "__main__":
    main(int(sys.argv[1]), tuple(sys.argv[2:]) or WATCHED)
