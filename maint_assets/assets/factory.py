"""The factory of all chains: the stages of a table as assets, downstream of the user's asset."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version as package_version
from typing import Optional

import dagster as dg

from maint_assets.assets.approval import Approval
from maint_assets.assets.chain import CHAINS, STAGES, Stage
from maint_assets.assets.deleting_tasks import settle_former
from maint_assets.assets.interrupts import RunStoppedError, ending_its_run, is_interrupt
from maint_assets.assets.progress import reporting_progress
from maint_assets.assets.spark_resource import stage as spark_stage
from maint_assets.assets.spark_resource import typed_errors
from maint_assets.assets.stage_run import StageRun
from maint_assets.assets.stage_store import StageResult, StageStore
from maint_assets.assets.ui_metadata import metadata, preview
from maint_assets.assets.workspace import refuse_workspace
from maint_assets.config import TableSettings
from maint_assets.errors import MaintError

logger = logging.getLogger(__name__)

RESOURCE = "maintenance"

PLANNING_RETRIES = dg.RetryPolicy(
    max_retries=2, delay=5, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.PLUS_MINUS
)

_ENDED = {
    dg.DagsterRunStatus.CANCELING,
    dg.DagsterRunStatus.CANCELED,
    dg.DagsterRunStatus.FAILURE,
    dg.DagsterRunStatus.SUCCESS,
}
"""A run that is marked as ended while its process lives, as by run monitoring, starts nothing."""

_ENDS = {dg.DagsterEventType.STEP_FAILURE, dg.DagsterEventType.STEP_UP_FOR_RETRY}

SpecHook = Callable[[dg.AssetSpec, TableSettings], dg.AssetSpec]


class ApprovedPlan(dg.Config):
    """Config of an executing asset: the digest of the approved plan, and who approves it.

    ``unattended``: no person has seen the plan, so the limits of unattended deletions apply.
    """

    approved_plan: str
    approved_by: Optional[str] = None  # noqa: UP045 - Dagster reads it on Python 3.10
    unattended: bool = False


class AutomaticPlan(dg.Config):
    """Config of an executing asset with automatic approval; no digest: the plan of its run."""

    approved_plan: Optional[str] = None  # noqa: UP045
    approved_by: Optional[str] = None  # noqa: UP045
    unattended: bool = False


def stage_key(table: TableSettings, stage: str, key_prefix: Sequence[str]) -> dg.AssetKey:
    """The asset key of a stage: prefix, table, stage."""
    return dg.AssetKey([*key_prefix, table.name, stage])


def build_maintenance_assets(
    table: TableSettings,
    *,
    key_prefix: Sequence[str] = ("maintenance",),
    get_asset_spec: SpecHook | None = None,
    retries: dg.RetryPolicy | None = PLANNING_RETRIES,
) -> list[dg.AssetsDefinition]:
    """The chain of one table: its stages as assets in a group named like the table.

    They need one resource, ``maintenance``: a StageStore. ``get_asset_spec`` may change group,
    owners, tags and automation of each. ``retries`` are those of planning stages.
    """
    assets = [
        _asset(stage, table, key_prefix=key_prefix, retries=retries if stage.compute else None)
        for stage in STAGES.values()
    ]
    if get_asset_spec is None:
        return assets
    hook = get_asset_spec
    return [asset.map_asset_specs(lambda spec: hook(spec, table)) for asset in assets]


def _asset(
    stage: Stage,
    table: TableSettings,
    *,
    key_prefix: Sequence[str],
    retries: dg.RetryPolicy | None,
) -> dg.AssetsDefinition:
    key = stage_key(table, stage.name, key_prefix)
    deps = [stage_key(table, name, key_prefix) for name in stage.deps]
    if not stage.deps:
        deps = [dg.AssetKey(name.split("/")) for name in table.depends_on]
    decorate = dg.asset(
        key=key,
        deps=deps,
        description=stage.description,
        group_name=table.name,
        kinds={"deltalake", "pyspark"},
        owners=list(table.owners),
        metadata={"dagster/uri": table.uri, "dagster/storage_kind": "parquet"},
        code_version=package_version("maint-assets"),
        required_resource_keys={RESOURCE},
        check_specs=[check.spec(key) for check in stage.checks],
        pool=f"delta_{table.name}",
        retry_policy=retries,
    )
    if stage.compute is not None:
        return decorate(_planning(stage, table, stage.compute))
    if stage.execute is not None:
        return decorate(_executing(stage, table, stage.execute))
    raise ValueError(f"stage {stage.name} neither plans nor executes")


def _planning(stage: Stage, table: TableSettings, compute: Callable[[StageRun], StageResult]):
    def planning(context: dg.AssetExecutionContext):
        with ending_its_run(context.run.run_id, f"{table.name}: {stage.name}"):
            yield from _materialized(context, stage, table=table, compute=compute)

    return planning


def _executing(
    stage: Stage, table: TableSettings, execute: Callable[[StageRun, Approval], StageResult]
):
    def run(context: dg.AssetExecutionContext, config: ApprovedPlan | AutomaticPlan):
        approval = Approval(config.approved_plan, config.approved_by, config.unattended)

        def compute(stage_run: StageRun) -> StageResult:
            made = execute(stage_run, approval)
            (planned,) = stage.deps
            stage_run.note_executed(planned)
            return made

        with ending_its_run(context.run.run_id, f"{table.name}: {stage.name}"):
            settle_former(getattr(context.resources, RESOURCE), table)
            yield from _materialized(context, stage, table=table, compute=compute)

    # Dagster takes the config from the signature: only by hand is a digest required.
    if stage.approval(table) == "manual":

        def approved(context: dg.AssetExecutionContext, config: ApprovedPlan):
            yield from run(context, config)

        return approved

    def automatic(context: dg.AssetExecutionContext, config: AutomaticPlan):
        yield from run(context, config)

    return automatic


def _materialized(
    context: dg.AssetExecutionContext,
    stage: Stage,
    *,
    table: TableSettings,
    compute: Callable[[StageRun], StageResult],
) -> Iterator[dg.MaterializeResult]:
    """Run one stage; its errors become Dagster failures, retried only if that may help.

    A generator: its handlers of signals stay until Dagster has taken the result, and nothing of
    Dagster's runs under a retry policy before them.
    """
    store: StageStore = getattr(context.resources, RESOURCE)
    run = StageRun(
        table=table,
        stage=stage.name,
        key=context.asset_key,
        store=store,
        instance=context.instance,
        # A re-execution continues its parent: the plan of that run counts as its own.
        run_ids=tuple(
            found
            for found in (context.run.run_id, context.run.parent_run_id, context.run.root_run_id)
            if found
        ),
    )
    names = next(list(chain) for chain in CHAINS.values() if stage.name in chain)
    description = f"{table.name}: {stage.name} {names.index(stage.name) + 1}/{len(names)}"
    logger.info("%s", description)
    _refuse_interrupted(context)
    try:
        refuse_workspace(store.base_uri, [table], source=table.uri)
        with (
            typed_errors(),
            spark_stage(lambda: store.spark, context.run.run_id, description) as spark,
        ):
            run = replace(run, session=spark)
            with reporting_progress(description, partial(stage.progress, run), log=logger.info):
                made = _materialize_result(stage, run, compute(run))
            run.hold()
            spark.close()
            yield made
    except MaintError as error:
        raise dg.Failure(
            str(error),
            metadata={"error": dg.MetadataValue.text(error.marked())},
            allow_retries=error.retryable,
        ) from error


def _refuse_interrupted(context: dg.AssetExecutionContext) -> None:
    """Raise RunStoppedError in a run that has ended or was interrupted, in any process."""
    instance, run_id = context.instance, context.run.run_id
    run = instance.get_run_by_id(run_id)
    if run is not None and run.status in _ENDED:
        raise RunStoppedError(f"nothing more is started: run {run_id} is {run.status.value}")
    for record in instance.get_records_for_run(run_id, of_type=_ENDS).records:
        event = record.event_log_entry.get_dagster_event()
        ended = event.step_failure_data if event.is_step_failure else event.step_retry_data
        if is_interrupt(ended.error):
            found = f"step {event.step_key} of this run was interrupted"
            raise RunStoppedError(f"nothing more is started: {found}")


def _materialize_result(stage: Stage, run: StageRun, made: StageResult) -> dg.MaterializeResult:
    shown = made.written.rows > 0
    table = preview(run.output.largest(), stage.preview_schema) if shown else None
    shown_metadata = metadata(
        made,
        line=stage.line(made.summary),
        dataset=run.output,
        pictures={name: picture(made.summary) for name, picture in stage.pictures.items()},
        preview=table,
        schema=stage.schema,
    )
    return dg.MaterializeResult(
        metadata=shown_metadata,
        check_results=[check.result(run, made.summary) for check in stage.checks],
        data_version=dg.DataVersion(digest(made)),
    )


def digest(made: StageResult) -> str:
    """The data version of a materialisation: the plan's id for ``diff``, else the rows' digest."""
    plan = getattr(made.summary, "plan", None)
    return made.written.digest if plan is None else plan.digest
