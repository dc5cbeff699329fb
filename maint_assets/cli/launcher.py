"""Launch chains from Python: plan tables, and execute their plans."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import dagster as dg
from dagster_shared.check import CheckError
from yaml import YAMLError

from maint_assets.assets.chain import STAGES
from maint_assets.assets.deleting_tasks import settle_former
from maint_assets.assets.factory import RESOURCE, build_maintenance_assets, stage_key
from maint_assets.assets.interrupts import is_interrupt, stop_error
from maint_assets.assets.jobs import planned_keys, stage_store
from maint_assets.assets.launch_signals import recorded_signals
from maint_assets.assets.stage_store import StageDataset, StageStore
from maint_assets.errors import ConfigError, MaintError, StoppedError, of_text, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from dagster_shared.error import SerializableErrorInfo

    from maint_assets.assets.chain import Branch
    from maint_assets.config import Maintenance, TableSettings


@dataclass(frozen=True, slots=True)
class Launched:
    """A finished run: its id, seconds by stage, and the error that ended it, if any."""

    run_id: str
    seconds: dict[str, float]
    error: MaintError | None


class Launcher:
    """Runs stages of configured tables in this process, on one instance and one session.

    ``around`` is a context manager entered for each run: a progress display.
    """

    def __init__(self, settings: Maintenance, instance: dg.DagsterInstance) -> None:
        self.settings, self.instance = settings, instance
        self.around: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext
        self.store: StageStore = stage_store(settings)
        self._built: tuple[TableSettings, list[dg.AssetsDefinition]] | None = None

    def plan(
        self, table: TableSettings, branch: Branch = "vacuum", stages: Sequence[str] | None = None
    ) -> Launched:
        """Run the planning stages of a branch, or some of them."""
        keys = planned_keys(table, self.settings.key_prefix, [branch])
        wanted = keys if stages is None else [key for key in keys if key.path[-1] in stages]
        return self._run(table, wanted, {})

    def execute(
        self, table: TableSettings, digest: str, by: str | None, *, stage: str = "deletion"
    ) -> Launched:
        """Run an executing stage on the plan with that digest, as approved by a person.

        ``by`` is None if nobody was asked: the limits of unattended deletions apply then.
        """
        key = stage_key(table, stage, self.settings.key_prefix)
        config: dict[str, object] = {"approved_plan": digest, "unattended": by is None}
        if by is not None:
            config["approved_by"] = by
        return self._run(table, [key], {"ops": {key.to_python_identifier(): {"config": config}}})

    def planned(
        self, table: TableSettings, branch: Branch, stage: str
    ) -> tuple[StageDataset, Launched]:
        """Plan a branch: its dataset and its run. Raises the error that ended the run."""
        launched = self.plan(table, branch)
        if launched.error is not None:
            raise launched.error
        return self.dataset(table, stage, launched), launched

    def executed(
        self, table: TableSettings, digest: str, by: str | None, *, stage: str
    ) -> tuple[StageDataset, Launched]:
        """Execute a plan: its dataset and its run. Raises the error that ended the run early."""
        launched = self.execute(table, digest, by, stage=stage)
        done = self.dataset(table, stage, launched)
        if not done.is_complete and launched.error is not None:
            raise launched.error
        return done, launched

    def key(self, table: TableSettings, stage: str) -> dg.AssetKey:
        """The asset key of a stage of a table."""
        return stage_key(table, stage, self.settings.key_prefix)

    def dataset(self, table: TableSettings, stage: str, run: Launched) -> StageDataset:
        """The dataset that a stage wrote in a run."""
        return self.store.dataset(table.name, stage, run.run_id)

    def _run(
        self, table: TableSettings, keys: list[dg.AssetKey], config: dict[str, object]
    ) -> Launched:
        assets = self._assets(table)
        settle_former(self.store, table)
        quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
        with recorded_signals() as is_signalled, self.around():
            result = dg.materialize(
                assets,
                selection=keys,
                instance=self.instance,
                resources={RESOURCE: self.store},
                run_config={**config, **quiet},
                raise_on_error=False,
            )
            stopped_by = _interrupt(result, is_signalled=is_signalled())
        if stopped_by is not None and not _made(result) >= set(keys):
            raise stopped_by
        return Launched(result.run_id, _seconds(result), stopped_by or _error(result))

    def _assets(self, table: TableSettings) -> list[dg.AssetsDefinition]:
        """The assets of a table; cached for the next run of the same table."""
        if self._built is None or self._built[0] != table:
            prefix = self.settings.key_prefix
            self._built = table, build_maintenance_assets(table, key_prefix=prefix, retries=None)
        return self._built[1]


@contextlib.contextmanager
def launcher(settings: Maintenance) -> Iterator[Launcher]:
    """A launcher on the instance of DAGSTER_HOME, or on an ephemeral one."""
    if os.environ.get("DAGSTER_HOME"):
        with _instance() as instance:
            yield Launcher(settings, instance)
    else:
        with dg.DagsterInstance.ephemeral() as instance:
            yield Launcher(settings, instance)


def _instance() -> dg.DagsterInstance:
    """The instance of DAGSTER_HOME. Raises ConfigError if it is not usable."""
    try:
        return dg.DagsterInstance.get()
    except (dg.DagsterError, CheckError, YAMLError, OSError) as error:
        home = os.environ["DAGSTER_HOME"]
        remedy = "give an absolute path of a directory, with a dagster.yaml that is valid"
        found = f"{home} cannot be used ({one_line(error).split('. ')[0]})"
        raise ConfigError("DAGSTER_HOME", found, remedy) from error


def _interrupt(result: dg.ExecuteInProcessResult, *, is_signalled: bool) -> StoppedError | None:
    """The interrupt that reached a run, to be raised so that nothing more is launched."""
    if (found := stop_error(result.run_id)) is not None:
        error = StoppedError(*found.args)
        error.__cause__ = found
        return error
    errors = [event.job_failure_data.error for event in result.all_events if event.is_run_failure]
    if any(is_interrupt(error) for error in errors):
        return StoppedError("run", "stopped between two stages", "run it again to finish")
    if is_signalled:
        failed = "" if result.success else f"; it had failed: {_error(result)}"
        remedy = "nothing more was launched" if result.success else "run it again to finish"
        return StoppedError("run", f"interrupted at its end{failed}", remedy)
    return None


def _made(result: dg.ExecuteInProcessResult) -> set[dg.AssetKey]:
    """The assets that the run materialised."""
    return {
        event.asset_key
        for event in result.all_events
        if event.is_step_materialization and event.asset_key
    }


def _seconds(result: dg.ExecuteInProcessResult) -> dict[str, float]:
    """Seconds of each stage that succeeded, by name."""
    stages = {
        event.step_key: event.asset_key.path[-1]
        for event in result.all_events
        if event.is_step_materialization and event.asset_key
    }
    return {
        stages[event.step_key]: round(event.step_success_data.duration_ms / 1000, 3)
        for event in result.all_events
        if event.is_step_success and event.step_key in stages
    }


def _error(result: dg.ExecuteInProcessResult) -> MaintError | None:
    """The first error of a run; errors of Dagster or Spark are wrapped in a MaintError."""
    for event in result.all_events:
        if event.is_step_failure:
            failure = event.step_failure_data
            marked = failure.user_failure_data and failure.user_failure_data.metadata.get("error")
            typed = of_text(str(marked.value)) if marked else _failed_check(result)
            return typed or _untyped(str(event.step_key), failure.error)
        if event.is_run_failure:
            return _untyped("run", event.job_failure_data.error)
    if result.success:
        return None
    return MaintError("run", "failed before its first stage", "run again with --debug")


def _failed_check(result: dg.ExecuteInProcessResult) -> MaintError | None:
    """The first check that failed so that its stage failed, with what it found."""
    for event in result.all_events:
        if event.event_type != dg.DagsterEventType.ASSET_CHECK_EVALUATION:
            continue
        check = event.asset_check_evaluation_data
        if check.blocking and not check.passed and check.severity == dg.AssetCheckSeverity.ERROR:
            shown = ", ".join(f"{name} {value.value}" for name, value in check.metadata.items())
            found = f"the check {check.check_name} failed: {shown}"
            if STAGES[check.asset_key.path[-1]].compute is not None:
                remedy = "nothing was changed, and this plan is not executed: plan again"
            else:
                remedy = "find out what else writes there; the ledger lists what was done"
            return MaintError("/".join(check.asset_key.path), found, remedy)
    return None


def _untyped(where: str, cause: SerializableErrorInfo | None) -> MaintError:
    while cause is not None and cause.cause is not None:
        cause = cause.cause
    text = "unknown error" if cause is None else cause.message.strip().splitlines()[0]
    return MaintError(where, text, "run again with --debug for the whole error")
