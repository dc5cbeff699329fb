"""What a person sees in the terminal: tables of plans and outcomes, progress, a quiet Spark."""

from __future__ import annotations

import contextlib
import logging
import os
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from maint_assets.assets.numbers import human_bytes, human_count, human_rest, human_time
from maint_assets.assets.progress import SHOWN
from maint_assets.cli.vacuum import planned_paths

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from rich.console import Console

    from maint_assets.assets.stage_store import StageStore
    from maint_assets.cli.tables import TableReport
    from maint_assets.cli.vacuum import VacuumReport
    from maint_assets.snapshot.summary import SnapshotSummary
    from maint_assets.vacuum.plan import VacuumPlan

SHOWN_PATHS = 8


def show_plan(console: Console, report: VacuumReport, *, paths: bool = False) -> None:
    """Prints what may go, by kind, the largest with their reasons, and what that means."""
    plan, planned = report.planned.plan, report.planned
    console.print(
        f"[bold]{escape(plan.table)}[/] at version {plan.version}: files unneeded since "
        f"{human_time(plan.cutoff_ms)}"
    )
    if not plan.files + plan.directories:
        console.print("[green]Nothing may go.[/]")
        _show_lost(console, plan)
        return
    kinds = Table("kind", "count", "bytes", box=None, pad_edge=False, header_style="dim")
    for kind, count in planned.by_kind.items():
        kinds.add_row(kind, f"{count:,}", human_bytes(planned.bytes_by_kind[kind]))
    console.print(kinds)
    console.print(_largest(report))
    console.print(
        f"[bold]{human_count(plan.files, 'file')}[/] and "
        f"{human_count(plan.directories, 'directory')} may go: {human_bytes(plan.bytes)} of "
        f"{human_bytes(plan.table_bytes)} ({plan.share:.1%})."
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


def _show_lost(console: Console, plan: VacuumPlan) -> None:
    if plan.lost_files:
        console.print(
            f"[red]The checkpoint lacks {human_count(plan.lost_files, 'file')}[/] that commits "
            f"before it add and none removes, such as {escape(plan.lost_example or '')}: they "
            "stay. One of them is wrong; readers see the table as the checkpoint says."
        )


def show_done(console: Console, report: VacuumReport) -> None:
    """Prints what was deleted, and where the ledger is."""
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
    console.print(f"[dim]ledger: {escape(done.ledger)}[/]")


def show_inspection(console: Console, seen: SnapshotSummary) -> None:
    """Prints what a table is and what is refused on it."""
    rows = {
        "table": seen.table,
        "id": seen.table_id,
        "version": f"{seen.version} of {human_time(seen.timestamp_ms)}",
        "live": f"{human_count(seen.live_files, 'file')}, {human_bytes(seen.live_bytes)}",
        "tombstones": f"{seen.tombstones:,}",
        "log": f"{human_count(seen.log_commits, 'commit')}, checkpoint {seen.checkpoint_version}",
        "checksum": seen.checksum,
        "partitioned by": ", ".join(seen.partition_columns) or "-",
        "protocol": f"reader {seen.min_reader_version}, writer {seen.min_writer_version}",
        "features": ", ".join(sorted({*seen.reader_features, *seen.writer_features})) or "-",
    }
    shown = Table(show_header=False, box=None, pad_edge=False)
    for name, value in rows.items():
        shown.add_row(f"[dim]{name}[/]", escape(value))
    for operation, reasons in seen.refused.items():
        shown.add_row(f"[red]no {operation}[/]", escape("; ".join(reasons)))
    console.print(shown)


def show_fleet(console: Console, reports: Mapping[str, TableReport], *, paths: bool) -> None:
    """Prints one line a table and branch, and each table's planned paths if asked."""
    shown = Table("table", "branch", "planned", "bytes", "done", "left", header_style="dim")
    for name, report in reports.items():
        for row in (_vacuum_row(report), _compaction_row(report), _log_row(report)):
            if row is not None:
                shown.add_row(name, *row)
    console.print(shown)
    for name, report in reports.items():
        if report.error:
            console.print(f"[red]{name}[/]: {escape(str(report.error))}", soft_wrap=True)
        if paths and report.vacuum:
            for path in planned_paths(report.vacuum.diff, directories=False):
                console.print(f"{name}: {escape(path)}", soft_wrap=True)


def _vacuum_row(report: TableReport) -> tuple[str, ...] | None:
    if report.vacuum is None:
        return None
    plan, done = report.vacuum.planned.plan, report.vacuum.done
    outcome = (f"{done.files:,} deleted", f"{done.failed + done.skipped:,}") if done else ("-", "-")
    return "vacuum", human_count(plan.files, "file"), human_bytes(plan.bytes), *outcome


def _compaction_row(report: TableReport) -> tuple[str, ...] | None:
    if report.compaction is None:
        return None
    plan, done = report.compaction.planned.plan, report.compaction.done
    outcome = ("-", "-")
    if done:
        left = done.dropped + done.refused + done.failed
        outcome = f"{done.files_removed:,} became {done.files_added:,}", human_count(left, "bin")
    return "compaction", human_count(plan.files, "file"), human_bytes(plan.bytes), *outcome


def _log_row(report: TableReport) -> tuple[str, ...] | None:
    if report.log_cleanup is None:
        return None
    plan, done = report.log_cleanup.planned.plan, report.log_cleanup.done
    outcome = (f"{done.files:,} deleted", f"{done.failed + done.skipped:,}") if done else ("-", "-")
    return "log_cleanup", human_count(plan.files, "file"), human_bytes(plan.bytes), *outcome


@contextlib.contextmanager
def progress(console: Console) -> Iterator[None]:
    """Within it, the stage that runs is shown on a terminal, and how far it is."""
    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    shown = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    handler = _BarHandler(shown)
    SHOWN.addHandler(handler)
    SHOWN.setLevel(logging.INFO)
    SHOWN.propagate = False
    try:
        with shown:
            yield
    finally:
        SHOWN.removeHandler(handler)
        SHOWN.setLevel(logging.WARNING)


class _BarHandler(logging.Handler):
    """One bar: a stage's name, then how much of it is done."""

    def __init__(self, shown: Progress) -> None:
        super().__init__(logging.INFO)
        self._shown, self._what = shown, ""
        self._task = shown.add_task("starting", total=None)

    def emit(self, record: logging.LogRecord) -> None:
        what, progress = record.getMessage(), getattr(record, "progress", None)
        if what != self._what:
            self._shown.reset(self._task, total=None, description=what)
            self._what = what
        if progress is not None:
            described = f"{what}: {progress}"
            self._shown.update(
                self._task, description=described, completed=progress.done, total=progress.total
            )


def quiet_session(store: StageStore, workspace: Path) -> None:
    """Starts the session with Spark's own output in ``spark.log`` of the workspace."""
    workspace.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    kept = os.dup(2)
    with (workspace / "spark.log").open("ab") as log:
        os.dup2(log.fileno(), 2)
        try:
            _ = store.spark
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _largest(report: VacuumReport) -> Table:
    shown = Table(box=None, pad_edge=False, header_style="dim")
    shown.add_column("path", overflow="fold", ratio=3)
    shown.add_column("size", justify="right")
    shown.add_column("why", overflow="fold", ratio=2)
    first = report.diff.largest()[:SHOWN_PATHS]
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
