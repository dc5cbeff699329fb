"""The command ``vacuum``: plan and execute, print as JSON or for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import pyarrow.dataset as ds
from rich.markup import escape
from rich.table import Table

from maint_assets.assets.numbers import human_bytes, human_count, human_rest, human_time
from maint_assets.datasets.columns import arrow_schema
from maint_assets.errors import CommitError
from maint_assets.vacuum.diff import DIFF_SCHEMA
from maint_assets.vacuum.summaries import DeletionSummary, DiffSummary

if TYPE_CHECKING:
    from rich.console import Console

    from maint_assets.assets.stage_store import StageDataset
    from maint_assets.cli.launcher import Launcher
    from maint_assets.config import TableSettings
    from maint_assets.errors import MaintError
    from maint_assets.vacuum.plan import VacuumPlan

_SHOWN_PATHS = 8


@dataclass(frozen=True, slots=True)
class VacuumReport:
    """A vacuum from plan to deletion; ``done`` is None if it was not executed."""

    planned: DiffSummary
    diff: StageDataset
    seconds: dict[str, float]
    done: DeletionSummary | None = None
    error: MaintError | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the plan is empty."""
        return not self.planned.plan.paths

    @property
    def question(self) -> str:
        """The question before the plan is executed."""
        plan = self.planned.plan
        return f"Delete {plan.files:,} files and {plan.directories:,} directories of {plan.table}?"

    def json(self, *, paths: bool = False) -> dict[str, Any]:
        """The public JSON object of ``maint-assets vacuum``."""
        plan, done = self.planned.plan, self.done
        gone = (done.files, done.directories, done.bytes) if done else (0, 0, 0)
        shown: dict[str, Any] = {
            "table": plan.table,
            "version": plan.version,
            "mode": plan.mode,
            "cutoff_ms": plan.cutoff_ms,
            "executed": done is not None,
            "plan_digest": plan.digest,
            "candidates": _sizes(plan.files, plan.directories, plan.bytes),
            "by_kind": self.planned.by_kind,
            "bytes_by_kind": self.planned.bytes_by_kind,
            "share": round(plan.share, 6),
            "time_travel_ends_before": self.planned.time_travel_ends_before,
            "deleted": _sizes(*gone),
            "missing": done.missing if done else 0,
            "failed": done.failed if done else 0,
            "skipped": done.skipped if done else 0,
            "seconds": self.seconds,
            "ledger": done.ledger if done else None,
            "plan": self.diff.rows_location.path,
        }
        if paths:
            shown["paths"] = planned_paths(self.diff, directories=False)
            shown["directories"] = planned_paths(self.diff, directories=True)
        return shown


def plan_vacuum(launcher: Launcher, table: TableSettings) -> VacuumReport:
    """Plan a table; raises the error that ended the planning."""
    diff, launched = launcher.planned(table, "vacuum", "diff")
    return VacuumReport(diff.summary(DiffSummary), diff, launched.seconds)


def execute_vacuum(
    launcher: Launcher, table: TableSettings, report: VacuumReport, *, by: str | None
) -> VacuumReport:
    """Execute the planned vacuum; ``error`` is set if some paths could not be deleted."""
    digest = report.planned.plan.digest
    ledger, launched = launcher.executed(table, digest, by, stage="deletion")
    done = ledger.summary(DeletionSummary)
    return VacuumReport(
        report.planned,
        report.diff,
        {**report.seconds, **launched.seconds},
        done,
        launched.error or _end_error(done, table=report.planned.plan.table),
    )


def _end_error(done: DeletionSummary, *, table: str) -> MaintError | None:
    """The error of a deletion that is complete but not in the history of its table."""
    if done.end_error is None:
        return None
    found = f"all is deleted and recorded, but VACUUM END was not committed ({done.end_error})"
    return CommitError(table, found, "nothing is left to do; the ledger lists what was deleted")


def planned_paths(diff: StageDataset, *, directories: bool) -> list[str]:
    """Planned files or directories, sorted. Holds all paths in memory: only for ``--paths``."""
    is_directory = pc.field("kind") == "directory"
    paths = [part.path for part in diff.parts()]
    rows = ds.dataset(paths, arrow_schema(DIFF_SCHEMA), format="parquet")
    found = rows.to_table(columns=["path"], filter=is_directory if directories else ~is_directory)
    return sorted(found.column("path").to_pylist())


def show_plan(console: Console, report: VacuumReport, *, paths: bool = False) -> None:
    """Print what is to be deleted, by kind, and the largest files with their reasons."""
    plan, planned = report.planned.plan, report.planned
    console.print(
        f"[bold]{escape(plan.table)}[/] at version {plan.version}: files unneeded since "
        f"{human_time(plan.cutoff_ms)}"
    )
    if not plan.files + plan.directories:
        console.print("[green]Nothing to delete.[/]")
        _show_lost(console, plan)
        return
    kinds = Table("kind", "count", "bytes", box=None, pad_edge=False, header_style="dim")
    for kind, count in planned.by_kind.items():
        kinds.add_row(kind, f"{count:,}", human_bytes(planned.bytes_by_kind[kind]))
    console.print(kinds)
    console.print(_largest(report))
    console.print(
        f"[bold]{human_count(plan.files, 'file')}[/] and "
        f"{human_count(plan.directories, 'directory')} can be deleted: {human_bytes(plan.bytes)} "
        f"of {human_bytes(plan.table_bytes)} ({plan.share:.1%})."
    )
    if planned.time_travel_ends_before:
        console.print(f"Time travel to versions before {planned.time_travel_ends_before} ends.")
    if plan.missing_files:
        console.print(
            f"[red]{human_count(plan.missing_files, 'active file')} not found[/], such as "
            f"{escape(plan.missing_example or '')}: the deletion will be refused."
        )
    _show_lost(console, plan)
    if paths:
        for path in planned_paths(report.diff, directories=False):
            console.print(escape(path), soft_wrap=True)
        for path in planned_paths(report.diff, directories=True):
            console.print(escape(path) + "/", soft_wrap=True)
    console.print(f"[dim]plan {plan.digest}, rows in {escape(report.diff.rows_location.path)}[/]")


def show_done(console: Console, report: VacuumReport) -> None:
    """Print what was deleted, and where the ledger is."""
    done = report.done
    if done is None:
        return
    console.print(
        f"[green]Deleted[/] {human_count(done.files, 'file')} ({human_bytes(done.bytes)}) and "
        f"{human_count(done.directories, 'directory')} in {done.seconds:.1f} s"
        + human_rest({
            "already missing": done.missing,
            "skipped": done.skipped,
            "failed": done.failed,
        })
        + "."
    )
    if done.active_missing is None:
        console.print("[yellow]Whether all live files are still there was not checked.[/]")
    console.print(f"[dim]ledger: {escape(done.ledger)}[/]")


def _sizes(files: int, directories: int, size: int) -> dict[str, int]:
    return {"files": files, "directories": directories, "bytes": size}


def _show_lost(console: Console, plan: VacuumPlan) -> None:
    if plan.lost_files:
        console.print(
            f"[red]The checkpoint lacks {human_count(plan.lost_files, 'file')}[/] that commits "
            f"before it add and none removes, such as {escape(plan.lost_example or '')}: they "
            "stay. The checkpoint or a commit is wrong; readers follow the checkpoint."
        )


def _largest(report: VacuumReport) -> Table:
    shown = Table(box=None, pad_edge=False, header_style="dim")
    shown.add_column("path", overflow="fold", ratio=3)
    shown.add_column("size", justify="right")
    shown.add_column("why", overflow="fold", ratio=2)
    first = report.diff.largest()[:_SHOWN_PATHS]
    for row in first:
        shown.add_row(escape(row["path"]), human_bytes(row["size"]), escape(_why(row)))
    plan = report.planned.plan
    left = plan.files + plan.directories - len(first)
    if left > 0:
        shown.add_row(f"[dim]... and {left:,} more (--paths)[/]", "", "")
    return shown


def _why(row: dict[str, object]) -> str:
    if row["removed_in_version"] is not None:
        return f"{row['kind']}: {row['removed_by']} in version {row['removed_in_version']}"
    if row["removed_ms"] is not None:
        return f"{row['kind']}: removed {human_time(row['removed_ms'])}"  # type: ignore[arg-type]
    return f"{row['kind']}: last modified {human_time(row['modified_ms'])}"  # type: ignore[arg-type]
