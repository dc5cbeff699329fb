"""The compaction chain stage by stage: the plan of bins, and its execution batch by batch."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from maint_assets.assets.approval import plan_digest, refuse_changed_plan
from maint_assets.assets.interrupts import INTERRUPTS
from maint_assets.assets.spark_resource import SPARK_ERRORS, typed_errors
from maint_assets.assets.stage_store import Dataset, StageResult
from maint_assets.commit.checkpoint.writer import write_checkpoint
from maint_assets.commit.overwriting import refuse_overwriting_writers, refuse_overwritten
from maint_assets.commit.transaction import refuse_clock_skew
from maint_assets.compaction.engines.arrow import REWRITTEN_ARROW
from maint_assets.compaction.execution import ExecutionParameters, rewrite_batch
from maint_assets.compaction.plan import CompactionPlan, Selection, ready_head
from maint_assets.compaction.planning.bin_plan import planned_bins
from maint_assets.compaction.planning.partition_filter import failed_values
from maint_assets.compaction.planning.schema import (
    BINS_MEASURES,
    COMPACTION_SCHEMA,
    LEFT_OUT_REASONS,
    PLANNED,
    PLANNED_REASONS,
)
from maint_assets.compaction.planning.tasks import commit_batches, rewrite_tasks
from maint_assets.compaction.reporting.metrics import (
    REWRITTEN_COUNTS,
    REWRITTEN_MEASURES,
    RewriteMetrics,
)
from maint_assets.compaction.reporting.outcome import Outcome
from maint_assets.compaction.reporting.skipping import ColumnSkipping, Versions, column_skipping
from maint_assets.compaction.row_check import RowCheck
from maint_assets.compaction.writing.target import rewriting
from maint_assets.config import milliseconds
from maint_assets.datasets.ledger import refuse_unrecorded
from maint_assets.datasets.parts import Target, Written, evaluate_measures
from maint_assets.errors import (
    MaintError,
    OverwrittenError,
    RewriteError,
    StoppedError,
    StorageError,
)
from maint_assets.snapshot.commits import refuse_other_commit
from maint_assets.snapshot.head import table_head
from maint_assets.snapshot.summary import SnapshotSummary, refuse_mismatch, refuse_operation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from maint_assets.assets.approval import Approval
    from maint_assets.assets.stage_run import StageRun
    from maint_assets.config import CompactionSettings
    from maint_assets.snapshot.head import TableHead


logger = logging.getLogger(__name__)

SHOWN_REASONS = 20


@dataclass(frozen=True, slots=True)
class BinsSummary:
    """The plan of a rewrite, with its files by reason and by size.

    ``sizes`` counts all live files, ``planned_sizes`` those of bins.
    """

    plan: CompactionPlan
    by_reason: dict[str, int]
    sizes: dict[str, int]
    planned_sizes: dict[str, int]


@dataclass(frozen=True, slots=True)
class RewrittenSummary:
    """What a rewrite did; sizes in bytes, rows are live ones.

    ``bins`` were committed, in ``versions``, by the engines in ``bins_by_engine`` (arrow, spark);
    ``dropped``, ``refused`` and ``failed`` count bins that were not, ``not_committed`` says why.
    ``verified_bins`` are committed ones whose new file was read again and compared with its inputs
    row by row. ``metrics`` are those of Delta's OPTIMIZE, ``skipping`` tells files read by lookups.
    """

    plan_digest: str
    bins: int
    verified_bins: int
    files_removed: int
    files_added: int
    bytes_removed: int
    bytes_added: int
    rows_removed: int
    rows_added: int
    vectors_removed: int
    dropped: int
    refused: int
    failed: int
    not_committed: dict[str, int]
    versions: list[int]
    checkpoint_version: int | None
    sizes_before: dict[str, int]
    sizes_after: dict[str, int]
    seconds: float
    approved_by: str | None
    metrics: RewriteMetrics
    bins_by_engine: dict[str, int]
    skipping: list[ColumnSkipping] | None = None


def compaction_bins_stage(run: StageRun) -> StageResult:
    """Plan which live files to rewrite together: a pure function of the snapshot."""
    seen = run.summary("snapshot", SnapshotSummary)
    refuse_mismatch(seen)
    refuse_operation(seen, "rewrite")
    head = table_head(run.located(seen.table), version=seen.version)
    refuse_other_commit(head.location, seen.version, seen.commit_mark)
    selection = asked_selection(run.table.compaction)
    how = rewriting(head, selection)
    with run.output.scratch() as scratch, failed_values(selection.where, table=head.table):
        rows = planned_bins(
            run.spark,
            head,
            selection,
            how=how,
            live_files=seen.live_files,
            parallelism=run.parallelism,
            scratch=scratch,
        )
        written = run.output.write_rows([rows], COMPACTION_SCHEMA, BINS_MEASURES, keep=PLANNED)
    plan = _plan(seen, selection, written=written)
    metrics = written.metrics
    by_reason = {name: metrics[f"reason_{name}"] for name in PLANNED_REASONS}
    found = {name: count for name, count in by_reason.items() if count}
    planned_sizes = {name: metrics[f"planned {name}"] for name in seen.size_histogram}
    summary = BinsSummary(plan, found, seen.size_histogram, planned_sizes)
    return run.result(written, summary)


def rewritten_files_stage(run: StageRun, approval: Approval) -> StageResult:
    """Execute the plan of ``compaction_bins``: rewrite, commit and record it batch by batch.

    Refusals are raised before anything is written, RewriteError for failed bins
    after all others are committed.
    """
    seen = _approved_bins(run, approval)
    terms = _terms(run, seen.plan)
    started, started_ms = time.monotonic(), run.now_ms()
    total, outcome, ended = _executed(run, terms)
    summary = _summary(
        terms,
        total,
        outcome,
        sizes=seen.sizes,
        seconds=time.monotonic() - started,
        times_ms=(started_ms, run.now_ms()),
        approved_by=approval.by,
        skipping=_skipping(run, terms, outcome),
    )
    made = _written_result(run, total, summary, table=terms.plan.table)
    checkpoint = _checkpointed(run, terms.head, outcome.versions)
    if checkpoint is not None:
        made = run.result(made.written, replace(summary, checkpoint_version=checkpoint))
    try:
        refuse_overwritten(terms.head.location, outcome.commits)
    except OverwrittenError as error:
        raise error from ended
    _raise_unfinished(run, terms.plan, summary, ended=ended)
    return made


def _written_result(
    run: StageRun, total: Written, summary: RewrittenSummary, *, table: str
) -> StageResult:
    """Write manifest and summary. Raises StorageError, with the committed versions."""
    dataset = Dataset(total.rows, summary.plan_digest, total.measured)
    try:
        run.output.write_manifest(dataset, total.parts, total.largest)
        return run.result(dataset, summary)
    except StorageError as error:
        versions = ", ".join(map(str, summary.versions)) or "none"
        found = f"{error.found}, so that the result is not recorded; committed versions: {versions}"
        raise StorageError(table, found, "make room, and plan again") from error


def _approved_bins(run: StageRun, approval: Approval) -> BinsSummary:
    """The summary of the plan, if it is the approved one and still has its digest."""
    seen = run.summary("compaction_bins", BinsSummary)
    plan = seen.plan
    approval.refuse_other(run, "compaction_bins", plan.digest, table=plan.table)
    refuse_changed_plan(run, "compaction_bins", plan, schema=COMPACTION_SCHEMA)
    return seen


def _terms(run: StageRun, plan: CompactionPlan) -> ExecutionParameters:
    """The parameters of the execution. Raises whatever forbids it."""
    settings = run.table.compaction
    max_age_ms = milliseconds(settings.plan_max_age)
    location = run.located(plan.table)
    head = ready_head(plan, location, max_age_ms=max_age_ms, now_ms=run.now_ms())
    if plan.files and not settings.allow_clock_skew:
        refuse_clock_skew(head.location, now_ms=run.now_ms())
    if plan.files:
        refuse_overwriting_writers(head, run.table.storage.commit)
    return ExecutionParameters(plan, head, rewriting(head, plan.selection), run.now_ms)


def _summary(  # noqa: PLR0913
    terms: ExecutionParameters,
    total: Written,
    outcome: Outcome,
    *,
    sizes: dict[str, int],
    seconds: float,
    times_ms: tuple[int, int],
    approved_by: str | None,
    skipping: list[ColumnSkipping] | None,
) -> RewrittenSummary:
    plan, bins = terms.plan, outcome.bins
    return RewrittenSummary(
        plan_digest=plan.digest,
        bins=bins["committed"],
        verified_bins=outcome.verified,
        **{name: total.measured[name] for name in REWRITTEN_COUNTS},
        dropped=bins["dropped"],
        refused=bins["refused"],
        failed=bins["failed"],
        not_committed=dict(outcome.reasons.most_common(SHOWN_REASONS)),
        versions=outcome.versions,
        checkpoint_version=None,
        sizes_before=sizes,
        sizes_after=_sizes_after(sizes, total.measured),
        seconds=round(seconds, 3),
        approved_by=approved_by,
        metrics=RewriteMetrics.of(
            total.measured,
            outcome,
            how=terms.how,
            considered=plan.considered_files,
            times_ms=times_ms,
        ),
        bins_by_engine=dict(sorted(outcome.engines.items())),
        skipping=skipping,
    )


def _raise_unfinished(
    run: StageRun, plan: CompactionPlan, summary: RewrittenSummary, *, ended: Exception | None
) -> None:
    """Raise what ended the execution early, or RewriteError if bins failed."""
    if run.is_stopping and not run.is_held:
        raise _stopped(run, summary, plan)
    if ended is not None:
        raise ended
    if summary.failed:
        raise RewriteError(
            plan.table,
            f"{summary.failed} of {plan.bins} bins failed, all others are committed",
            f"see each in {run.output.rows_location.path}, fix the cause and run again",
        )


def _stopped(run: StageRun, summary: RewrittenSummary, plan: CompactionPlan) -> StoppedError:
    return StoppedError(
        plan.table,
        f"stopped: {summary.bins} of {plan.bins} bins were rewritten and committed, see "
        f"{run.output.rows_location.path}",
        "plan again for the rest",
    )


def _executed(
    run: StageRun, terms: ExecutionParameters
) -> tuple[Written, Outcome, Exception | None]:
    """Execute the batches: rows in the ledger, the outcome of bins, the error that ended it early.

    An error before the first commit is raised; after it, completed batches count, also one whose
    rows could not be written to the ledger any more.
    """
    plan, settings = terms.plan, run.table.compaction
    max_bytes = settings.max_bytes_per_commit
    planned = rewrite_tasks(
        run.spark,
        run.upstream("compaction_bins").parts(),
        plan_bytes=plan.bytes,
        max_bytes=max_bytes,
        parallelism=run.parallelism,
        table=plan.table,
    )
    check = RowCheck(settings.verify_rows, plan.digest, planned[0].bin if planned else None)
    terms = replace(terms, how=replace(terms.how, row_check=check))
    target = Target(run.output.rows_location.path, REWRITTEN_ARROW, REWRITTEN_MEASURES)
    total = target.empty()
    outcome = Outcome(terms.how.schema.partitions, terms.how.ordering)
    for batch in commit_batches(planned, max_bytes=max_bytes):
        if run.is_stopping:
            return total, outcome, None
        try:
            refuse_unrecorded(run.output.rows_location, plan.files)
            with run.output.scratch() as scratch, typed_errors(), run.stop_signal_in(scratch):
                done = rewrite_batch(run.spark, batch, terms, scratch=scratch)
        except (MaintError, *SPARK_ERRORS, OSError) as error:
            if not outcome.versions:
                raise
            return total, outcome, error
        outcome.take(done)
        outcome.commits |= terms.commits(done)
        try:
            total = total.plus(target.written([done]), target.measures)
        except (MaintError, OSError) as error:
            total = total.plus(_measured(target, done), target.measures)
            return total, outcome, error
    run.hold(even_stopping=True)
    return total, outcome, None


def _measured(target: Target, rows: pa.RecordBatch) -> Written:
    """The measures of rows that could not be written."""
    found = evaluate_measures(pa.Table.from_batches([rows]), target.measures)
    return Written([], [0, 0], found, [])


def _skipping(
    run: StageRun, terms: ExecutionParameters, outcome: Outcome
) -> list[ColumnSkipping] | None:
    """Data skipping before and after; None without an order, or if it cannot be computed."""
    if terms.how.ordering is None or not outcome.versions or run.is_stopping:
        return None
    try:
        after = table_head(terms.head.location, version=outcome.versions[-1])
        with run.output.scratch() as scratch, typed_errors():
            return column_skipping(
                run.spark,
                Versions(terms.head, after, outcome.order.examples),
                terms.how,
                parallelism=run.parallelism,
                scratch=scratch,
            )
    except (MaintError, *SPARK_ERRORS, OSError, *INTERRUPTS) as error:
        logger.warning("data skipping after the rewrite was not measured: %s", error)
        return None


def _checkpointed(run: StageRun, head: TableHead, versions: list[int]) -> int | None:
    """Write a checkpoint of the newest committed version that is due for one.

    A checkpoint that cannot be written is no failure: the commits are there, and the next writer
    makes one.
    """
    due = [version for version in versions if version % head.properties.checkpoint_interval == 0]
    if not due or run.is_stopping:
        return None
    try:
        with run.output.scratch() as scratch, typed_errors():
            made = write_checkpoint(
                run.spark,
                table_head(head.location, version=due[-1]),
                parallelism=run.parallelism,
                scratch=scratch,
                now_ms=run.now_ms(),
            )
    except (MaintError, *SPARK_ERRORS, OSError, *INTERRUPTS) as error:
        logger.warning("no checkpoint was written: %s", error)
        return None
    return made.version


def _sizes_after(sizes: dict[str, int], measured: Mapping[str, int]) -> dict[str, int]:
    """The files by size after the rewrite, as far as this run changed them."""
    return {
        name: count - measured[f"removed {name}"] + measured[f"added {name}"]
        for name, count in sizes.items()
    }


def asked_selection(settings: CompactionSettings) -> Selection:
    """The selection of files from the settings."""
    target = settings.target_file_size
    return Selection(
        target_bytes=target,
        min_bytes=target // 2 if settings.min_file_size is None else settings.min_file_size,
        max_deleted_ratio=settings.max_deleted_rows_ratio,
        purge=settings.purge,
        max_bytes=settings.max_bytes_per_run,
        where=settings.where,
        zorder_by=settings.zorder_by,
        full=settings.full,
    )


def _plan(seen: SnapshotSummary, selection: Selection, *, written: Dataset) -> CompactionPlan:
    metrics = written.metrics
    considered = metrics["considered"] - metrics["left_other_partition"]
    left = {name: metrics[f"left_{name}"] for name in LEFT_OUT_REASONS}
    plan = CompactionPlan(
        table=seen.table,
        table_id=seen.table_id,
        version=seen.version,
        commit_mark=seen.commit_mark,
        planned_ms=seen.planned_ms,
        digest="",
        selection=selection,
        bins=metrics["bins"],
        files=written.rows,
        bytes=metrics["bytes"],
        rows=metrics["rows"] - metrics["deleted"],
        considered_files=considered,
        left_out={name: count for name, count in left.items() if count},
        left_out_bytes={
            name: metrics[f"left_bytes_{name}"] for name, count in left.items() if count
        },
    )
    return replace(plan, digest=plan_digest(plan, written.digest))
