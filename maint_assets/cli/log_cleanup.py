"""The command ``clean-log``: plan and execute, print as JSON or for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
from rich.markup import escape
from rich.table import Table

from maint_assets.assets.display.log_cleanup import (
    KINDS,
    ends_line,
    left_line,
    since_line,
    stop_line,
)
from maint_assets.assets.numbers import human_bytes, human_count, human_rest
from maint_assets.assets.stages.log_cleanup import DeletedLogsSummary, ExpiredLogsSummary
from maint_assets.datasets.columns import arrow_schema
from maint_assets.log_cleanup.expired_logs import EXPIRED_SCHEMA

if TYPE_CHECKING:
    from rich.console import Console

    from maint_assets.assets.stage_store import StageDataset
    from maint_assets.cli.launcher import Launcher
    from maint_assets.config import TableSettings
    from maint_assets.errors import MaintError


@dataclass(frozen=True, slots=True)
class LogCleanupReport:
    """A log cleanup from plan to deletion; ``done`` is None if it was not executed."""

    planned: ExpiredLogsSummary
    expired: StageDataset
    seconds: dict[str, float]
    done: DeletedLogsSummary | None = None
    error: MaintError | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the plan is empty."""
        return not self.planned.plan.files

    @property
    def question(self) -> str:
        """The question before the plan is executed."""
        plan, ending = self.planned.plan, self.planned.versions_ending
        ends = f" and end time travel to {human_count(ending, 'version')}" if ending else ""
        files = human_count(plan.files, "log file")
        if plan.creates_anchor:
            return f"Write checkpoint {plan.anchor_version} of {plan.table}, delete {files}{ends}?"
        return f"Delete {files} of {plan.table}{ends}?"

    def json(self, *, paths: bool = False) -> dict[str, Any]:
        """The public JSON object of ``maint-assets clean-log``."""
        plan, planned, done = self.planned.plan, self.planned, self.done
        earliest = done.earliest_version if done else plan.earliest_version_after
        shown: dict[str, Any] = {
            "table": plan.table,
            "version": plan.version,
            "mode": plan.mode,
            "cutoff_ms": plan.cutoff_ms,
            "cutoff_version": planned.cutoff_version,
            "anchor_version": plan.anchor_version,
            "creates_anchor": plan.creates_anchor,
            "stop_reason": plan.stop_reason,
            "rejected_checkpoints": planned.rejected,
            "notes": planned.notes,
            "executed": done is not None,
            "plan_digest": plan.digest,
            "planned": planned.by_kind,
            "planned_bytes": planned.bytes_by_kind,
            "deleted": done.by_kind if done else {},
            "deleted_bytes": done.bytes if done else 0,
            "missing": done.missing if done else 0,
            "failed": done.failed if done else 0,
            "skipped": done.skipped if done else 0,
            "log_files": (done or planned).log_files,
            "log_bytes": (done or planned).log_bytes,
            "earliest_version_before": plan.earliest_version_before,
            "earliest_version_after": earliest,
            "checkpoint_written": done.checkpoint_version if done else None,
            "seconds": self.seconds,
            "ledger": done.ledger if done else None,
            "plan": self.expired.rows_location.path,
        }
        if paths:
            shown["paths"] = planned_log_files(self.expired)
        return shown


def plan_log_cleanup(launcher: Launcher, table: TableSettings) -> LogCleanupReport:
    """Plan a table; raises the error that ended the planning."""
    expired, launched = launcher.planned(table, "log_cleanup", "expired_logs")
    return LogCleanupReport(expired.summary(ExpiredLogsSummary), expired, launched.seconds)


def execute_log_cleanup(
    launcher: Launcher, table: TableSettings, report: LogCleanupReport, *, by: str | None
) -> LogCleanupReport:
    """Execute the planned cleanup; ``error`` is set if some files could not be deleted."""
    digest = report.planned.plan.digest
    done, launched = launcher.executed(table, digest, by, stage="deleted_logs")
    return LogCleanupReport(
        report.planned,
        report.expired,
        {**report.seconds, **launched.seconds},
        done.summary(DeletedLogsSummary),
        launched.error,
    )


def planned_log_files(expired: StageDataset) -> list[str]:
    """The planned files, sorted. Holds all paths in memory: only for ``--paths``."""
    paths = [part.path for part in expired.parts()]
    rows = ds.dataset(paths, arrow_schema(EXPIRED_SCHEMA), format="parquet")
    return sorted(rows.to_table(columns=["path"]).column("path").to_pylist())


def show_expired(console: Console, report: LogCleanupReport, *, paths: bool = False) -> None:
    """Print what is to be deleted of the log, what it begins with then, or why nothing can be."""
    planned = report.planned
    plan = planned.plan
    console.print(
        f"[bold]{escape(plan.table)}[/] at version {plan.version}: a log of "
        f"{human_count(planned.log_files, 'file')}, {human_bytes(planned.log_bytes)}, with "
        f"{human_count(planned.log_commits, 'commit')} and "
        f"{human_count(planned.log_checkpoints, 'checkpoint')}"
    )
    console.print(f"{since_line(planned)}.")
    for wrong in planned.rejected:
        console.print(f"[yellow]not sound[/]: {escape(wrong)}", soft_wrap=True)
    for note in planned.notes:
        console.print(f"[yellow]note[/]: {escape(note)}", soft_wrap=True)
    if plan.stop_reason is not None:
        console.print(f"[green]Nothing to delete[/]: {stop_line(plan)}.")
        return
    kinds = Table("kind", "count", "bytes", box=None, pad_edge=False, header_style="dim")
    for kind, count in planned.by_kind.items():
        kinds.add_row(KINDS[kind], f"{count:,}", human_bytes(planned.bytes_by_kind[kind]))
    console.print(kinds)
    console.print(
        f"[bold]{human_count(plan.files, 'file')}[/], {human_bytes(plan.bytes)}, can be deleted. "
        f"{ends_line(planned)}."
    )
    if paths:
        for path in planned_log_files(report.expired):
            console.print(escape(path), soft_wrap=True)
    console.print(
        f"[dim]plan {plan.digest}, rows in {escape(report.expired.rows_location.path)}[/]"
    )


def show_deleted(console: Console, report: LogCleanupReport) -> None:
    """Print what was deleted, where the log begins now, and where the ledger is."""
    done = report.done
    if done is None:
        return
    if done.checkpoint_version is not None:
        console.print(f"[green]Written[/]: checkpoint {done.checkpoint_version}.")
    rest = human_rest({
        "already missing": done.missing,
        "skipped": done.skipped,
        "failed": done.failed,
    })
    console.print(
        f"[green]Deleted[/] {human_count(done.files, 'log file')} ({human_bytes(done.bytes)}) in "
        f"{done.seconds:.1f} s{rest}. {left_line(done)}."
    )
    console.print(f"[dim]ledger: {escape(done.ledger)}[/]")
