"""The Dagster definitions made from a config: assets, checks, jobs, schedules. No Spark."""

from datetime import datetime, timezone
from typing import Any

import dagster as dg
import pytest

from maint_assets.assets.factory import build_maintenance_assets, stage_key
from maint_assets.assets.jobs import build_maintenance_definitions
from maint_assets.config import Maintenance, TableSettings, VacuumSettings

PLANNED = ["snapshot", "valid_files", "listing", "diff", "compaction_bins", "expired_logs"]


def table(name: str = "orders", approval: Any = "manual", **rest: Any) -> TableSettings:
    return TableSettings(
        name=name, uri=f"/lake/{name}", vacuum=VacuumSettings(approval=approval), **rest
    )


def definitions(*tables: TableSettings, **rest: Any) -> dg.Definitions:
    return build_maintenance_definitions(Maintenance(workspace="/out", tables=tables, **rest))


def specs(found: TableSettings, **options: Any) -> dict[str, dg.AssetSpec]:
    assets = build_maintenance_assets(found, **options)
    return {spec.key.path[-1]: spec for asset in assets for spec in asset.specs}


def deps(spec: dg.AssetSpec) -> list[str]:
    return sorted(dep.asset_key.path[-1] for dep in spec.deps)


def selected(defs: dg.Definitions, job: str) -> set[tuple[str, str]]:
    keys = defs.resolve_job_def(job).asset_layer.executable_asset_keys
    return {(key.path[-2], key.path[-1]) for key in keys}


def test_a_table_is_a_group_of_assets() -> None:
    found = specs(table())

    assert set(found) == {*PLANNED, "deletion", "rewritten_files", "deleted_logs"}
    assert found["diff"].key == dg.AssetKey(["maintenance", "orders", "diff"])
    assert {spec.group_name for spec in found.values()} == {"orders"}


def test_the_stages_hang_together() -> None:
    found = specs(table())

    assert {name: deps(spec) for name, spec in found.items()} == {
        "snapshot": [],
        "valid_files": ["snapshot"],
        "listing": ["snapshot", "valid_files"],
        "diff": ["listing", "snapshot", "valid_files"],
        "deletion": ["diff"],
        "compaction_bins": ["snapshot"],
        "rewritten_files": ["compaction_bins"],
        "expired_logs": ["snapshot"],
        "deleted_logs": ["expired_logs"],
    }


NIGHTLY = "0_3_any_any_any_51c662"


def test_the_chain_hangs_off_the_users_own_asset() -> None:
    found = specs(table(depends_on=("raw/orders", "customers")))

    above = {dep.asset_key for dep in found["snapshot"].deps}
    assert above == {dg.AssetKey(["raw", "orders"]), dg.AssetKey(["customers"])}


def test_the_key_prefix_is_the_callers() -> None:
    found = specs(table(), key_prefix=("lake", "upkeep"))

    assert found["diff"].key.path == ["lake", "upkeep", "orders", "diff"]


def test_every_stage_of_a_table_shares_its_pool() -> None:
    ops = [asset.op for asset in build_maintenance_assets(table())]

    assert {op.pool for op in ops} == {"delta_orders"}


def test_planning_is_retried_and_deletion_is_not() -> None:
    ops = {asset.key.path[-1]: asset.op for asset in build_maintenance_assets(table())}

    assert all(ops[name].retry_policy for name in PLANNED)
    assert ops["deletion"].retry_policy is None


def test_the_checks_of_each_stage() -> None:
    found = {
        (spec.asset_key.path[-1], spec.name, spec.blocking)
        for asset in build_maintenance_assets(table())
        for spec in asset.check_specs
    }

    assert found == {
        ("snapshot", "log_checksum_agrees", False),
        ("diff", "no_active_file_missing", False),
        ("diff", "no_file_lost_to_checkpoint", False),
        ("diff", "nothing_valid_in_plan", True),
        ("deletion", "active_files_are_there", True),
        ("deletion", "nothing_failed", True),
        ("deletion", "vacuum_end_committed", False),
        ("rewritten_files", "same_rows", True),
        ("rewritten_files", "all_rewritten", False),
        ("expired_logs", "checkpoints_sound", False),
        ("deleted_logs", "kept_versions_readable", True),
        ("deleted_logs", "nothing_failed", True),
    }


def test_specs_carry_owner_uri_and_version() -> None:
    spec = specs(table(owners=("team:lake",)))["diff"]

    assert spec.owners == ["team:lake"]
    assert spec.metadata["dagster/uri"] == "/lake/orders"
    assert spec.code_version == "0.1.0"


def test_a_hook_changes_specs_with_the_table_in_hand() -> None:
    found = specs(
        table(), get_asset_spec=lambda spec, t: spec.replace_attributes(group_name=f"m_{t.name}")
    )

    assert {spec.group_name for spec in found.values()} == {"m_orders"}


def run_config_errors(defs: dg.Definitions, config: dict[str, Any]) -> list[str]:
    job = defs.resolve_implicit_global_asset_job_def()
    found = dg.validate_run_config
    key = stage_key(defs_table(defs), "deletion", ("maintenance",))
    try:
        found(
            job.get_subset(asset_selection={key}),
            {"ops": {key.to_python_identifier(): {"config": config}}} if config else {},
        )
    except dg.DagsterInvalidConfigError as error:
        return [each.message for each in error.errors]
    return []


def defs_table(defs: dg.Definitions) -> TableSettings:
    return table(next(iter(defs.resolve_all_asset_specs())).key.path[-2])


def test_a_manual_deletion_cannot_be_launched_without_a_plan() -> None:
    errors = run_config_errors(definitions(table()), {})

    assert len(errors) == 1
    assert "approved_plan" in errors[0] or "deletion" in errors[0]


def test_a_manual_deletion_takes_plan_and_approver() -> None:
    config = {"approved_plan": "abc", "approved_by": "ada"}

    assert run_config_errors(definitions(table()), config) == []


def test_an_automatic_deletion_needs_no_config() -> None:
    assert run_config_errors(definitions(table(approval="auto")), {}) == []


def test_definitions_are_loadable() -> None:
    three = (table("a"), table("b", "auto", schedule="0 3 * * *"), table("c"))

    dg.Definitions.validate_loadable(definitions(*three))


def test_no_tables_are_loadable() -> None:
    dg.Definitions.validate_loadable(definitions())


def test_the_plan_job_plans_every_table() -> None:
    defs = definitions(table("a"), table("b", "auto"))

    expected = {(name, stage) for name in ("a", "b") for stage in PLANNED}
    assert selected(defs, "maintenance_plan") == expected


def test_the_deletion_of_a_manual_table_is_in_no_job() -> None:
    defs = definitions(table("a"), table("b", "auto"))

    jobs = ("maintenance_plan", "maintenance_execute")
    executed = {pair for job in jobs for pair in selected(defs, job) if pair[1] == "deletion"}
    assert executed == {("b", "deletion")}


def test_jobs_run_in_one_process() -> None:
    defs = definitions(table())

    for name in ("maintenance_plan", "maintenance_execute"):
        assert defs.resolve_job_def(name).executor_def.name == "in_process"


def test_a_schedule_requests_one_run_a_table() -> None:
    cron = "0 3 * * *"
    defs = definitions(
        table("a", schedule=cron),
        table("b", "auto", schedule=cron),
        table("c"),
        table("d", schedule="@daily"),
    )
    at = datetime(2026, 1, 2, 3, tzinfo=timezone.utc)
    context = dg.build_schedule_context(
        scheduled_execution_time=at, repository_def=defs.get_repository_def()
    )

    tick = defs.resolve_schedule_def(f"maintenance_{NIGHTLY}").evaluate_tick(context)

    requests = tick.run_requests or []
    stages = [[key.path[-1] for key in request.asset_selection or ()] for request in requests]
    assert [request.tags["maint_assets/table"] for request in requests] == ["a", "b"]
    assert [set(found) for found in stages] == [{*PLANNED}, {*PLANNED, "deletion"}]
    assert len({request.run_key for request in requests}) == 2


def test_schedules_ship_stopped() -> None:
    defs = definitions(table(schedule="0 3 * * *"))

    schedule = defs.resolve_schedule_def(f"maintenance_{NIGHTLY}")
    assert schedule.default_status == dg.DefaultScheduleStatus.STOPPED


def test_a_schedule_keeps_its_name_when_that_of_a_table_before_it_goes() -> None:
    a, b = table("a", schedule="@daily"), table("b", "auto", schedule="0 3 * * *")

    before, after = (
        {s.cron_schedule: s.name for s in definitions(*tables).schedules or ()}
        for tables in ((a, b), (b,))
    )

    assert before["0 3 * * *"] == after["0 3 * * *"]
    assert len(set(before.values())) == 2


def test_cron_strings_that_differ_in_signs_only_have_schedules_of_their_own() -> None:
    crons = ("0 3 * * 1-5", "0 3 * * 1,5")
    defs = definitions(*(table(f"t{n}", schedule=cron) for n, cron in enumerate(crons)))

    assert len({schedule.name for schedule in defs.schedules or ()}) == 2


@pytest.mark.parametrize("cron", ["often", "61 3 * * *"])
def test_a_wrong_cron_is_refused(cron: str) -> None:
    with pytest.raises(dg.DagsterInvalidDefinitionError, match="cron"):
        definitions(table(schedule=cron))
