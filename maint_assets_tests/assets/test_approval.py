"""Plan first, then exactly the plan: what a deletion accepts, and what it refuses unchanged."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import DataFrame, SparkSession

from maint_assets.assets.factory import RESOURCE, build_maintenance_assets, stage_key
from maint_assets.assets.jobs import executed_keys
from maint_assets.assets.stages import vacuum
from maint_assets.cli.compaction import execute_compaction, plan_compaction
from maint_assets.cli.log_cleanup import execute_log_cleanup
from maint_assets.cli.vacuum import execute_vacuum
from maint_assets.config import TableSettings, VacuumSettings
from maint_assets.errors import (
    GuardError,
    MaintError,
    RefusedError,
    StageMissingError,
    StalePlanError,
)
from maint_assets.vacuum.summaries import DiffSummary
from maint_assets_tests.oracles import delta_spark
from maint_assets_tests.support.builder import TableBuilder, tree
from maint_assets_tests.support.chain import Chain, files, set_clock

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture
def table(tmp_path: Path) -> TableBuilder:
    """One live file, and one that was removed long ago."""
    built = TableBuilder(tmp_path / "t").at(days_ago=30).create().add("live", "old")
    return built.remove("old")


@pytest.fixture
def chain(table: TableBuilder, tmp_path: Path) -> Chain:
    return Chain.of(table.path, tmp_path / "out", max_delete_share=1)


def left(table: TableBuilder) -> set[str]:
    return {path.name for path in table.path.iterdir() if path.is_file()}


def automatic(table: TableBuilder, tmp_path: Path, **vacuum: Any) -> Chain:
    return Chain.of(
        table.path, tmp_path / "out", approval="auto", **{"max_delete_share": 1, **vacuum}
    )


def launch(chain: Chain, *stages: str) -> dg.ExecuteInProcessResult:
    """Materialize the stages as an unattended run does."""
    keys = executed_keys(chain.table, chain.launcher.settings.key_prefix)
    return dg.materialize(
        build_maintenance_assets(chain.table),
        selection=[key for key in keys if key.path[-1] in stages] if stages else keys,
        instance=chain.launcher.instance,
        resources={RESOURCE: chain.launcher.store},
        raise_on_error=False,
    )


def failure(result: dg.ExecuteInProcessResult) -> str:
    [event] = [event for event in result.all_events if event.is_step_failure]
    return str(event.step_failure_data.user_failure_data.description)  # type: ignore[union-attr]


def last_run_of(chain: Chain, stage: str) -> str | None:
    event = chain.launcher.instance.get_latest_materialization_event(
        stage_key(chain.table, stage, ("maintenance",))
    )
    return event.run_id if event else None


def raised(error: MaintError | None) -> MaintError:
    assert error is not None
    return error


def test_a_plan_touches_nothing_and_the_right_digest_executes_exactly_it(
    table: TableBuilder, chain: Chain
) -> None:
    report = chain.plan()
    assert (files(report), left(table)) == ({"old"}, {"live", "old"})

    done = chain.execute(report)

    assert set(chain.ledger(done)) == files(report)
    assert left(table) == {"live"}


def test_an_old_digest_is_refused_after_a_new_plan_and_nothing_is_deleted(
    table: TableBuilder, chain: Chain
) -> None:
    old = chain.plan()
    table.stray("another", age_days=20)
    new = chain.plan()

    error = raised(chain.launch(old.planned.plan.digest).error)

    assert isinstance(error, StalePlanError)
    assert old.planned.plan.digest in error.found
    assert new.planned.plan.digest in error.found
    assert left(table) == {"live", "old", "another"}
    assert chain.launch(new.planned.plan.digest).error is None
    assert left(table) == {"live"}


def test_files_that_came_after_the_plan_stay(table: TableBuilder, chain: Chain) -> None:
    report = chain.plan()
    table.stray("late", age_days=20)

    chain.execute(report)

    assert left(table) == {"live", "late"}


def test_a_later_plan_of_the_same_rows_has_a_digest_of_its_own(chain: Chain) -> None:
    first, second = chain.plan(), chain.plan()

    assert first.planned.plan.digest != second.planned.plan.digest
    assert isinstance(chain.launch(first.planned.plan.digest).error, StalePlanError)


@pytest.mark.parametrize("digest", ["", "0" * 32])
def test_a_digest_that_no_plan_has_is_refused(
    table: TableBuilder, chain: Chain, digest: str
) -> None:
    chain.plan()

    assert isinstance(chain.launch(digest).error, StalePlanError)
    assert left(table) == {"live", "old"}


def test_a_deletion_without_any_plan_says_so(table: TableBuilder, chain: Chain) -> None:
    assert isinstance(chain.launch("0" * 32).error, StageMissingError)
    assert left(table) == {"live", "old"}


def test_a_refused_deletion_is_not_a_materialisation(chain: Chain) -> None:
    chain.plan()

    refused = chain.launch("0" * 32)

    assert last_run_of(chain, "deletion") is None
    assert not chain.launcher.dataset(chain.table, "deletion", refused).is_complete


def test_a_manual_deletion_is_not_launched_without_config(chain: Chain) -> None:
    chain.plan()

    with pytest.raises(dg.DagsterInvalidConfigError, match="approved_plan"):
        dg.materialize(
            build_maintenance_assets(chain.table),
            selection=[stage_key(chain.table, "deletion", ("maintenance",))],
            instance=chain.launcher.instance,
            resources={RESOURCE: chain.launcher.store},
        )


def test_an_automatic_table_executes_the_plan_of_its_own_run(
    table: TableBuilder, tmp_path: Path
) -> None:
    result = launch(automatic(table, tmp_path))

    assert result.success
    assert left(table) == {"live"}


def test_an_automatic_deletion_launched_alone_refuses_a_plan_of_another_run(
    table: TableBuilder, tmp_path: Path
) -> None:
    chain = automatic(table, tmp_path)
    chain.plan()

    result = launch(chain, "deletion")

    assert "takes only the plan of its own run" in failure(result)
    assert left(table) == {"live", "old"}


@pytest.mark.slow
@pytest.mark.parametrize("restored", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_re_execution_from_failure_executes_the_plan_of_its_parent(
    spark: SparkSession, table: TableBuilder, tmp_path: Path, restored: bool
) -> None:
    """Files that a RESTORE brought back in between are kept, in unattended runs too."""

    def job() -> dg.JobDefinition:
        return dg.Definitions(
            assets=build_maintenance_assets(chain.table),
            resources={RESOURCE: chain.launcher.store},
            jobs=[everything(chain.table)],
        ).resolve_job_def("all")

    chain = automatic(table, tmp_path, plan_max_age="0 hours")
    with dg.instance_for_test() as instance:
        failed = job().execute_in_process(instance=instance, raise_on_error=False)
        chain = automatic(table, tmp_path)
        if restored:
            spark.sql(f"RESTORE {delta_spark.table(table.path)} TO VERSION AS OF 1").collect()
        options = dg.ReexecutionOptions.from_failure(failed.run_id, instance)
        with dg.execute_job(
            dg.build_reconstructable_job(
                __name__, "reconstructed_job", (str(table.path), str(tmp_path / "out")), {}
            ),
            instance=instance,
            reexecution_options=options,
        ) as again:
            steps = {event.step_key for event in again.all_events if event.is_step_success}

    assert not failed.success
    assert again.success
    assert steps == {"maintenance__t__deletion"}
    assert left(table) == ({"live", "old"} if restored else {"live"})


def reconstructed_job(path: str, workspace: str) -> dg.JobDefinition:
    chain = Chain.of(Path(path), Path(workspace), approval="auto", max_delete_share=1)
    return dg.Definitions(
        assets=build_maintenance_assets(chain.table),
        resources={RESOURCE: chain.launcher.store},
        jobs=[everything(chain.table)],
    ).resolve_job_def("all")


def everything(table: TableSettings) -> Any:
    """A job with all stages that run unattended."""
    keys = executed_keys(table, ("maintenance",))
    return dg.define_asset_job("all", selection=keys, executor_def=dg.in_process_executor)


def test_stages_of_different_snapshots_are_not_combined(table: TableBuilder, chain: Chain) -> None:
    chain.plan()
    table.add("new")
    chain.launcher.plan(chain.table, stages=["snapshot"])

    error = raised(chain.launcher.plan(chain.table, stages=["diff"]).error)

    assert isinstance(error, StalePlanError)
    assert "run the whole chain from snapshot on" in error.remedy
    assert chain.launcher.plan(chain.table, stages=["valid_files", "listing", "diff"]).error is None


def test_an_unattended_plan_above_the_share_is_refused_with_both_numbers(
    table: TableBuilder, tmp_path: Path
) -> None:
    table.stray("big", age_days=20, content=b"x" * 100_000)

    result = launch(automatic(table, tmp_path, max_delete_share=0.25))

    message = failure(result)
    assert "max_delete_share of 25.0%" in message
    assert "the plan deletes 9" in message
    assert left(table) == {"live", "old", "big"}


def test_an_unattended_plan_of_too_many_files_is_refused_with_both_numbers(
    table: TableBuilder, tmp_path: Path
) -> None:
    result = launch(automatic(table, tmp_path, max_delete_files=0))

    assert "the plan deletes 1 files, more than max_delete_files of 0" in failure(result)
    assert left(table) == {"live", "old"}


def test_a_person_may_approve_beyond_the_share(table: TableBuilder, tmp_path: Path) -> None:
    chain = automatic(table, tmp_path, max_delete_share=0)
    report = chain.plan()

    chain.execute(report)

    assert left(table) == {"live"}


def test_a_plan_past_its_age_is_refused(table: TableBuilder, chain: Chain) -> None:
    report = chain.plan()
    set_clock(chain, report.planned.plan.planned_ms + 25 * 3_600_000)

    error = raised(chain.launch(report.planned.plan.digest).error)

    assert isinstance(error, StalePlanError)
    assert "old" in error.found
    assert left(table) == {"live", "old"}


def test_a_missing_active_file_refuses_even_an_approved_plan(
    table: TableBuilder, chain: Chain
) -> None:
    (table.path / "live").unlink()
    report = chain.plan()

    error = raised(chain.launch(report.planned.plan.digest).error)

    assert isinstance(error, GuardError)
    assert "live" in error.found
    assert left(table) == {"old"}


def test_a_plan_that_contains_valid_files_is_not_executed_even_with_approval(
    table: TableBuilder, chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    def counted(spark: SparkSession, *_: object, **__: object) -> DataFrame:
        return spark.sql("SELECT 3L AS count")

    monkeypatch.setattr("maint_assets.assets.stages.vacuum.valid_in_plan", counted)
    with pytest.raises(MaintError, match=r"nothing_valid_in_plan failed.*nothing was changed"):
        chain.plan()
    _, diff = chain.launcher.store.latest(
        chain.launcher.instance, chain.launcher.key(chain.table, "diff")
    )

    error = raised(chain.launch(diff.summary(DiffSummary).plan.digest).error)

    assert isinstance(error, GuardError)
    assert "3 planned paths are needed by a retained version" in str(error)
    assert left(table) == {"live", "old"}


def test_a_run_that_fails_half_way_leaves_the_stages_before_it_materialised(
    table: TableBuilder, chain: Chain
) -> None:
    good = chain.plan()
    before = {stage: last_run_of(chain, stage) for stage in ("snapshot", "valid_files", "diff")}
    table.write_log("00000000000000000003.json", "{")

    failed = chain.launcher.plan(chain.table)

    after = {stage: last_run_of(chain, stage) for stage in before}
    assert failed.error is not None
    assert after == before
    assert chain.launch(good.planned.plan.digest).error is not None
    assert left(table) == {"live", "old"}


def test_the_approver_is_recorded(chain: Chain) -> None:
    done = chain.vacuum()

    assert done.done is not None
    assert (done.done.approved_by, done.done.plan_digest) == (
        "a test",
        done.planned.plan.digest,
    )
    assert replace(done.done, approved_by=None) != done.done


def test_an_executed_plan_is_refused_when_it_is_approved_again_and_nothing_is_written(
    table: TableBuilder, chain: Chain
) -> None:
    report = chain.execute(chain.plan())
    run_id, commits = (
        last_run_of(chain, "deletion"),
        len(list((table.path / "_delta_log").iterdir())),
    )

    error = raised(chain.launch(report.planned.plan.digest).error)

    assert isinstance(error, StalePlanError)
    assert f"was executed by run {run_id} at " in str(error)
    assert len(list((table.path / "_delta_log").iterdir())) == commits
    assert last_run_of(chain, "deletion") == run_id


def test_a_new_plan_of_the_rows_of_an_executed_one_is_executed(chain: Chain) -> None:
    chain.vacuum()
    chain.vacuum()

    assert chain.vacuum().error is None


def test_a_wrong_digest_is_refused_before_spark_starts(
    chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain.plan()

    def started(_: object) -> SparkSession:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("maint_assets.assets.stage_store.session", started)

    error = raised(chain.launch("0" * 32).error)

    assert isinstance(error, StalePlanError)
    assert "the approved plan is 000" in str(error)


def test_a_run_that_is_marked_as_failed_while_it_lives_deletes_nothing(
    table: TableBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As run monitoring does where it has lost the worker."""
    chain = automatic(table, tmp_path)
    instance = chain.launcher.instance
    diff = vacuum.diff

    def marked(*args: Any, **kwargs: Any) -> Any:
        (run,) = [run for run in instance.get_runs() if not run.is_finished]
        instance.report_run_failed(run, "worker not found")
        return diff(*args, **kwargs)

    monkeypatch.setattr(vacuum, "diff", marked)
    launch(chain)

    assert left(table) == {"live", "old"}


def test_an_executed_plan_stays_executed_whatever_is_reported_in_the_ui(
    table: TableBuilder, chain: Chain
) -> None:
    report = chain.execute(chain.plan())
    key = stage_key(chain.table, "deletion", ("maintenance",))
    chain.launcher.instance.report_runless_asset_event(dg.AssetMaterialization(key))

    error = raised(chain.launch(report.planned.plan.digest).error)

    assert "was executed by run" in str(error)


@pytest.mark.parametrize(
    ("planned", "now"),
    [
        ({}, {"retention": "60 days"}),
        ({"retention": "1 hour", "allow_short_retention": True}, {}),
        (
            {"retention": "1 hour", "allow_short_retention": True},
            {"retention": "1 hour"},
        ),
    ],
)
def test_a_plan_that_retains_less_than_the_settings_ask_for_now_is_refused(
    table: TableBuilder, tmp_path: Path, planned: dict[str, Any], now: dict[str, Any]
) -> None:
    chain = Chain.of(table.path, tmp_path / "out", max_delete_share=1, **planned)
    report = chain.plan()
    raised_since = chain.table.model_copy(update={"vacuum": VacuumSettings(**now)})

    with pytest.raises(RefusedError, match="retention"):
        execute_vacuum(chain.launcher, raised_since, report, by="a test")

    assert left(table) == {"live", "old"}


@pytest.mark.parametrize("branch", ["vacuum", "compaction", "log_cleanup"])
def test_a_plan_of_a_place_where_the_table_no_longer_lies_is_refused(
    tmp_path: Path, branch: str
) -> None:
    """A copy has the same id, versions and digest; the approval may be for either."""
    now_ms, days = 1_795_341_600_000, range(40, 0, -1)
    table = TableBuilder(tmp_path / "t", now_ms=now_ms).at(days_ago=41).create().add("old")
    for day in days:
        table.at(days_ago=day).add(f"{day}.parquet", rows=1)
    table.remove("old").checkpoint().age("**/*", 40)
    shutil.copytree(table.path, tmp_path / "elsewhere")
    make = {"vacuum": Chain.of, "compaction": Chain.compacting, "log_cleanup": Chain.cleaning}
    chain = make[branch](table.path, tmp_path / "out")
    plan: dict[str, Any] = {
        "vacuum": chain.plan,
        "compaction": lambda: plan_compaction(chain.launcher, chain.table),
        "log_cleanup": chain.plan_cleanup,
    }
    execute: dict[str, Any] = {
        "vacuum": execute_vacuum,
        "compaction": execute_compaction,
        "log_cleanup": execute_log_cleanup,
    }
    report = plan[branch]()
    before = tree(tmp_path / "t"), tree(tmp_path / "elsewhere")
    moved = chain.table.model_copy(update={"uri": str(tmp_path / "elsewhere")})

    with pytest.raises(StalePlanError, match="has another location now"):
        execute[branch](chain.launcher, moved, report, by="a test")

    assert (tree(tmp_path / "t"), tree(tmp_path / "elsewhere")) == before
