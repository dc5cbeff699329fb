"""The vacuum chain stage by stage: upstream rows in, rows and summary out, nothing else."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pyspark.sql import Observation

from maint_assets.assets.spark import planned_for
from maint_assets.assets.store import measures
from maint_assets.config import milliseconds
from maint_assets.delta.features import Operation, refuse_unsupported
from maint_assets.delta.names import is_hidden_path
from maint_assets.delta.paths import is_outside, relative
from maint_assets.errors import (
    ChecksumMismatchError,
    ConfigError,
    RetentionError,
    StalePlanError,
    UnsupportedFeatureError,
)
from maint_assets.snapshot.head import table_head
from maint_assets.snapshot.replay import SMALL_LOG_BYTES, snapshot
from maint_assets.snapshot.schemas import SNAPSHOT_SCHEMA
from maint_assets.snapshot.summary import (
    SnapshotSummary,
    refused_operations,
    snapshot_metrics,
    snapshot_summary,
)
from maint_assets.storage.location import Location
from maint_assets.vacuum import records
from maint_assets.vacuum.diff import KINDS, diff, judged
from maint_assets.vacuum.listing import LISTING_SCHEMA, Walk, listing
from maint_assets.vacuum.plan import VacuumPlan, retention_ms
from maint_assets.vacuum.summaries import (
    DiffSummary,
    ListingSummary,
    ValidFilesSummary,
    diff_metrics,
    listing_metrics,
    missing_metrics,
    valid_files_metrics,
)
from maint_assets.vacuum.valid_files import REASONS, VALID_FILES_SCHEMA, valid_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from maint_assets.assets.run import StageRun
    from maint_assets.assets.store import Written
    from maint_assets.config import VacuumSettings
    from maint_assets.snapshot.head import TableHead


SMALL_ROWS = 20_000
"""Up to this many rows a stage is computed in one task, without a shuffle."""


@dataclass(frozen=True, slots=True)
class StageResult:
    """What a stage made: its dataset's numbers and its summary."""

    written: Written
    summary: Any


def snapshot_stage(run: StageRun) -> StageResult:
    """The state of the newest version, and the cutoff that the whole chain uses."""
    head = table_head(Location.of(run.table.uri))
    refuse_unsupported(head.protocol, Operation.READ, table=head.table)
    _refuse_workspace_inside(run, head)
    planned_ms = run.now_ms()
    refused = refused_operations(head)
    try:
        kept_ms = asked_retention_ms(head, run.table.vacuum)
    except RetentionError as error:
        kept_ms, refused = None, {**refused, "vacuum": [error.found, *refused.get("vacuum", [])]}
    with planned_for(run.spark, small=head.segment.bytes <= SMALL_LOG_BYTES):
        rows = snapshot(run.spark, head, parallelism=run.parallelism)
        written = run.output.write_rows(rows, snapshot_metrics())
    summary = snapshot_summary(
        head,
        written.metrics,
        planned_ms=planned_ms,
        retention_ms=kept_ms,
        retention_asked=run.table.vacuum.retention is not None,
        refused=refused,
    )
    return result(run, written, summary)


def valid_files_stage(run: StageRun) -> StageResult:
    """The paths that must stay; the first stage that refuses what VACUUM must not do."""
    seen = run.summary("snapshot", SnapshotSummary)
    if seen.checksum not in {"agrees", "absent"}:
        raise ChecksumMismatchError(
            seen.table,
            seen.checksum,
            "find out which is right; remove the .crc if it is the wrong one",
        )
    if seen.refused.get("vacuum"):
        asked = run.table.vacuum.retention
        if seen.cutoff_ms is None and asked is not None:
            asked_retention_ms(table_head(Location.of(run.table.uri)), run.table.vacuum)
        raise UnsupportedFeatureError(
            seen.table, "; ".join(seen.refused["vacuum"]), "use an engine that knows it"
        )
    if seen.cutoff_ms is None:
        raise StalePlanError(seen.table, "the snapshot has no cutoff", "run the chain again")
    with planned_for(run.spark, small=seen.live_files + seen.tombstones <= SMALL_ROWS):
        rows = valid_files(run.rows("snapshot", SNAPSHOT_SCHEMA), cutoff_ms=seen.cutoff_ms)
        written = run.output.write_rows(rows, valid_files_metrics())
    by_reason = {name: written.metrics[f"reason_{name}"] for name in REASONS}
    summary = ValidFilesSummary(
        run.run_of("snapshot"), written.rows, written.metrics["bytes"], by_reason
    )
    return result(run, written, summary)


def listing_stage(run: StageRun) -> StageResult:
    """Everything found under the table root."""
    seen = run.summary("snapshot", SnapshotSummary)
    walk = Walk(
        table=Location.of(seen.table).path,
        partition_columns=seen.partition_columns,
        iceberg=seen.iceberg,
    )
    started = time.monotonic()
    rows = listing(run.spark, walk, parallelism=run.parallelism)
    with planned_for(run.spark, small=seen.live_files + seen.tombstones <= SMALL_ROWS):
        written = run.output.write_rows(rows, listing_metrics())
    seconds = time.monotonic() - started
    found = {name: written.metrics[name] for name in listing_metrics()}
    summary = ListingSummary(
        snapshot_run=run.run_of("snapshot"),
        **found,
        seconds=round(seconds, 3),
        files_per_second=round(written.rows / seconds, 1),
    )
    return result(run, written, summary)


def diff_stage(run: StageRun) -> StageResult:
    """The plan: what may go, by kind, with the commit that removed it."""
    seen = run.summary("snapshot", SnapshotSummary)
    found = run.summary("listing", ListingSummary)
    kept = run.summary("valid_files", ValidFilesSummary)
    _refuse_mixed_snapshots(run, kept.snapshot_run, found.snapshot_run)
    small = found.files + seen.live_files + seen.tombstones <= SMALL_ROWS
    with planned_for(run.spark, small=small):
        rows, missing = _planned_rows(run, cutoff_ms=seen.cutoff_ms or 0, small=small)
        written = run.output.write_rows(rows, diff_metrics())
    plan = _plan(seen, found, written=written, missing=dict(missing.get))
    records.log_planned(plan, dry_run=True)
    return result(run, written, _diff_summary(written, plan))


def _refuse_workspace_inside(run: StageRun, head: TableHead) -> None:
    """ConfigError when plans and ledgers would lie where the table's own garbage lies."""
    below = relative(quote(run.output.location.path), head.root)
    if is_outside(below) or is_hidden_path(below, head.metadata.partition_columns, iceberg=False):
        return
    raise ConfigError(
        head.table,
        f"the workspace {run.store.base_uri} lies inside the table",
        "put it beside the tables",
    )


def asked_retention_ms(head: TableHead, settings: VacuumSettings) -> int:
    """The retention in ms that the settings ask of the table; RetentionError if too short."""
    asked = None if settings.retention is None else milliseconds(settings.retention)
    return retention_ms(
        head.properties, asked, allow_short=settings.allow_short_retention, table=head.table
    )


def _planned_rows(run: StageRun, *, cutoff_ms: int, small: bool) -> tuple[DataFrame, Observation]:
    """The rows of the plan, and what evaluating them observes of missing files."""

    def sized(rows: DataFrame) -> DataFrame:
        return rows.coalesce(1) if small else rows

    state = run.rows("snapshot", SNAPSHOT_SCHEMA).transform(sized)
    listed = run.rows("listing", LISTING_SCHEMA).transform(sized)
    valid = run.rows("valid_files", VALID_FILES_SCHEMA).transform(sized)
    missing = Observation()
    each = judged(listed, valid, state, one_task=small)
    each = each.observe(missing, *measures(missing_metrics()))
    commits = state.where("action = 'commit'")
    rows = diff(each, listed, valid, commits=commits, cutoff_ms=cutoff_ms)
    return rows.transform(sized), missing


def _refuse_mixed_snapshots(run: StageRun, *made_from: str) -> None:
    """StalePlanError when stages that a plan combines saw different snapshots."""
    if set(made_from) != {run.run_of("snapshot")}:
        raise StalePlanError(
            run.table.uri,
            "valid_files and listing were not made from the newest snapshot",
            "run the whole chain from snapshot on",
        )


def _plan(
    seen: SnapshotSummary, found: ListingSummary, *, written: Written, missing: dict[str, Any]
) -> VacuumPlan:
    directories = written.metrics["kind_directory"]
    digest = hashlib.sha256(f"{seen.table_id}\n{written.digest}".encode()).hexdigest()[:32]
    return VacuumPlan(
        table=seen.table,
        table_id=seen.table_id,
        version=seen.version,
        cutoff_ms=seen.cutoff_ms or 0,
        retention_ms=seen.retention_ms or 0,
        retention_asked=seen.retention_asked,
        table_retention_ms=seen.table_retention_ms,
        planned_ms=seen.planned_ms,
        digest=digest,
        files=written.rows - directories,
        directories=directories,
        bytes=written.metrics["bytes"],
        table_bytes=found.bytes,
        scanned_directories=found.scanned_directories,
        missing_files=missing.get("missing_files") or 0,
        missing_example=missing.get("missing_example"),
    )


def _diff_summary(written: Written, plan: VacuumPlan) -> DiffSummary:
    metrics = written.metrics
    found = {kind: metrics[f"kind_{kind}"] for kind in KINDS if metrics[f"kind_{kind}"]}
    return DiffSummary(
        plan=plan,
        by_kind=found,
        bytes_by_kind={kind: metrics[f"bytes_{kind}"] for kind in found},
        largest_bytes=metrics["largest_bytes"],
        time_travel_ends_before=metrics["time_travel_ends_before"],
    )


def result(run: StageRun, written: Written, summary: Any) -> StageResult:
    """The result of a stage, its summary written beside the rows: the dataset is complete now."""
    run.output.write_summary(summary)
    return StageResult(written, summary)
