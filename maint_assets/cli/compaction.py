"""The command ``optimize``: plan and execute, print as JSON or for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow.dataset as ds
from rich.markup import escape
from rich.table import Table

from maint_assets.assets.display.compaction import WORDS, verified_line
from maint_assets.assets.numbers import human_bytes, human_count
from maint_assets.assets.stages.compaction import BinsSummary, RewrittenSummary
from maint_assets.compaction.planning.schema import COMPACTION_ARROW

if TYPE_CHECKING:
    from rich.console import Console

    from maint_assets.assets.stage_store import StageDataset
    from maint_assets.cli.launcher import Launcher
    from maint_assets.compaction.reporting.metrics import RewriteMetrics
    from maint_assets.compaction.reporting.skipping import ColumnSkipping
    from maint_assets.config import TableSettings
    from maint_assets.errors import MaintError


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """A compaction from plan to commits; ``done`` is None if it was not executed."""

    planned: BinsSummary
    bins: StageDataset
    seconds: dict[str, float]
    done: RewrittenSummary | None = None
    ledger: str | None = None
    error: MaintError | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the plan is empty."""
        return not self.planned.plan.bins

    @property
    def question(self) -> str:
        """The question before the plan is executed."""
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
        if paths:
            shown["paths"] = planned_inputs(self.bins)
        return shown


def plan_compaction(launcher: Launcher, table: TableSettings) -> CompactionReport:
    """Plan a table; raises the error that ended the planning."""
    bins, launched = launcher.planned(table, "compaction", "compaction_bins")
    return CompactionReport(bins.summary(BinsSummary), bins, launched.seconds)


def execute_compaction(
    launcher: Launcher, table: TableSettings, report: CompactionReport, *, by: str | None
) -> CompactionReport:
    """Execute the planned compaction; ``error`` is set if some bins failed."""
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


def planned_inputs(bins: StageDataset) -> list[str]:
    """The files of all bins, sorted. Holds all paths in memory: only for ``--paths``."""
    paths = [part.path for part in bins.parts()]
    rows = ds.dataset(paths, COMPACTION_ARROW, format="parquet")
    return sorted(rows.to_table(columns=["path"]).column("path").to_pylist())


def show_bins(console: Console, report: CompactionReport, *, paths: bool = False) -> None:
    """Print what is to be rewritten, what stays, and why."""
    plan, planned = report.planned.plan, report.planned
    console.print(f"[bold]{escape(plan.table)}[/] at version {plan.version}")
    reasons = Table("live files", "count", "bytes", box=None, pad_edge=False, header_style="dim")
    for reason, count in planned.by_reason.items():
        reasons.add_row(f"{WORDS[reason]}: rewritten", f"{count:,}", "")
    for reason, count in plan.left_out.items():
        size = human_bytes(plan.left_out_bytes[reason])
        reasons.add_row(f"[dim]{WORDS[reason]}: stay[/]", f"[dim]{count:,}[/]", f"[dim]{size}[/]")
    console.print(reasons)
    if not plan.bins:
        console.print("[green]Nothing is to be rewritten.[/]")
        return
    console.print(
        f"[bold]{human_count(plan.files, 'file')}[/] of {human_bytes(plan.bytes)} would become "
        f"about [bold]{plan.expected_files:,}[/] "
        f"of up to {human_bytes(plan.selection.target_bytes)}."
    )
    if paths:
        rows = ds.dataset([part.path for part in report.bins.parts()], format="parquet")
        for batch in rows.to_batches(columns=["bin", "path"]):
            for row in batch.to_pylist():
                console.print(f"{row['bin']}  {escape(row['path'])}", soft_wrap=True)
    console.print(f"[dim]plan {plan.digest}, rows in {escape(report.bins.rows_location.path)}[/]")


def show_rewritten(console: Console, report: CompactionReport) -> None:
    """Print what was rewritten, in which versions, and what was not and why."""
    done = report.done
    if done is None:
        return
    versions = ", ".join(map(str, done.versions))
    console.print(
        f"[green]Rewritten[/]: {human_count(done.files_removed, 'file')} "
        f"({human_bytes(done.bytes_removed)}) became {human_count(done.files_added, 'file')} "
        f"({human_bytes(done.bytes_added)}), {human_count(done.rows_added, 'row')}, "
        f"in {done.seconds:.1f} s"
        + (f", committed in version {versions}." if versions else "; nothing was committed.")
    )
    if versions:
        console.print(_sizes(done.metrics))
        console.print(_counts(done.metrics))
        console.print(f"{verified_line(done).capitalize()}.")
        if done.skipping:
            console.print(_skipping(done.skipping))
    for reason, count in done.not_committed.items():
        console.print(f"[yellow]{human_count(count, 'bin')} not rewritten[/]: {escape(reason)}")
    console.print(f"[dim]ledger: {escape(report.ledger or '')}[/]")


def _sizes(metrics: RewriteMetrics) -> Table:
    """The files before and after, with their sizes."""
    names = ("files", "count", "bytes", "smallest", "average", "largest")
    table = Table(*names, box=None, pad_edge=False, header_style="dim")
    for name, files in (("before", metrics.files_removed), ("after", metrics.files_added)):
        sizes = (files.total_size, files.min or 0, files.avg, files.max or 0)
        table.add_row(name, f"{files.total_files:,}", *map(human_bytes, sizes))
    return table


def _skipping(columns: list[ColumnSkipping]) -> Table:
    """How many files readers read on average, before and after."""
    names = ("files read by", "for one value", "for a range", "overlaps of a file")
    table = Table(*names, box=None, pad_edge=False, header_style="dim")
    for each in columns:
        old, new = each.before, each.after
        table.add_row(
            escape(each.name),
            f"{old.lookup:,.1f} of {old.files:,} -> [bold]{new.lookup:,.1f} of {new.files:,}[/]",
            f"{old.range:,.1f} -> [bold]{new.range:,.1f}[/]",
            f"{old.overlaps:,.1f} -> [bold]{new.overlaps:,.1f}[/]",
        )
    return table


def _counts(metrics: RewriteMetrics) -> str:
    vectors = metrics.deletion_vector_stats
    gone = human_count(vectors.num_deletion_vectors_removed, "deletion vector")
    rows = human_count(vectors.num_deletion_vector_rows_removed, "deleted row")
    return (
        f"{human_count(metrics.partitions_optimized, 'partition')}, "
        f"{human_count(metrics.num_bins, 'bin')}, {human_count(metrics.num_batches, 'commit')}; "
        f"{metrics.total_files_skipped:,} of "
        f"{human_count(metrics.total_considered_files, 'considered file')} stay"
        + (f"; without {gone} and {rows} now" if vectors.num_deletion_vectors_removed else "")
        + "."
    )
