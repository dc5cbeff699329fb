"""The log cleanup chain stage by stage: the plan of expired files, and its execution."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from maint_assets.assets.approval import plan_digest, refuse_changed_plan, refuse_other_mode
from maint_assets.assets.deleting_tasks import deleting, refuse_unreached
from maint_assets.assets.numbers import human_time
from maint_assets.assets.progress import Share, recorded_share, tasks_of
from maint_assets.assets.spark_resource import typed_errors
from maint_assets.assets.stage_store import Dataset, StageResult
from maint_assets.commit.checkpoint.writer import write_checkpoint
from maint_assets.config import milliseconds
from maint_assets.datasets.columns import arrow_schema
from maint_assets.datasets.ledger import (
    DeletionLocations,
    ledger_files,
    ledger_parts,
    refuse_unrecorded,
)
from maint_assets.datasets.parts import Target, Written
from maint_assets.datasets.rows import encode_result, units
from maint_assets.delta.properties import TableProperties
from maint_assets.delta.timestamps import duration_text
from maint_assets.errors import DeletionFailedError, LogGapError, StalePlanError
from maint_assets.log_cleanup.boundary import proven_anchors
from maint_assets.log_cleanup.checkpoints.comparing import Cluster, is_small
from maint_assets.log_cleanup.checkpoints.soundness import Soundness
from maint_assets.log_cleanup.deletion import (
    DELETED_LOGS_SCHEMA,
    Cleaned,
    deleted_logs,
    proven_anchor,
    recorded,
    refuse_clock_skew,
)
from maint_assets.log_cleanup.expired_logs import (
    EXPIRED_MEASURES,
    EXPIRED_SCHEMA,
    ORDER,
    Findings,
    expired_logs,
)
from maint_assets.log_cleanup.log_directory import log_directory
from maint_assets.log_cleanup.plan import (
    LogCleanupPlan,
    Terms,
    ready_head,
    retention_ms,
    terms,
)
from maint_assets.snapshot.commits import refuse_other_commit
from maint_assets.snapshot.head import table_head
from maint_assets.snapshot.log import Checkpoint
from maint_assets.snapshot.summary import SnapshotSummary, refuse_mismatch, refuse_operation

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from maint_assets.assets.approval import Approval
    from maint_assets.assets.stage_run import StageRun
    from maint_assets.config import LogCleanupSettings
    from maint_assets.log_cleanup.boundary import Proven
    from maint_assets.snapshot.head import TableHead
    from maint_assets.storage.location import Location

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ExpiredLogsSummary:
    """The plan of a log cleanup by kind, and the size of the log; sizes in bytes.

    ``cutoff_version`` is the newest commit at or before the cutoff, ``versions_ending`` counts
    those that cannot be read afterwards but could before, ``ending`` has first and last of each run
    of them. ``rejected`` names checkpoints that cannot be what the
    log begins with, ``notes`` what else a person should know.
    """

    plan: LogCleanupPlan
    by_kind: dict[str, int]
    bytes_by_kind: dict[str, int]
    cutoff_version: int | None
    versions_ending: int
    ending: list[tuple[int, int]]
    rejected: list[str]
    notes: list[str]
    log_files: int
    log_bytes: int
    log_commits: int
    log_checkpoints: int


@dataclass(frozen=True, slots=True)
class DeletedLogsSummary:
    """What a log cleanup did: numbers of files, bytes of deleted files.

    ``earliest_version`` is the oldest version that can be read afterwards, ``checkpoint_version``
    the checkpoint that was written for the log to begin with.
    """

    plan_digest: str
    files: int
    bytes: int
    missing: int
    failed: int
    skipped: int
    by_kind: dict[str, int]
    earliest_version: int | None
    checkpoint_version: int | None
    log_files: int
    log_bytes: int
    seconds: float
    files_per_second: float
    ledger: str
    approved_by: str | None


class _Asked(msgspec.Struct, frozen=True):
    """Input of the planning task: the terms, and the verdicts on checkpoints."""

    terms: Terms
    proven: list[tuple[Checkpoint, Soundness]]


class _Planned(msgspec.Struct, frozen=True):
    """Output of the planning task."""

    written: Written
    findings: Findings


def expired_logs_stage(run: StageRun) -> StageResult:
    """Plan which log files no retained version needs, or why none can be deleted."""
    seen = run.summary("snapshot", SnapshotSummary)
    refuse_mismatch(seen)
    refuse_operation(seen, "clean_log")
    location = run.located(seen.table)
    asked = _asked_terms(
        seen,
        run.table.log_cleanup,
        planned_ms=run.now_ms(),
        time_slack_ms=location.time_slack_ms,
    )
    refuse_other_commit(location, seen.version, seen.commit_mark)
    planned = _planned(run, asked, location)
    written = run.output.written_rows(planned.written, EXPIRED_SCHEMA)
    found, metrics = planned.findings, written.metrics
    by_kind = {kind: metrics[f"kind_{kind}"] for kind in ORDER if metrics[f"kind_{kind}"]}
    summary = ExpiredLogsSummary(
        plan=_plan(seen, asked, found, written=written),
        by_kind=by_kind,
        bytes_by_kind={kind: metrics[f"bytes_{kind}"] for kind in by_kind},
        cutoff_version=found.cutoff_version,
        versions_ending=sum(last - first + 1 for first, last in found.ending),
        ending=found.ending,
        rejected=found.rejected,
        notes=[*_notes(asked, run.table.log_cleanup), *_lite_notes(run, seen, found), *found.notes],
        log_files=found.log_files,
        log_bytes=found.log_bytes,
        log_commits=found.log_commits,
        log_checkpoints=found.log_checkpoints,
    )
    return run.result(written, summary)


def deleted_logs_stage(run: StageRun, approval: Approval) -> StageResult:
    """Execute the plan of ``expired_logs``: write the anchor, then delete and record each file.

    Refusals are raised before anything is touched, DeletionFailedError if planned
    files could not be deleted.
    """
    seen = _approved_plan(run, approval)
    plan, ledger = seen.plan, run.output.rows_location
    head = _ready_head(run, plan)
    started = time.monotonic()
    logger.info("Starting the deletion of log files older than %s", _gmt(plan.cutoff_ms))
    refuse_unrecorded(ledger, plan.files)  # before the anchor: nothing may change without a ledger
    checkpoint = _written_anchor(run, head, plan)
    done = _executed(run, seen)
    logger.info("Deleted %s log files older than %s", done.count("deleted"), _gmt(plan.cutoff_ms))
    summary = _summary(
        plan,
        done,
        checkpoint_version=checkpoint,
        seconds=time.monotonic() - started,
        ledger=ledger,
        approved_by=approval.by,
    )
    # The outcome is recorded before the failure of some files is raised.
    written = Dataset(done.recorded, plan.digest, {})
    run.output.write_manifest(written, *ledger_parts(ledger))
    made = run.result(written, summary)
    _raise_failed(head.location, plan, summary)
    return made


def log_deletion_progress(run: StageRun) -> Share | None:
    """Planned files with a recorded outcome; before the first batch is recorded, tasks."""
    if "expired_logs" not in run.known:
        return tasks_of(run)
    share = recorded_share(
        run.output.rows_location,
        lambda: run.summary("expired_logs", ExpiredLogsSummary).plan.files,
    )
    return share or tasks_of(run)


def _approved_plan(run: StageRun, approval: Approval) -> ExpiredLogsSummary:
    """The summary of the plan, if it is the approved one and still has its digest."""
    seen = run.summary("expired_logs", ExpiredLogsSummary)
    plan = seen.plan
    approval.refuse_other(run, "expired_logs", plan.digest, table=plan.table)
    refuse_changed_plan(run, "expired_logs", plan, schema=EXPIRED_SCHEMA)
    refuse_other_mode(plan.mode, run.table.log_cleanup.mode, table=plan.table)
    return seen


def _ready_head(run: StageRun, plan: LogCleanupPlan) -> TableHead:
    """The newest version of the table. Raises if it, the settings or the clock forbid the plan."""
    settings = run.table.log_cleanup
    head = ready_head(
        plan,
        run.located(plan.table),
        max_age_ms=milliseconds(settings.plan_max_age),
        force=settings.force,
        kept_ms=partial(_kept_ms, settings=settings, table=plan.table),
        now_ms=run.now_ms(),
    )
    _refuse_more_kept(plan, settings)
    if plan.files and not settings.allow_clock_skew:
        refuse_clock_skew(head.location, now_ms=run.now_ms())
    return head


def _summary(
    plan: LogCleanupPlan,
    done: Cleaned,
    *,
    checkpoint_version: int | None,
    seconds: float,
    ledger: Location,
    approved_by: str | None,
) -> DeletedLogsSummary:
    deleted = {kind: done.outcomes.get(kind, {}).get("deleted", 0) for kind in ORDER}
    return DeletedLogsSummary(
        plan_digest=plan.digest,
        files=done.count("deleted"),
        bytes=done.bytes,
        missing=done.count("missing"),
        failed=done.count("failed"),
        skipped=done.count("skipped"),
        by_kind={kind: files for kind, files in deleted.items() if files},
        earliest_version=done.earliest_version,
        checkpoint_version=checkpoint_version,
        log_files=done.log_files,
        log_bytes=done.log_bytes,
        seconds=round(seconds, 3),
        files_per_second=round(done.count("deleted") / seconds, 1),
        ledger=ledger.path,
        approved_by=approved_by,
    )


def _asked_terms(
    seen: SnapshotSummary, settings: LogCleanupSettings, *, planned_ms: int, time_slack_ms: int
) -> Terms:
    """The terms of the plan from the settings. Raises RetentionError for a retention too short."""
    if seen.properties is None:
        raise StalePlanError(
            seen.table,
            "its snapshot was made by an older release of maint_assets",
            "run the chain again",
        )
    properties = TableProperties.of(seen.properties, table=seen.table)
    kept_ms = _kept_ms(properties, settings=settings, table=seen.table)
    return terms(
        properties,
        {*seen.reader_features, *seen.writer_features},
        planned_ms=planned_ms,
        retention_ms=kept_ms,
        granularity=settings.granularity,
        mode=settings.mode,
        force=settings.force,
        creates_anchor=settings.create_anchor_checkpoint,
        min_keep_version=settings.min_keep_version,
        time_slack_ms=time_slack_ms,
    )


def _kept_ms(properties: TableProperties, *, settings: LogCleanupSettings, table: str) -> int:
    asked = None if settings.retention is None else milliseconds(settings.retention)
    is_allowed = settings.allow_short_retention or settings.mode == "spark"
    return retention_ms(properties, asked, allow_short=is_allowed, table=table)


def _refuse_more_kept(plan: LogCleanupPlan, settings: LogCleanupSettings) -> None:
    """Raise StalePlanError if the settings now retain versions that the plan gives up."""
    kept, anchor = settings.min_keep_version, plan.anchor_version
    if kept is not None and anchor is not None and kept < anchor:
        found = f"version {kept} is to be kept now, the plan keeps from {anchor} on"
        raise StalePlanError(plan.table, found, "plan again")


def _notes(asked: Terms, settings: LogCleanupSettings) -> list[str]:
    """Notes on why versions are kept longer than the table's own retention."""
    if settings.retention is not None or asked.retention_ms == asked.table_retention_ms:
        return []
    return [
        f"versions are kept as long as removed files, {duration_text(asked.retention_ms)}: the "
        f"table's log retention of {duration_text(asked.table_retention_ms)} is shorter"
    ]


def _lite_notes(run: StageRun, seen: SnapshotSummary, found: Findings) -> list[str]:
    """Notes on commits that VACUUM LITE has not handled yet and would need."""
    known, anchor = seen.expired_log["handled"], found.anchor_version
    handled = -1 if known is None else known
    is_used = handled >= 0 or run.table.vacuum.mode == "lite"
    if anchor is None or handled + 1 >= anchor or not is_used:
        return []
    done = "no version" if handled < 0 else f"version {handled}"
    return [f"maint_assets' VACUUM has handled {done}: run mode full once before mode lite"]


def _planned(run: StageRun, asked: Terms, place: Location) -> _Planned:
    """The rows of the plan, written by the task that computes them."""
    target = Target(run.output.rows_location.path, arrow_schema(EXPIRED_SCHEMA), EXPIRED_MEASURES)

    def planned(some: list[_Asked]) -> Iterator[pa.RecordBatch]:
        for each in some:
            rows, found = expired_logs(place, each.terms, dict(each.proven))
            yield encode_result(_Planned(target.written(rows.to_batches()), found))

    unit = _Asked(asked, list(_proven(run, asked, place).items()))
    (made,) = units(run.spark, [[unit]], planned, kind=_Asked).values(_Planned)
    return made


def _proven(run: StageRun, asked: Terms, place: Location) -> Proven:
    """Verdicts on possible anchors of a large log; for small logs the planning task finds them."""
    log = log_directory(place)
    if not asked.enabled or asked.mode == "spark" or is_small(log):
        return {}
    with run.output.scratch() as scratch:
        cluster = Cluster(run.spark, run.parallelism, scratch)
        return proven_anchors(log, asked, cluster)


def _plan(
    seen: SnapshotSummary, asked: Terms, found: Findings, *, written: Dataset
) -> LogCleanupPlan:
    plan = LogCleanupPlan(
        table=seen.table,
        table_id=seen.table_id,
        version=seen.version,
        mode=asked.mode,
        cutoff_ms=asked.cutoff_ms,
        retention_ms=asked.retention_ms,
        table_retention_ms=asked.table_retention_ms,
        planned_ms=asked.planned_ms,
        digest="",
        files=written.rows,
        bytes=written.metrics["bytes"],
        anchor_version=found.anchor_version,
        creates_anchor=found.creates_anchor,
        stop_reason=found.stop_reason,
        earliest_version_before=found.earliest_before,
        earliest_version_after=found.earliest_after,
        protection_before=asked.protection_before,
        commit_mark=seen.commit_mark,
    )
    return replace(plan, digest=plan_digest(plan, written.digest))


def _written_anchor(run: StageRun, head: TableHead, plan: LogCleanupPlan) -> int | None:
    """Write the anchor checkpoint if the plan asks for one; its version, or None.

    It keeps all tombstones: later versions are replayed from it, and may retain them longer.
    """
    if not plan.creates_anchor or plan.anchor_version is None:
        return None
    with run.output.scratch() as scratch, typed_errors():
        write_checkpoint(
            run.spark,
            table_head(head.location, version=plan.anchor_version),
            parallelism=run.parallelism,
            scratch=scratch,
            now_ms=None,
        )
    return plan.anchor_version


def _executed(run: StageRun, seen: ExpiredLogsSummary) -> Cleaned:
    plan = seen.plan
    if not plan.files:
        return Cleaned({}, 0, plan.earliest_version_before, seen.log_files, seen.log_bytes, 0)
    ledger = run.output.rows_location
    is_repeated = bool(ledger_files(ledger))
    locations = DeletionLocations(run.located(plan.table), ledger)
    with run.output.scratch() as scratch, typed_errors():
        anchor = proven_anchor(locations.table, plan, Cluster(run.spark, run.parallelism, scratch))
    with deleting(run, plan.files, digest=plan.digest), typed_errors():
        parts = run.upstream("expired_logs").parts()
        rows = deleted_logs(run.spark, parts, plan, locations=locations, anchor=anchor)
        (done,) = rows.values(Cleaned)
    # A task that ran again returns only what it did itself: the ledger has the outcomes of both.
    if is_repeated or done.attempt:
        rows = run.spark.read.schema(DELETED_LOGS_SCHEMA).parquet(ledger.path)
        done = msgspec.structs.replace(done, outcomes=recorded(rows))
    refuse_unreached(done.recorded, plan.files, table=run.table.uri, ledger=ledger)
    run.hold(even_stopping=True)  # each file has its outcome: the result counts
    return done


def _raise_failed(location: Location, plan: LogCleanupPlan, summary: DeletedLogsSummary) -> None:
    if summary.failed:
        raise DeletionFailedError(
            plan.table,
            f"{summary.failed} of {plan.files} planned log files could not be deleted",
            f"see each in the ledger {summary.ledger}, fix the cause and clean the log again",
        )
    _refuse_unreadable(location, plan, summary)


def _refuse_unreadable(
    location: Location, plan: LogCleanupPlan, summary: DeletedLogsSummary
) -> None:
    """Raise LogGapError if a version that was to be kept cannot be replayed any more."""
    if not plan.files:
        return
    found, promised = summary.earliest_version, plan.earliest_version_after
    if found is None or (promised is not None and found > promised):
        raise LogGapError(
            plan.table,
            f"can be read from version {found} on, planned was {promised}",
            "see what else changed the log; the ledger names what was deleted here",
        )
    for version in (found, None):
        table_head(location, version=version)


def _gmt(time_ms: int) -> str:
    """A time as Java prints it, and so delta-spark in the log lines that ours repeat."""
    shown = human_time(time_ms)
    if not shown.endswith("UTC"):
        return shown
    at = datetime.fromtimestamp(time_ms / 1000, timezone.utc)
    return at.strftime("%d %b %Y %H:%M:%S GMT").removeprefix("0")
