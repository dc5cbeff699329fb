"""The command ``run``: tables one after another in one session; errors do not stop the others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.markup import escape
from rich.table import Table

from maint_assets.assets.chain import CHAINS
from maint_assets.assets.numbers import human_bytes, human_count
from maint_assets.cli.compaction import CompactionReport, execute_compaction, plan_compaction
from maint_assets.cli.log_cleanup import LogCleanupReport, execute_log_cleanup, plan_log_cleanup
from maint_assets.cli.vacuum import VacuumReport, execute_vacuum, plan_vacuum, planned_paths
from maint_assets.errors import MaintError, StoppedError, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from rich.console import Console

    from maint_assets.assets.chain import Branch
    from maint_assets.cli.launcher import Launcher
    from maint_assets.config import TableSettings

Report = VacuumReport | CompactionReport | LogCleanupReport

_DOORS: dict[Branch, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "vacuum": (plan_vacuum, execute_vacuum),
    "compaction": (plan_compaction, execute_compaction),
    "log_cleanup": (plan_log_cleanup, execute_log_cleanup),
}


class Consent(NamedTuple):
    """Whether a plan may be executed, and the person who agreed to it; None if nobody was asked."""

    is_given: bool
    by: str | None = None


@dataclass(slots=True)
class TableReport:
    """The reports of one table by branch, and the errors of its branches."""

    branches: dict[Branch, Report] = field(default_factory=dict)
    errors: dict[Branch, MaintError] = field(default_factory=dict)

    @property
    def error(self) -> MaintError | None:
        """The first error, if any."""
        return next(iter(self.errors.values()), None)

    @property
    def vacuum(self) -> VacuumReport | None:
        """The report of the vacuum, if it was planned."""
        found = self.branches.get("vacuum")
        return found if isinstance(found, VacuumReport) else None

    @property
    def compaction(self) -> CompactionReport | None:
        """The report of the compaction, if it was planned."""
        found = self.branches.get("compaction")
        return found if isinstance(found, CompactionReport) else None

    @property
    def log_cleanup(self) -> LogCleanupReport | None:
        """The report of the log cleanup, if it was planned."""
        found = self.branches.get("log_cleanup")
        return found if isinstance(found, LogCleanupReport) else None

    def json(self, *, paths: bool) -> dict[str, Any]:
        """The public JSON object of one table in ``maint-assets run``."""
        shown: dict[str, Any] = {
            name: report.json(paths=paths) for name, report in self.branches.items()
        }
        errors = {name: str(error) for name, error in self.errors.items()}
        return {**shown, "error": next(iter(errors.values()), None), "errors": errors}


def run_tables(
    launcher: Launcher,
    tables: Iterable[TableSettings],
    reports: dict[str, TableReport],
    *,
    branches: Sequence[Branch] = tuple(CHAINS),
    execute: bool,
    consent: Callable[[Report], Consent],
) -> None:
    """Maintain tables. A failed branch does not stop the next; an interrupt and a defect do.

    Puts a report for each table into ``reports`` by name: they are known whatever is raised.
    """
    for table in tables:
        report = reports[table.name] = TableReport()
        for branch in branches:
            try:
                _run_branch(launcher, table, branch, report, execute=execute, consent=consent)
            except StoppedError as error:  # whoever launched it wants nothing more
                report.errors[branch] = error
                raise
            except MaintError as error:
                report.errors[branch] = error
            except Exception as error:
                found = one_line(error) or type(error).__name__
                report.errors[branch] = MaintError(table.uri, found, "run again with --debug")
                raise


def _run_branch(  # noqa: PLR0917
    launcher: Launcher,
    table: TableSettings,
    branch: Branch,
    report: TableReport,
    *,
    execute: bool,
    consent: Callable[[Report], Consent],
) -> None:
    plan, act = _DOORS[branch]
    found = report.branches[branch] = plan(launcher, table)
    if execute and (given := consent(found)).is_given:
        found = report.branches[branch] = act(launcher, table, found, by=given.by)
        if found.error is not None:
            raise found.error


def show_tables(console: Console, reports: Mapping[str, TableReport], *, paths: bool) -> None:
    """Print one line for each table and branch, and the planned paths if asked."""
    shown = Table("table", "branch", "planned", "bytes", "done", "left", header_style="dim")
    for name, report in reports.items():
        for row in (_vacuum_row(report), _compaction_row(report), _log_row(report)):
            if row is not None:
                shown.add_row(name, *row)
    console.print(shown)
    for name, report in reports.items():
        for branch, error in report.errors.items():
            console.print(f"[red]{name}[/], {branch}: {escape(str(error))}", soft_wrap=True)
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
