"""The vacuum in the UI: a summary of each stage in Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from maint_assets.assets.numbers import human_bytes, human_count, human_rest, human_time

if TYPE_CHECKING:
    from maint_assets.snapshot.summary import SnapshotSummary
    from maint_assets.vacuum.summaries import (
        DeletionSummary,
        DiffSummary,
        ListingSummary,
        ValidFilesSummary,
    )


def snapshot_line(seen: SnapshotSummary) -> str:
    """Version, live files, tombstones, and refused operations, in Markdown."""
    refused = "; ".join(reason for why in seen.refused.values() for reason in why)
    return (
        f"**Version {seen.version}** of {human_time(seen.timestamp_ms)}: "
        f"{human_count(seen.live_files, 'live file')}, {human_bytes(seen.live_bytes)}, "
        f"{human_count(seen.tombstones, 'tombstone')}, "
        f"{human_count(seen.log_commits, 'commit')} in the log"
        + (f". Refused: {refused}" if refused else "")
    )


def valid_files_line(kept: ValidFilesSummary) -> str:
    """How many paths retained versions need, by reason, in Markdown."""
    by = ", ".join(f"{count:,} {name}" for name, count in kept.by_reason.items() if count)
    return f"**{human_count(kept.paths, 'path')} must stay**: {by or 'none'}"


def listing_line(found: ListingSummary) -> str:
    """The files and directories under the table root, in Markdown."""
    nested = (
        f", {human_count(found.nested_tables, 'other Delta table')} left alone"
        if found.nested_tables
        else ""
    )
    if found.outside:
        nested += f", {human_count(found.outside, 'path')} outside of the table left alone"
    return (
        f"**{human_count(found.files, 'file')}, {human_bytes(found.bytes)}** in "
        f"{human_count(found.directories + 1, 'directory')}{nested}, "
        f"{found.files_per_second:,.0f} entries a second"
    )


def diff_line(planned: DiffSummary) -> str:
    """The plan and how to approve it, in Markdown."""
    plan = planned.plan
    if not plan.files + plan.directories:
        return f"**Nothing to delete**: no unneeded file is older than {human_time(plan.cutoff_ms)}"
    by = ", ".join(f"{count:,} {kind}" for kind, count in planned.by_kind.items())
    return (
        f"**{human_count(plan.files, 'file')}, {human_bytes(plan.bytes)} of "
        f"{human_bytes(plan.table_bytes)} ({plan.share:.1%}) can be deleted**,  \n"
        f"{human_count(plan.directories, 'directory')}: {by}  \nolder than "
        f"{human_time(plan.cutoff_ms)}\n\nTo approve, launch `deletion` with `approved_plan`:  \n"
        f"`{plan.digest}`"
    )


def deletion_line(done: DeletionSummary) -> str:
    """The outcome of the deletion, in Markdown."""
    rest = human_rest({"missing": done.missing, "failed": done.failed, "skipped": done.skipped})
    return (
        f"**{human_count(done.files, 'file')}, {human_bytes(done.bytes)} and "
        f"{human_count(done.directories, 'directory')} deleted**{rest}"
        f" in {done.seconds:.1f} s"
    )
