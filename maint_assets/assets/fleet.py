"""Several tables one after another in one session; a bad one does not stop the others."""

from __future__ import annotations

import getpass
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from maint_assets.assets.report import VacuumReport, execute_vacuum, plan_vacuum
from maint_assets.errors import MaintError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from maint_assets.assets.launch import Launcher
    from maint_assets.config import TableSettings


@dataclass(frozen=True, slots=True)
class TableReport:
    """What was done with one table, and the error that ended it, if one did."""

    vacuum: VacuumReport | None
    error: MaintError | None

    def json(self, *, paths: bool) -> dict[str, Any]:
        """The public JSON object of one table in ``maint-assets run``."""
        shown: dict[str, Any] = {}
        if self.vacuum is not None:
            shown["vacuum"] = self.vacuum.json(paths=paths)
        return {**shown, "error": None if self.error is None else str(self.error)}


def run_tables(
    launcher: Launcher,
    tables: Iterable[TableSettings],
    *,
    execute: bool,
    agreed: Callable[[VacuumReport], bool] | None,
) -> dict[str, TableReport]:
    """A report for each table by name."""
    return {t.name: _run_table(launcher, t, execute=execute, agreed=agreed) for t in tables}


def _run_table(
    launcher: Launcher,
    table: TableSettings,
    *,
    execute: bool,
    agreed: Callable[[VacuumReport], bool] | None,
) -> TableReport:
    report: VacuumReport | None = None
    try:
        report = plan_vacuum(launcher, table)
        if execute and (agreed is None or agreed(report)):
            report = execute_vacuum(launcher, table, report, by=getpass.getuser())
    except MaintError as error:
        return TableReport(report, error)
    return TableReport(report, report.error)
