"""The executing stage of the vacuum chain: approve, check limits, START, delete, END, verify."""

from __future__ import annotations

import contextlib
import logging
import time
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from maint_assets.assets.approval import refuse_changed_plan, refuse_other_mode
from maint_assets.assets.deleting_tasks import deleting, refuse_unreached
from maint_assets.assets.interrupts import INTERRUPTS
from maint_assets.assets.progress import Share, recorded_share, tasks_of
from maint_assets.assets.spark_resource import SPARK_ERRORS, typed_errors
from maint_assets.assets.stage_store import Dataset, StageResult
from maint_assets.assets.stages.vacuum import asked_retention_ms
from maint_assets.config import milliseconds
from maint_assets.datasets.ledger import (
    DeletionLocations,
    Tally,
    ledger_files,
    ledger_parts,
    refuse_unrecorded,
    tally,
)
from maint_assets.errors import DeletionFailedError, MaintError, StorageError, one_line
from maint_assets.vacuum import history
from maint_assets.vacuum.cross_checks import CHECKS_PER_TASK, missing_files
from maint_assets.vacuum.deletion import (
    DELETION_SCHEMA,
    SMALL_PLAN,
    deletion,
    directory_deletion,
    ready_head,
    recorded,
)
from maint_assets.vacuum.diff import DIFF_SCHEMA
from maint_assets.vacuum.handled import handled_by, handled_version
from maint_assets.vacuum.plan import Deleted, Limits, refuse_beyond
from maint_assets.vacuum.summaries import DeletionSummary, DiffSummary

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Row

    from maint_assets.assets.approval import Approval
    from maint_assets.assets.stage_run import StageRun
    from maint_assets.config import TableSettings, VacuumSettings
    from maint_assets.snapshot.head import TableHead
    from maint_assets.storage.location import Location
    from maint_assets.vacuum.plan import VacuumPlan

logger = logging.getLogger(__name__)


def deletion_stage(run: StageRun, approval: Approval) -> StageResult:
    """Execute the plan of ``diff``, approved by its digest or made by the same run.

    Raises StalePlanError, GuardError and UnsupportedFeatureError before anything is touched,
    DeletionFailedError when planned paths are still there afterwards.
    """
    plan = _approved_plan(run, approval)
    location = run.located(plan.table)
    settings = run.table.vacuum
    kept_ms = partial(asked_retention_ms, settings=settings)
    head = ready_head(plan, location, _limits(settings), kept_ms=kept_ms, now_ms=run.now_ms())
    # Tasks stop at a commit that raises the retention of the table beyond the one checked here.
    plan = replace(plan, table_retention_ms=head.properties.deleted_file_retention_ms)
    history.log_planned(plan, dry_run=False)
    started = time.monotonic()
    done = _deleted(run, plan, head)
    history.log_deleted(plan, done)
    summary = _summary(
        plan,
        done,
        seconds=time.monotonic() - started,
        ledger=run.output.rows_location,
        approved_by=approval.by,
    )
    written = Dataset(done.paths, plan.digest, {})
    with contextlib.suppress(MaintError, OSError):  # written again below, and raised there
        _write(run, written, summary)
    summary = _with_end(run, plan, done, summary=summary)
    found = _active_missing(run, plan) if done.files else plan.missing_files
    made = _write(run, written, replace(summary, active_missing=found))
    _raise_failed(plan, summary)
    if not summary.skipped:  # the next LITE must find a skipped file again
        _note_handled(run, plan, head)
    return made


def deletion_progress(run: StageRun) -> Share | None:
    """Planned paths with a recorded outcome; before the first batch is recorded, tasks."""
    if "diff" not in run.known:
        return tasks_of(run)
    share = recorded_share(
        run.output.rows_location, lambda: run.summary("diff", DiffSummary).plan.paths
    )
    return share or tasks_of(run)


def _approved_plan(run: StageRun, approval: Approval) -> VacuumPlan:
    """The plan, if it is approved, it still has its digest, and it is within the limits."""
    plan = run.summary("diff", DiffSummary).plan
    approval.refuse_other(run, "diff", plan.digest, table=plan.table)
    refuse_changed_plan(run, "diff", plan, schema=DIFF_SCHEMA)
    refuse_other_mode(plan.mode, run.table.vacuum.mode, table=plan.table)
    refuse_beyond(plan, _limits(run.table.vacuum), attended=approval.is_attended)
    return plan


def _note_handled(run: StageRun, plan: VacuumPlan, head: TableHead) -> None:
    """Record up to which version the log is handled; never goes back.

    What is not recorded is read again by the next VACUUM LITE: an error is a warning.
    """
    try:
        found = handled_by(plan, head.location)
        if found is None:
            return
        if found.version > handled_version(run.store.handled(run.table.name), head):
            run.store.write_handled(run.table.name, found)
    except (MaintError, OSError) as error:
        logger.warning("the handled version was not recorded: %s", error)


def _deleted(run: StageRun, plan: VacuumPlan, head: TableHead) -> Deleted:
    """Commit START and delete; END says FAILED if anything ends the deletion early."""
    refuse_unrecorded(run.output.rows_location, plan.paths)
    if plan.files + plan.directories == 0:
        return Deleted(0, 0, 0, 0, 0, 0)
    run.refuse_stopping()
    if not _commits_records(run.table, head.location):
        return _executed(run, plan)
    start_version = history.start(head, plan, now_ms=run.now_ms)
    try:
        done = _executed(run, plan)
    except BaseException:  # Terminate too: the log must not end with START
        with contextlib.suppress(MaintError, OSError):  # report what ended the deletion, not this
            found = _deleted_of(tally(run.output.rows_location))
            history.end(head.location, plan, found, now_ms=run.now_ms, is_whole=False)
        raise
    return replace(done, start_version=start_version)


def _with_end(
    run: StageRun, plan: VacuumPlan, done: Deleted, *, summary: DeletionSummary
) -> DeletionSummary:
    """The summary with the END commit, or with the error that prevented it: all is deleted."""
    if done.start_version is None:
        return summary
    try:
        version = history.end(run.located(plan.table), plan, done, now_ms=run.now_ms)
    except (MaintError, OSError) as error:
        logger.warning("VACUUM END was not committed: %s", error)
        return replace(summary, end_error=one_line(error))
    return replace(summary, end_version=version)


def _write(run: StageRun, written: Dataset, summary: DeletionSummary) -> StageResult:
    run.output.write_manifest(written, *ledger_parts(run.output.rows_location))
    return run.result(written, summary)


def _commits_records(settings: TableSettings, location: Location) -> bool:
    """Whether to commit START and END; on S3 only if ``storage.commit`` is set."""
    may_commit = location.is_local or settings.storage.commit is not None
    return settings.vacuum.log_commits and may_commit


def _executed(run: StageRun, plan: VacuumPlan) -> Deleted:
    parts, ledger = run.upstream("diff").parts(), run.output.rows_location
    is_repeated = bool(ledger_files(ledger))
    locations = DeletionLocations(run.located(plan.table), ledger)
    jobs = [deletion(run.spark, parts, plan, locations=locations, parallelism=run.parallelism)]
    if plan.paths > SMALL_PLAN and plan.directories:
        jobs.append(directory_deletion(run.spark, parts, plan, locations=locations))
    try:
        with deleting(run, plan.paths, digest=plan.digest), typed_errors():
            outcomes = [row for job in jobs for row in job.collect()]
    except StorageError as error:
        recorded_paths = sum(part.rows for part in ledger_parts(ledger)[0])
        found = f"{error.found}; outcomes of {recorded_paths} of {plan.paths} paths are recorded"
        raise StorageError(error.table, found, error.remedy) from error
    # A task that ran again returns only what it did itself: the ledger has the outcomes of both.
    if is_repeated or any(row["attempt"] for row in outcomes):
        ledger_rows = run.spark.read.schema(DELETION_SCHEMA).parquet(ledger.path)
        outcomes = recorded(ledger_rows).collect()
    found = _tally_of(outcomes)
    refuse_unreached(found.paths, plan.paths, table=run.table.uri, ledger=ledger)
    run.hold(even_stopping=True)  # each path has its outcome: the result counts
    return _deleted_of(found)


def _tally_of(totals: Iterable[Row]) -> Tally:
    """The tally of the outcomes that tasks returned."""
    files, directories, size = Counter[str](), Counter[str](), 0
    for row in totals:
        (directories if row["is_directory"] else files)[row["outcome"]] += row["paths"]
        if row["outcome"] == "deleted" and not row["is_directory"]:
            size += row["bytes"]
    return Tally(files, directories, size)


def _deleted_of(found: Tally) -> Deleted:
    both = found.files + found.directories
    return Deleted(
        files=found.files["deleted"],
        directories=found.directories["deleted"],
        bytes=found.bytes,
        missing=both["missing"],
        failed=both["failed"],
        skipped=both["skipped"],
    )


def _summary(
    plan: VacuumPlan,
    done: Deleted,
    *,
    seconds: float,
    ledger: Location,
    approved_by: str | None,
) -> DeletionSummary:
    return DeletionSummary(
        plan_digest=plan.digest,
        files=done.files,
        directories=done.directories,
        bytes=done.bytes,
        missing=done.missing,
        failed=done.failed,
        skipped=done.skipped,
        active_missing=None,
        seconds=round(seconds, 3),
        files_per_second=round(done.files / seconds, 1),
        start_version=done.start_version,
        end_version=None,
        ledger=ledger.path,
        approved_by=approved_by,
        active_missing_before=plan.missing_files,
    )


def _active_missing(run: StageRun, plan: VacuumPlan) -> int | None:
    """The number of live files that are missing now; None if an error ended the count."""
    try:
        kept = run.rows("valid_files", task_rows=CHECKS_PER_TASK)
        counts = missing_files(kept, location=run.located(plan.table)).collect()
        return sum(row["count"] for row in counts)
    except (MaintError, *SPARK_ERRORS, OSError, *INTERRUPTS) as error:
        logger.warning("live files were not counted after the deletion: %s", one_line(error))
        return None


def _limits(settings: VacuumSettings) -> Limits:
    return Limits(
        max_delete_share=settings.max_delete_share,
        max_delete_files=settings.max_delete_files,
        plan_max_age_ms=milliseconds(settings.plan_max_age),
        allow_missing_files=settings.allow_missing_files,
        allow_clock_skew=settings.allow_clock_skew,
    )


def _raise_failed(plan: VacuumPlan, summary: DeletionSummary) -> None:
    if summary.failed:
        raise DeletionFailedError(
            plan.table,
            f"{summary.failed} of {plan.paths} planned paths could not be deleted",
            f"see each in the ledger {summary.ledger}, fix the cause and run the deletion again",
        )
