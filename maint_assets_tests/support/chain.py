"""Our own chain in tests: planned and executed through Dagster in the tests' Spark session."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from maint_assets.assets.stage_store import StageDataset, StageStore
from maint_assets.cli.compaction import CompactionReport, execute_compaction, plan_compaction
from maint_assets.cli.launcher import Launched, Launcher
from maint_assets.cli.log_cleanup import LogCleanupReport, execute_log_cleanup, plan_log_cleanup
from maint_assets.cli.vacuum import VacuumReport, execute_vacuum, plan_vacuum, planned_paths
from maint_assets.config import (
    CompactionSettings,
    LogCleanupSettings,
    Maintenance,
    StorageSettings,
    TableSettings,
    VacuumSettings,
)
from maint_assets.datasets.parts import row_sums
from maint_assets.delta.names import hadoop_checksum


@dataclass(frozen=True)
class Chain:
    """The chain of one table in its own workspace."""

    launcher: Launcher
    table: TableSettings

    @classmethod
    def of(cls, path: Path, workspace: Path, **vacuum: Any) -> Chain:
        """A chain on an ephemeral instance; keywords are vacuum settings."""
        return cls._of(
            workspace, TableSettings(name="t", uri=str(path), vacuum=VacuumSettings(**vacuum))
        )

    @classmethod
    def on_store(
        cls, location: str, workspace: Path, storage: StorageSettings, **vacuum: Any
    ) -> Chain:
        """The same for a table on an object store."""
        settings = VacuumSettings(**vacuum)
        table = TableSettings(name="t", uri=location, storage=storage, vacuum=settings)
        return cls._of(workspace, table)

    @classmethod
    def compacting_store(
        cls, location: str, workspace: Path, storage: StorageSettings, **compaction: Any
    ) -> Chain:
        """The same for a compaction."""
        settings = CompactionSettings(**compaction)
        table = TableSettings(name="t", uri=location, storage=storage, compaction=settings)
        return cls._of(workspace, table)

    @classmethod
    def compacting(cls, path: Path, workspace: Path, **compaction: Any) -> Chain:
        """The same; keywords are compaction settings."""
        return cls._of(
            workspace,
            TableSettings(name="t", uri=str(path), compaction=CompactionSettings(**compaction)),
        )

    @classmethod
    def cleaning(cls, path: Path, workspace: Path, **log_cleanup: Any) -> Chain:
        """The same; keywords are settings of the log cleanup."""
        settings = LogCleanupSettings(**log_cleanup)
        return cls._of(workspace, TableSettings(name="t", uri=str(path), log_cleanup=settings))

    @classmethod
    def cleaning_store(
        cls, location: str, workspace: Path, storage: StorageSettings, **log_cleanup: Any
    ) -> Chain:
        """The same for a log cleanup."""
        settings = LogCleanupSettings(**log_cleanup)
        table = TableSettings(name="t", uri=location, storage=storage, log_cleanup=settings)
        return cls._of(workspace, table)

    @classmethod
    def _of(cls, workspace: Path, table: TableSettings) -> Chain:
        settings = Maintenance(workspace=str(workspace), tables=(table,))
        return cls(Launcher(settings, dg.DagsterInstance.ephemeral()), table)

    def compact(self) -> CompactionReport:
        """Plan and execute a compaction with approval."""
        report = plan_compaction(self.launcher, self.table)
        return execute_compaction(self.launcher, self.table, report, by="a test")

    def plan_cleanup(self) -> LogCleanupReport:
        """Plan a log cleanup; raises the error of a failed plan."""
        return plan_log_cleanup(self.launcher, self.table)

    def clean(self, report: LogCleanupReport | None = None) -> LogCleanupReport:
        """Execute a log cleanup with approval, after planning it if no plan is given."""
        found = report or self.plan_cleanup()
        return execute_log_cleanup(self.launcher, self.table, found, by="a test")

    def plan(self) -> VacuumReport:
        """Plan a vacuum; raises the error of a failed plan."""
        return plan_vacuum(self.launcher, self.table)

    def execute(self, report: VacuumReport) -> VacuumReport:
        """Execute the plan with approval."""
        return execute_vacuum(self.launcher, self.table, report, by="a test")

    def vacuum(self) -> VacuumReport:
        """Plan and execute a vacuum."""
        return self.execute(self.plan())

    def launch(self, digest: str) -> Launched:
        """Execute a plan by its digest; does not raise its error."""
        return self.launcher.execute(self.table, digest, "a test")

    def ledger(self, report: VacuumReport | LogCleanupReport) -> dict[str, tuple[str, str | None]]:
        """Outcome and error by path."""
        assert report.done is not None
        rows = ds.dataset(report.done.ledger, format="parquet").to_table().to_pylist()
        return {row["path"]: (row["outcome"], row["error"]) for row in rows}


def files(report: VacuumReport) -> set[str]:
    """The planned files, without the Hadoop checksums of planned files.

    A checksum of a file that is not planned is included.
    """
    return without_checksums(set(planned_paths(report.diff, directories=False)))


def without_checksums(planned: set[str]) -> set[str]:
    """Planned files without the checksums of other planned files, which Delta does not delete."""
    return planned - {hadoop_checksum(path) for path in planned}


def directories(report: VacuumReport) -> set[str]:
    """The planned directories."""
    return set(planned_paths(report.diff, directories=True))


def change_plan(planned: StageDataset, rows: pa.Table, *, noted: bool = False) -> None:
    """Replace the rows in the one part of a plan; if ``noted``, also their recorded checksums."""
    (part,) = planned.parts()
    pq.write_table(rows, part.path)
    if noted:
        manifest = planned.location.file("rows.json")
        told = json.loads(manifest.read_text(encoding="utf-8"))
        told["parts"][0] |= {"rows": rows.num_rows, "sums": row_sums(rows)}
        manifest.write_text(json.dumps(told), encoding="utf-8")


def planned_rows(planned: StageDataset) -> pa.Table:
    """The rows of the one part of a plan."""
    (part,) = planned.parts()
    return pq.read_table(part.path)


class ClockedStore(StageStore):
    """A workspace whose clock is fixed."""

    time_ms: int

    def now_ms(self) -> int:
        return self.time_ms


def set_clock(chain: Chain, now_ms: int | None) -> None:
    """Fix the chain's clock at a time, or let it run again."""
    store = chain.launcher.store
    same: dict[str, Any] = {"base_uri": store.base_uri, "pyspark": store.pyspark}
    clocked = StageStore(**same) if now_ms is None else ClockedStore(**same, time_ms=now_ms)
    chain.launcher.store = clocked
