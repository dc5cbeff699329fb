"""The planning stages of the vacuum chain: upstream rows in, rows and a summary out."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from maint_assets.assets.approval import plan_digest
from maint_assets.assets.spark_resource import typed_errors
from maint_assets.assets.stage_store import StageResult
from maint_assets.config import milliseconds
from maint_assets.delta.features import Operation, refuse_unsupported
from maint_assets.delta.names import is_hidden_path
from maint_assets.delta.paths import is_outside, relative_name
from maint_assets.errors import (
    ConfigError,
    RetentionError,
    StalePlanError,
    UnorderedListingError,
)
from maint_assets.snapshot.commits import commit_mark, refuse_other_commit
from maint_assets.snapshot.head import table_head
from maint_assets.snapshot.replay import snapshot
from maint_assets.snapshot.schemas import SNAPSHOT_SCHEMA
from maint_assets.snapshot.summary import (
    SNAPSHOT_MEASURES,
    SnapshotSummary,
    cutoff_ms,
    refuse_mismatch,
    refuse_operation,
    refused_operations,
    snapshot_summary,
)
from maint_assets.storage import read
from maint_assets.vacuum import history
from maint_assets.vacuum.aliases import NO_ALIASES, Aliases, aliases, are_linked
from maint_assets.vacuum.cross_checks import are_missing, valid_in_plan
from maint_assets.vacuum.diff import (
    DIFF_MEASURES,
    DIFF_SCHEMA,
    KINDS,
    PLANNED,
    Sources,
    StorageChecks,
    diff,
)
from maint_assets.vacuum.handled import handled_version
from maint_assets.vacuum.inventory import (
    INSIDE,
    INVENTORY_MEASURES,
    inventory,
    refuse_elsewhere,
    unreadable,
)
from maint_assets.vacuum.listing import (
    LISTING_MEASURES,
    LISTING_SCHEMA,
    SLICE_ENTRIES,
    SMALL_ENTRIES,
    listing,
    small_listing,
)
from maint_assets.vacuum.lite import (
    ExpiredLog,
    expired_measures,
    refuse_incomplete,
    removed_files,
)
from maint_assets.vacuum.plan import VacuumPlan, retention_ms
from maint_assets.vacuum.ranged_listing import (
    RANGE_FILES,
    KeyRange,
    key_ranges,
    nested_tables,
    ranged_listing,
    sampled_paths,
)
from maint_assets.vacuum.summaries import DiffSummary, ListingSummary, ValidFilesSummary
from maint_assets.vacuum.valid_files import (
    REASONS,
    VALID_FILES_MEASURES,
    VALID_FILES_SCHEMA,
    Retained,
    valid_files,
)
from maint_assets.vacuum.walk import Walk, behind_log_links

if TYPE_CHECKING:
    from maint_assets.assets.stage_run import StageRun
    from maint_assets.assets.stage_store import Dataset
    from maint_assets.config import VacuumSettings
    from maint_assets.datasets.rows import Rows
    from maint_assets.snapshot.head import TableHead
    from maint_assets.storage.location import Location


def snapshot_stage(run: StageRun) -> StageResult:
    """Replay the newest version, and fix the cutoff for the whole chain."""
    head = table_head(run.location)
    mark = commit_mark(head.location, head.version)
    refuse_unsupported(head.protocol, Operation.READ, table=head.table)
    _refuse_workspace_inside(run, head)
    planned_ms = run.now_ms()
    refused = refused_operations(head)
    # Compaction and log cleanup need this snapshot, too: the retention refuses VACUUM alone.
    try:
        kept_ms = asked_retention_ms(head, run.table.vacuum)
    except RetentionError as error:
        kept_ms, refused = None, {**refused, "vacuum": [error.found, *refused.get("vacuum", [])]}
    handled = handled_version(run.store.handled(run.table.name), head)
    expired = expired_measures(cutoff_ms(head, planned_ms, kept_ms or 0), handled)
    with run.output.scratch() as scratch:
        rows = snapshot(run.spark, head, parallelism=run.parallelism, scratch=scratch)
        written = run.output.write_rows(rows, SNAPSHOT_SCHEMA, {**SNAPSHOT_MEASURES, **expired})
    refuse_other_commit(head.location, head.version, mark)
    summary = snapshot_summary(
        head,
        written.metrics,
        planned_ms=planned_ms,
        retention_ms=kept_ms,
        retention_asked=run.table.vacuum.retention is not None,
        refused=refused,
        expired_log={"handled": handled, **{name: written.metrics[name] for name in expired}},
        mark=mark,
    )
    return run.result(written, summary)


def valid_files_stage(run: StageRun) -> StageResult:
    """Find the paths that retained versions need; refuses tables that VACUUM must not touch."""
    seen = run.summary("snapshot", SnapshotSummary)
    refuse_mismatch(seen)
    asked = run.table.vacuum.retention
    # Raise the RetentionError itself where the snapshot recorded only its sentence.
    if seen.refused.get("vacuum") and seen.cutoff_ms is None and asked is not None:
        asked_retention_ms(table_head(run.location), run.table.vacuum)
    refuse_operation(seen, "vacuum")
    if seen.cutoff_ms is None:
        raise StalePlanError(seen.table, "the snapshot has no cutoff", "run the chain again")
    rows = valid_files(run.rows("snapshot"), table=seen.table, retained=_retained(seen))
    written = run.output.write_rows([rows], VALID_FILES_SCHEMA, VALID_FILES_MEASURES)
    by_reason = {name: written.metrics[f"reason_{name}"] for name in REASONS}
    summary = ValidFilesSummary(
        run.run_of("snapshot"), written.rows, written.metrics["bytes"], by_reason
    )
    return run.result(written, summary)


def listing_stage(run: StageRun) -> StageResult:
    """List the files under the table root, or those of an inventory, or those the log removed."""
    seen = run.summary("snapshot", SnapshotSummary)
    started = time.monotonic()
    written = _listed(run, _walk(run, seen), seen)
    seconds = time.monotonic() - started
    summary = ListingSummary(
        snapshot_run=run.run_of("snapshot"),
        mode=run.table.vacuum.mode,
        **{name: written.metrics[name] for name in LISTING_MEASURES},
        outside=written.metrics.get("outside", 0),
        seconds=round(seconds, 3),
        files_per_second=round(written.rows / seconds, 1),
    )
    return run.result(written, summary)


def _listed(run: StageRun, walk: Walk, seen: SnapshotSummary) -> Dataset:
    mode, source = run.table.vacuum.mode, run.table.vacuum.inventory
    if mode == "lite":
        return _written_listing(run, [_removed_files(run, seen)])
    if source is not None:
        with run.output.scratch() as scratch:
            rows = inventory(run.spark, source, walk, parallelism=run.parallelism, scratch=scratch)
            return _written_inventory(run, rows, source)
    known = seen.live_files + seen.tombstones
    if not walk.location.is_local:
        return _listed_in_ranges(run, walk, known)
    if known <= SMALL_ENTRIES:
        tasks = min(run.parallelism, 1 + known // SLICE_ENTRIES)
        written = _written_listing(run, [small_listing(run.spark, walk, tasks=tasks)])
        # The log does not know of strays: with many of them this listing is not complete.
        if written.rows <= SMALL_ENTRIES:
            return written
    return _written_listing(run, [listing(run.spark, walk, parallelism=run.parallelism)])


def _listed_in_ranges(run: StageRun, walk: Walk, known: int) -> Dataset:
    """List a store; again as a whole if it has no order, and without other tables if it has any."""
    sample = sampled_paths(run.upstream("snapshot").parts()) if known > RANGE_FILES else []
    ranges = key_ranges(sample, known)
    listed = partial(ranged_listing, run.spark, walk, parallelism=run.parallelism)
    try:
        with typed_errors():
            written = _written_listing(run, [listed(ranges)])
    except UnorderedListingError:
        ranges = [KeyRange(ordered=False)]
        written = _written_listing(run, [listed(ranges)])
    if written.metrics["nested_tables"]:
        tables = nested_tables(run.output.parts())
        written = _written_listing(run, [listed(ranges, tables=tables)])
    return written


def _walk(run: StageRun, seen: SnapshotSummary) -> Walk:
    location = run.located(seen.table)
    return Walk(
        location=location,
        partition_columns=seen.partition_columns,
        iceberg=seen.iceberg,
        of_log=behind_log_links(location),
    )


def _written_listing(run: StageRun, rows: list[Rows]) -> Dataset:
    return run.output.write_rows(rows, LISTING_SCHEMA, LISTING_MEASURES)


def _written_inventory(run: StageRun, rows: list[Rows], source: str) -> Dataset:
    with unreadable(source, table=run.table.uri):
        written = run.output.write_rows(rows, LISTING_SCHEMA, INVENTORY_MEASURES, keep=INSIDE)
    refuse_elsewhere(
        source,
        table=run.table.uri,
        inside=written.rows,
        outside=written.metrics["outside"],
        example=written.metrics["outside_example"],
    )
    return written


def _removed_files(run: StageRun, seen: SnapshotSummary) -> Rows:
    log = _expired_log(seen)
    refuse_incomplete(log, table=seen.table)
    walk = _walk(run, seen)
    return removed_files(run.rows("snapshot"), log, walk, cutoff_ms=seen.cutoff_ms or 0)


def _expired_log(seen: SnapshotSummary) -> ExpiredLog:
    return ExpiredLog.of(seen.expired_log, seen.expired_log["handled"] or 0)


def diff_stage(run: StageRun) -> StageResult:
    """Plan what to delete, by kind, with the commit that removed each file."""
    seen = run.summary("snapshot", SnapshotSummary)
    found = run.summary("listing", ListingSummary)
    kept = run.summary("valid_files", ValidFilesSummary)
    made_from = {kept.snapshot_run, found.snapshot_run}
    _refuse_mixed_snapshots(made_from, run.run_of("snapshot"), table=run.table.uri)
    stages = ("snapshot", "valid_files", "listing")
    sources = Sources(*(run.upstream(stage).parts() for stage in stages))
    with run.output.scratch() as scratch:
        rows = diff(
            run.spark,
            sources,
            cutoff_ms=seen.cutoff_ms or 0,
            checks=_storage_checks(found.mode, run.located(seen.table)),
            parallelism=run.parallelism,
            scratch=scratch,
        )
        written = run.output.write_rows([rows], DIFF_SCHEMA, DIFF_MEASURES, keep=PLANNED)
    # Only a full listing shows that a live file is missing from it.
    linked, unlisted = written.metrics["linked_files"], written.metrics["unlisted_files"]
    elsewhere = _aliases(run, seen, linked=linked, unlisted=unlisted if found.mode == "full" else 0)
    plan = _plan(seen, found, elsewhere, valid=_valid_in_plan(run, written), written=written)
    history.log_planned(plan, dry_run=True)
    return run.result(written, _diff_summary(written, plan))


def _aliases(run: StageRun, seen: SnapshotSummary, *, linked: int, unlisted: int) -> Aliases:
    """Paths of the plan that are the same files as live ones outside the root or behind links."""
    is_odd, is_linked = unlisted > 0, seen.outside or linked
    if not is_odd and not is_linked and not read.has_mounts(run.located(seen.table)):
        return NO_ALIASES
    with run.output.scratch() as scratch:
        return aliases(
            run.spark,
            run.output.parts(),
            run.upstream("snapshot").parts(),
            location=run.located(seen.table),
            retained=_retained(seen),
            everywhere=is_odd,
            parallelism=run.parallelism,
            scratch=scratch,
        )


def _valid_in_plan(run: StageRun, written: Dataset) -> int:
    """The number of planned paths that are valid files, by a comparison of the two datasets."""
    if not written.rows:
        return 0
    plan, valid = run.output.parts(), run.upstream("valid_files").parts()
    with run.output.scratch() as scratch:
        counts = valid_in_plan(
            run.spark, plan, valid, parallelism=run.parallelism, scratch=scratch
        ).collect()
    return sum(row["count"] for row in counts)


def _retained(seen: SnapshotSummary) -> Retained:
    return Retained(seen.cutoff_ms or 0, seen.checkpoint_ms)


def _storage_checks(mode: str, location: Location) -> StorageChecks:
    return StorageChecks(
        are_missing=None if mode == "lite" else partial(are_missing, location=location),
        are_linked=None if mode == "full" else partial(are_linked, location=location),
    )


def _refuse_workspace_inside(run: StageRun, head: TableHead) -> None:
    """Raise ConfigError if plans and ledgers would be written among the table's own files."""
    # VACUUM and readers skip hidden directories, so a workspace in one is not part of the table.
    below = relative_name(run.output.location.uri, head.root)
    if is_outside(below) or is_hidden_path(below, head.metadata.partition_columns, iceberg=False):
        return
    raise ConfigError(
        head.table,
        f"the workspace {run.store.base_uri} lies inside the table",
        "put it beside the tables",
    )


def asked_retention_ms(head: TableHead, settings: VacuumSettings) -> int:
    """The retention of the settings in ms. Raises RetentionError if it is too short."""
    asked = None if settings.retention is None else milliseconds(settings.retention)
    return retention_ms(
        head.properties, asked, allow_short=settings.allow_short_retention, table=head.table
    )


def _refuse_mixed_snapshots(made_from: set[str], newest: str, *, table: str) -> None:
    """Raise StalePlanError if the upstream stages were not all made from the newest snapshot."""
    if made_from != {newest}:
        raise StalePlanError(
            table,
            "valid_files and listing were not made from the newest snapshot",
            "run the whole chain from snapshot on",
        )


def _plan(
    seen: SnapshotSummary,
    found: ListingSummary,
    elsewhere: Aliases,
    *,
    valid: int,
    written: Dataset,
) -> VacuumPlan:
    directories = written.metrics["kind_directory"]
    plan = VacuumPlan(
        table=seen.table,
        table_id=seen.table_id,
        version=seen.version,
        cutoff_ms=seen.cutoff_ms or 0,
        retention_ms=seen.retention_ms or 0,
        retention_asked=seen.retention_asked,
        table_retention_ms=seen.table_retention_ms,
        planned_ms=seen.planned_ms,
        digest="",
        files=written.rows - directories,
        directories=directories,
        bytes=written.metrics["bytes"],
        table_bytes=_table_bytes(seen, found, written.metrics["bytes"]),
        scanned_directories=found.scanned_directories,
        missing_files=written.metrics["missing_files"] + elsewhere.missing,
        missing_example=written.metrics["missing_example"] or elsewhere.missing_example,
        mode=found.mode,
        handled_version=_handled_version(seen, found, written.metrics["held_version"]),
        commit_mark=seen.commit_mark,
        aliased_files=elsewhere.same,
        aliased_example=elsewhere.same_example,
        lost_files=written.metrics["lost_files"],
        lost_example=written.metrics["lost_example"],
        valid_in_plan=valid,
    )
    return replace(plan, digest=plan_digest(plan, written.digest))


def _handled_version(
    seen: SnapshotSummary, found: ListingSummary, held_version: int | None
) -> int | None:
    """The version up to which the log is handled after the plan is executed; None if unknown.

    A removed file that exists and is too young holds back the commit that removed it.
    """
    complete = _expired_log(seen).complete
    if found.mode == "inventory" or complete is None:
        return None
    return complete if held_version is None else min(complete, held_version - 1)


def _table_bytes(seen: SnapshotSummary, found: ListingSummary, planned_bytes: int) -> int:
    """Bytes of the table: as listed, or those of live and planned files if not all were listed."""
    return found.bytes if found.mode == "full" else seen.live_bytes + planned_bytes


def _diff_summary(written: Dataset, plan: VacuumPlan) -> DiffSummary:
    metrics = written.metrics
    found = {kind: metrics[f"kind_{kind}"] for kind in KINDS if metrics[f"kind_{kind}"]}
    return DiffSummary(
        plan=plan,
        by_kind=found,
        bytes_by_kind={kind: metrics[f"bytes_{kind}"] for kind in found},
        largest_bytes=metrics["largest_bytes"] or 0,
        time_travel_ends_before=metrics["time_travel_ends_before"],
    )
