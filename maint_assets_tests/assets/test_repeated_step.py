"""A stage that Dagster retries within its run, on the same ledger, deletes what it reports."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow.dataset as ds
import pytest

from maint_assets.assets.deleting_tasks import deleting
from maint_assets.assets.factory import RESOURCE, build_maintenance_assets
from maint_assets.assets.jobs import executed_keys, stage_store
from maint_assets.assets.stage_run import StageRun
from maint_assets.assets.stages import log_cleanup, vacuum_deletion
from maint_assets.config import LogCleanupSettings, Maintenance, TableSettings, VacuumSettings
from maint_assets.datasets.intents import request_stop
from maint_assets_tests.support.log_builder import LogBuilder

pytestmark = pytest.mark.usefixtures("spark")

BRANCHES = {
    "vacuum": (vacuum_deletion, "deletion"),
    "log_cleanup": (log_cleanup, "deleted_logs"),
}
"""The module of each executing stage, and the name of the stage and of the call that deletes."""


def table_of(path: Path, branch: str) -> TableSettings:
    """A table with something to do for the branch, which runs unattended."""
    log = LogBuilder(path).commits(range(60, 18, -2), checksums=True).checkpoint(10)
    log.table.stray("stray.parquet", age_days=20)
    vacuum, log_cleanup = (
        "auto" if branch == each else "manual" for each in ("vacuum", "log_cleanup")
    )
    return TableSettings(
        name="t",
        uri=str(path),
        vacuum=VacuumSettings(approval=vacuum, max_delete_share=1),
        log_cleanup=LogCleanupSettings(approval=log_cleanup),
    )


def executed(table: TableSettings, stage: str, tmp_path: Path, *, repeats: int) -> tuple[bool, Any]:
    """Whether an unattended run succeeded, and the rows of its ledger."""
    settings = Maintenance(workspace=str(tmp_path / "ws"), tables=(table,))
    job = dg.define_asset_job(
        "job",
        dg.AssetSelection.assets(*executed_keys(table, settings.key_prefix)),
        op_retry_policy=dg.RetryPolicy(max_retries=repeats) if repeats else None,
    )
    definitions = dg.Definitions(
        build_maintenance_assets(table, retries=None),
        jobs=[job],
        resources={RESOURCE: stage_store(settings)},
    )
    with dg.DagsterInstance.ephemeral() as instance:
        run = definitions.resolve_job_def("job").execute_in_process(
            instance=instance, raise_on_error=False
        )
    ledger = tmp_path / "ws" / "t" / stage / run.run_id / "rows"
    files = sorted(ledger.glob("*.parquet"))
    return run.success, ds.dataset(files).to_table().to_pylist() if files else []


@pytest.fixture(params=sorted(BRANCHES))
def branch(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.parametrize("fails", ["before its deletion", "after its deletion"])
def test_it_deletes_what_the_attempt_before_left(
    branch: str, fails: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt's signal to its tasks to stop must not stop those of the second."""
    table = table_of(tmp_path / "t", branch)
    attempts = list[str]()

    def once(call: Callable[..., Any]) -> Callable[..., Any]:
        def played(*args: Any, **kwargs: Any) -> Any:
            attempts.append(branch)
            rows = call(*args, **kwargs)
            if len(attempts) > 1:
                return rows
            if fails.startswith("after"):
                rows.collect()
            raise RuntimeError("the disk had a hiccup")

        return played

    module, stage = BRANCHES[branch]
    monkeypatch.setattr(module, stage, once(getattr(module, stage)))
    before = {path.name for path in (tmp_path / "t").rglob("*") if path.is_file()}

    success, rows = executed(table, stage, tmp_path, repeats=1)

    after = {path.name for path in (tmp_path / "t").rglob("*") if path.is_file()}
    gone = {row["path"].rpartition("/")[2] for row in rows if row["outcome"] == "deleted"}
    assert (success, len(attempts)) == (True, 2)
    assert gone
    assert gone == before - after


def test_a_stage_whose_tasks_ended_before_all_is_done_fails(
    branch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever stopped the tasks: the stage must not report files as deleted that are left."""
    table = table_of(tmp_path / "t", branch)

    @contextlib.contextmanager
    def stopped(run: StageRun, *args: Any, **kwargs: Any) -> Iterator[None]:
        with deleting(run, *args, **kwargs):
            request_stop(run.output.rows_location)
            yield

    monkeypatch.setattr(BRANCHES[branch][0], "deleting", stopped)

    success, rows = executed(table, BRANCHES[branch][1], tmp_path, repeats=0)

    assert (success, rows) == (False, [])
