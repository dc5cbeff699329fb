"""The jobs over all tables, and the schedules, which launch one run for each table."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from typing import TYPE_CHECKING

import dagster as dg
from dagster_shared.check import CheckError

from maint_assets.assets.chain import CHAINS, Branch, Stage
from maint_assets.assets.factory import (
    RESOURCE,
    SpecHook,
    build_maintenance_assets,
    stage_key,
)
from maint_assets.assets.spark_resource import spark_resource
from maint_assets.assets.stage_store import StageStore
from maint_assets.errors import ConfigError, one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from maint_assets.config import Maintenance, TableSettings


def build_maintenance_definitions(settings: Maintenance) -> dg.Definitions:
    """The Dagster definitions of a config: assets, jobs, schedules and the resource.

    ``maintenance_plan`` only plans. ``maintenance_execute`` also executes what has
    ``approval: auto``. Schedules ship stopped.
    """
    shared = {RESOURCE: stage_store(settings)}
    return dg.Definitions.merge(
        build_table_definitions(settings),
        dg.Definitions(resources=shared, executor=dg.in_process_executor),
    )


def build_table_definitions(
    settings: Maintenance, *, get_asset_spec: SpecHook | None = None
) -> dg.Definitions:
    """Assets, jobs and schedules of a config, for a project that has other assets as well.

    Neither executor nor resource: the project sets them. Jobs are named after the key prefix.
    """
    return dg.Definitions(
        assets=[
            asset
            for table in settings.tables
            for asset in build_maintenance_assets(
                table, key_prefix=settings.key_prefix, get_asset_spec=get_asset_spec
            )
        ],
        jobs=_jobs(settings) if settings.tables else [],
        schedules=_schedules(settings),
    )


def refuse_unloadable(settings: Maintenance, *, config: str) -> None:
    """Raise ConfigError for values that only Dagster can validate: schedules, owners, cycles."""
    try:
        dg.Definitions.validate_loadable(build_maintenance_definitions(settings))
    except ValueError as error:  # of Dagster's toposort
        found = "depends_on makes a cycle: a table depends on its own stages"
        raise ConfigError(config, found, "name assets that are upstream of it") from error
    except (dg.DagsterError, CheckError) as error:
        raise ConfigError(
            config, one_line(error).rstrip("."), "correct it in the config"
        ) from error


def stage_store(settings: Maintenance) -> StageStore:
    """The resource of the chains for a config."""
    return StageStore(base_uri=settings.workspace, pyspark=spark_resource(settings.spark))


def planned_keys(
    table: TableSettings, key_prefix: Sequence[str], branches: Iterable[Branch] = tuple(CHAINS)
) -> list[dg.AssetKey]:
    """Asset keys of the planning stages of a table, of all branches or of some."""
    return [
        stage_key(table, stage.name, key_prefix)
        for stage in _stages(branches)
        if stage.compute is not None
    ]


def executed_keys(table: TableSettings, key_prefix: Sequence[str]) -> list[dg.AssetKey]:
    """Asset keys of an unattended run: planning stages, executing ones with ``approval: auto``."""
    return [
        stage_key(table, stage.name, key_prefix)
        for stage in _stages(CHAINS)
        if stage.compute is not None or stage.approval(table) == "auto"
    ]


def _stages(branches: Iterable[Branch]) -> Iterable[Stage]:
    return {name: stage for each in branches for name, stage in CHAINS[each].items()}.values()


def _jobs(settings: Maintenance) -> list[dg.UnresolvedAssetJobDefinition]:  # pyright: ignore
    prefix = settings.key_prefix
    return [
        dg.define_asset_job(
            name,
            selection=[key for table in settings.tables for key in keys(table, prefix)],
            executor_def=dg.in_process_executor,
            description=description,
        )
        for name, keys, description in (
            (_name(settings, "plan"), planned_keys, "Plans every table; changes none."),
            (
                _name(settings, "execute"),
                executed_keys,
                "Plans every table, and executes what has approval: auto.",
            ),
        )
    ]


def _schedules(settings: Maintenance) -> list[dg.ScheduleDefinition]:
    """A schedule for each cron string, named after it.

    Dagster keeps by its name whether a schedule is running: a name must never pass to other tables.
    """
    by_cron: dict[str, list[TableSettings]] = defaultdict(list)
    for table in settings.tables:
        if table.schedule:
            by_cron[table.schedule].append(table)
    return [
        _schedule(_name(settings, _cron_name(cron)), cron, tables, settings)
        for cron, tables in by_cron.items()
    ]


def _cron_name(cron: str) -> str:
    """A cron string as part of a name, unique by a hash: ``0_3_any_any_any_1a2b3c``."""
    shown = "_".join(re.findall(r"\w+", cron.replace("*", "any"), re.ASCII))
    return f"{shown}_{hashlib.sha256(cron.encode()).hexdigest()[:6]}"


def _schedule(  # noqa: PLR0917
    name: str, cron: str, tables: list[TableSettings], settings: Maintenance
) -> dg.ScheduleDefinition:
    def requests(context: dg.ScheduleEvaluationContext):
        for table in tables:
            yield dg.RunRequest(
                run_key=f"{table.name}:{context.scheduled_execution_time.isoformat()}",
                asset_selection=executed_keys(table, settings.key_prefix),
                tags={"maint_assets/table": table.name},
            )

    return dg.ScheduleDefinition(
        name=name,
        cron_schedule=cron,
        job_name=_name(settings, "execute"),
        execution_fn=requests,
        description="One run a table: " + ", ".join(table.name for table in tables),
    )


def _name(settings: Maintenance, *what: str) -> str:
    """A name that is unique to a key prefix."""
    return re.sub(r"\W", "_", "_".join([*(settings.key_prefix or ("maintenance",)), *what]))
