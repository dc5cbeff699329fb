"""What a person sees of a log cleanup in the terminal: the plan and its outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from maint_assets.cli.log_cleanup import planned_log_files

if TYPE_CHECKING:
    from rich.console import Console

    from maint_assets.cli.log_cleanup import LogCleanupReport


def show_expired(console: Console, report: LogCleanupReport, *, paths: bool = False) -> None:
    """Prints what may go of the log, what it is kept from, or why nothing may go."""
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
        console.print(f"[green]Nothing may go[/]: {stop_line(plan)}.")
        return
    kinds = Table("kind", "count", "bytes", box=None, pad_edge=False, header_style="dim")
    for kind, count in planned.by_kind.items():
        kinds.add_row(KINDS[kind], f"{count:,}", human_bytes(planned.bytes_by_kind[kind]))
    console.print(kinds)
    console.print(
        f"[bold]{human_count(plan.files, 'file')}[/], {human_bytes(plan.bytes)}, may go. "
        f"{ends_line(planned)}."
    )
    if paths:
        for path in planned_log_files(report.expired):
            console.print(escape(path), soft_wrap=True)
    console.print(
        f"[dim]plan {plan.digest}, rows in {escape(report.expired.rows_location.path)}[/]"
    )


def show_deleted(console: Console, report: LogCleanupReport) -> None:
    """Prints what was deleted, where the log begins now, and where the ledger is."""
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
