"""Several tables one after another in one session; a bad one does not stop the others."""

from __future__ import annotations

import getpass
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from maint_assets.assets.chain import CHAINS
from maint_assets.cli.compaction import CompactionReport, execute_compaction, plan_compaction
from maint_assets.cli.log_cleanup import LogCleanupReport, execute_log_cleanup, plan_log_cleanup
from maint_assets.cli.vacuum import VacuumReport, execute_vacuum, plan_vacuum
from maint_assets.errors import MaintError, StoppedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from maint_assets.assets.chain import Branch
    from maint_assets.cli.launcher import Launcher
    from maint_assets.config import TableSettings

Report = VacuumReport | CompactionReport | LogCleanupReport

_DOORS: dict[Branch, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "vacuum": (plan_vacuum, execute_vacuum),
    "compaction": (plan_compaction, execute_compaction),
    "log_cleanup": (plan_log_cleanup, execute_log_cleanup),
}


@dataclass(slots=True)
class TableReport:
    """What was done with one table by branch, and the first error that ended one, if one did."""

    branches: dict[Branch, Report] = field(default_factory=dict)
    error: MaintError | None = None

    @property
    def vacuum(self) -> VacuumReport | None:
        """What the vacuum did, where it was asked for and planned."""
        found = self.branches.get("vacuum")
        return found if isinstance(found, VacuumReport) else None

    @property
    def compaction(self) -> CompactionReport | None:
        """What the compaction did, where it was asked for and planned."""
        found = self.branches.get("compaction")
        return found if isinstance(found, CompactionReport) else None

    @property
    def log_cleanup(self) -> LogCleanupReport | None:
        """What the log cleanup did, where it was asked for and planned."""
        found = self.branches.get("log_cleanup")
        return found if isinstance(found, LogCleanupReport) else None

    def json(self, *, paths: bool) -> dict[str, Any]:
        """The public JSON object of one table in ``maint-assets run``."""
        shown: dict[str, Any] = {
            name: report.json(paths=paths) for name, report in self.branches.items()
        }
        return {**shown, "error": None if self.error is None else str(self.error)}


def run_tables(
    launcher: Launcher,
    tables: Iterable[TableSettings],
    *,
    branches: Sequence[Branch] = tuple(CHAINS),
    execute: bool,
    agreed: Callable[[Report], bool] | None,
) -> dict[str, TableReport]:
    """A report for each table by name; a branch that fails does not stop the next one."""
    reports: dict[str, TableReport] = {}
    for table in tables:
        report = reports[table.name] = TableReport()
        for branch in branches:
            try:
                _run_branch(launcher, table, branch, report, execute=execute, agreed=agreed)
            except StoppedError:  # a person, or who runs us, wants nothing more
                raise
            except MaintError as error:
                report.error = report.error or error
    return reports


def _run_branch(  # noqa: PLR0917
    launcher: Launcher,
    table: TableSettings,
    branch: Branch,
    report: TableReport,
    *,
    execute: bool,
    agreed: Callable[[Report], bool] | None,
) -> None:
    plan, act = _DOORS[branch]
    found = report.branches[branch] = plan(launcher, table)
    if execute and (agreed is None or agreed(found)):
        found = report.branches[branch] = act(launcher, table, found, by=getpass.getuser())
        if found.error is not None:
            raise found.error
