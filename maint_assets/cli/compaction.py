"""What a launched compaction did, in the shape that the command line promises (design.md 9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from maint_assets.assets.stages.compaction import BinsSummary, RewrittenSummary

if TYPE_CHECKING:
    from maint_assets.assets.stage_store import StageDataset
    from maint_assets.cli.launcher import Launcher
    from maint_assets.config import TableSettings
    from maint_assets.errors import MaintError


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """A compaction from plan to its commits; ``done`` None when it was not executed."""

    planned: BinsSummary
    bins: StageDataset
    seconds: dict[str, float]
    done: RewrittenSummary | None = None
    ledger: str | None = None
    error: MaintError | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.planned.plan.bins

    @property
    def question(self) -> str:
        """What a person is asked before the plan is executed."""
        plan = self.planned.plan
        return f"Rewrite {plan.files:,} files of {plan.table} into about {plan.expected_files:,}?"

    def json(self, *, paths: bool = False) -> dict[str, Any]:
        """The public JSON object of ``maint-assets optimize``."""
        plan, done = self.planned.plan, self.done
        shown: dict[str, Any] = {
            "table": plan.table,
            "operation": plan.selection.operation,
            "version_before": plan.version,
            "version_after": done.versions[-1] if done and done.versions else None,
            "versions": done.versions if done else [],
            "executed": done is not None,
            "plan_digest": plan.digest,
            "bins": done.bins if done else plan.bins,
            "bins_by_engine": done.bins_by_engine if done else {},
            "candidates": {"files": plan.files, "bytes": plan.bytes, "rows": plan.rows},
            "considered_files": plan.considered_files,
            "by_reason": self.planned.by_reason,
            "files_removed": done.files_removed if done else 0,
            "files_added": done.files_added if done else 0,
            "bytes_removed": done.bytes_removed if done else 0,
            "bytes_added": done.bytes_added if done else 0,
            "rows": done.rows_added if done else 0,
            "deletion_vectors_removed": done.vectors_removed if done else 0,
            "left_out": [
                {"reason": reason, "files": files, "bytes": plan.left_out_bytes[reason]}
                for reason, files in plan.left_out.items()
            ],
            "dropped_bins": done.dropped if done else 0,
            "refused_bins": done.refused if done else 0,
            "failed_bins": done.failed if done else 0,
            "verified_bins": done.verified_bins if done else 0,
            "not_committed": done.not_committed if done else {},
            "zorder_by": list(plan.selection.zorder_by),
            "skipping": msgspec.to_builtins(done.skipping) if done else None,
            "metrics": msgspec.to_builtins(done.metrics) if done else None,
            "seconds": self.seconds,
            "ledger": self.ledger,
            "plan": self.bins.rows_location.path,
        }
        return shown


def plan_compaction(launcher: Launcher, table: TableSettings) -> CompactionReport:
    """A plan of a table; raises the error that ended the planning."""
    bins, launched = launcher.planned(table, "compaction", "compaction_bins")
    return CompactionReport(bins.summary(BinsSummary), bins, launched.seconds)


def execute_compaction(
    launcher: Launcher, table: TableSettings, report: CompactionReport, *, by: str
) -> CompactionReport:
    """The planned compaction executed; ``error`` is set when some bins failed."""
    digest = report.planned.plan.digest
    done, launched = launcher.executed(table, digest, by, stage="rewritten_files")
    return CompactionReport(
        report.planned,
        report.bins,
        {**report.seconds, **launched.seconds},
        done.summary(RewrittenSummary),
        done.rows_location.path,
        launched.error,
    )
