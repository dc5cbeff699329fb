"""What a launched chain did, in the shapes that the command line promises (design.md 9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import pyarrow.dataset as ds

from maint_assets.datasets.columns import arrow_schema
from maint_assets.snapshot.summary import SnapshotSummary
from maint_assets.vacuum.diff import DIFF_SCHEMA
from maint_assets.vacuum.summaries import DeletionSummary, DiffSummary

if TYPE_CHECKING:
    from maint_assets.assets.stage_store import StageDataset
    from maint_assets.cli.launcher import Launched, Launcher
    from maint_assets.config import TableSettings
    from maint_assets.errors import MaintError


@dataclass(frozen=True, slots=True)
class VacuumReport:
    """A vacuum from plan to deletion; ``done`` None when it was not executed."""

    planned: DiffSummary
    diff: StageDataset
    seconds: dict[str, float]
    done: DeletionSummary | None = None
    error: MaintError | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.planned.plan.paths

    @property
    def question(self) -> str:
        """What a person is asked before the plan is executed."""
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
    """A plan of a table; raises the error that ended the planning."""
    diff, launched = launcher.planned(table, "vacuum", "diff")
    return VacuumReport(diff.summary(DiffSummary), diff, launched.seconds)


def execute_vacuum(
    launcher: Launcher, table: TableSettings, report: VacuumReport, *, by: str
) -> VacuumReport:
    """The planned vacuum executed; ``error`` is set when some paths could not be deleted."""
    digest = report.planned.plan.digest
    done, launched = launcher.executed(table, digest, by, stage="deletion")
    return VacuumReport(
        report.planned,
        report.diff,
        {**report.seconds, **launched.seconds},
        done.summary(DeletionSummary),
        launched.error,
    )


def inspection(launcher: Launcher, table: TableSettings) -> tuple[SnapshotSummary, Launched]:
    """The snapshot of a table; raises the error that ended it."""
    launched = launcher.plan(table, stages=["snapshot"])
    if launched.error is not None:
        raise launched.error
    return launcher.dataset(table, "snapshot", launched).summary(SnapshotSummary), launched


def inspection_json(seen: SnapshotSummary) -> dict[str, Any]:
    """The public JSON object of ``maint-assets inspect``."""
    return {
        "table": seen.table,
        "table_id": seen.table_id,
        "version": seen.version,
        "timestamp_ms": seen.timestamp_ms,
        "live_files": seen.live_files,
        "live_bytes": seen.live_bytes,
        "tombstones": seen.tombstones,
        "reader_features": seen.reader_features,
        "writer_features": seen.writer_features,
        "min_reader_version": seen.min_reader_version,
        "min_writer_version": seen.min_writer_version,
        "partition_columns": seen.partition_columns,
        "checkpoint_version": seen.checkpoint_version,
        "checksum": seen.checksum,
        "refused": seen.refused,
    }


def planned_paths(diff: StageDataset, *, directories: bool) -> list[str]:
    """The planned files, or the planned directories, sorted; asked for by a person only."""
    is_directory = pc.field("kind") == "directory"
    paths = [part.path for part in diff.parts()]
    rows = ds.dataset(paths, arrow_schema(DIFF_SCHEMA), format="parquet")
    found = rows.to_table(columns=["path"], filter=is_directory if directories else ~is_directory)
    return sorted(found.column("path").to_pylist())


def _sizes(files: int, directories: int, size: int) -> dict[str, int]:
    return {"files": files, "directories": directories, "bytes": size}
