"""Compaction in the UI: summaries in Markdown, pictures and checks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from maint_assets.assets.checks import Check
from maint_assets.assets.display.size_charts import paired_bars, size_histogram
from maint_assets.assets.numbers import human_bytes, human_count

if TYPE_CHECKING:
    from maint_assets.assets.stage_run import StageRun
    from maint_assets.assets.stages.compaction import BinsSummary, RewrittenSummary

WORDS = {
    "small": "small",
    "deleted_rows": "with deleted rows",
    "dropped_columns": "with dropped columns",
    "no_stats": "without statistics",
    "large": "large enough",
    "whole": "without deleted rows or dropped columns",
    "alone": "with nothing to be merged with",
    "unordered": "not ordered yet",
    "merged": "to be ordered again with new files",
    "ordered": "in the order",
    "clustered": "clustered otherwise (full)",
    "other_partition": "in other partitions",
    "postponed": "postponed (max_bytes_per_run)",
    "disputed": "added and removed by one commit",
}
"""Reasons in words."""


def bins_line(planned: BinsSummary) -> str:
    """The plan in Markdown."""
    plan = planned.plan
    stays = _counts(plan.left_out)
    stay = f"  \nStay: {stays}" if stays else ""
    if not plan.bins:
        return f"**Nothing is to be rewritten**{stay}"
    return (
        f"**{human_count(plan.files, 'file')}, {human_bytes(plan.bytes)} in "
        f"{human_count(plan.bins, 'bin')}**: {_counts(planned.by_reason)}{stay}\n\n"
        f"To approve, launch `rewritten_files`  \nwith `approved_plan`:  \n`{plan.digest}`"
    )


def rewritten_line(done: RewrittenSummary) -> str:
    """The outcome in Markdown."""
    rest = ", ".join(
        f"{human_count(count, 'bin')} {what}"
        for what, count in (
            ("by Spark", done.bins_by_engine.get("spark", 0)),
            ("dropped", done.dropped), ("refused", done.refused), ("failed", done.failed)
        )
        if count
    )  # fmt: skip
    versions = ", ".join(map(str, done.versions)) or "none"
    lines = [
        f"**{human_count(done.files_removed, 'file')}, {human_bytes(done.bytes_removed)}**",
        f"**became {human_count(done.files_added, 'file')}, {human_bytes(done.bytes_added)}**",
        f"with {human_count(done.rows_added, 'row')}",
        f"committed in version {versions}" + (f"; {rest}" if rest else ""),
        verified_line(done),
    ]
    return "  \n".join(lines)


def verified_line(done: RewrittenSummary) -> str:
    """For how many bins the rows were compared."""
    if not done.verified_bins:
        return "rows compared in no bin"
    bins = human_count(done.bins, "bin")
    return f"rows compared in {done.verified_bins:,} of {bins}"


def planned_picture(planned: BinsSummary) -> str:
    """Picture of live files by size, and of those to rewrite."""
    return size_histogram(
        planned.sizes,
        planned.planned_sizes,
        names=("live files", "to be rewritten"),
        label="{1:,} of {0:,} files",
    )


def sizes_picture(done: RewrittenSummary) -> str:
    """Picture of live files by size, before and after."""
    return size_histogram(
        done.sizes_before,
        done.sizes_after,
        names=("files before", "files after"),
        label="{0:,} files, now {1:,}",
    )


SKIPPING_COLUMNS = 4
"""Columns of the order in the picture; Dagster hides Markdown that is longer."""


def skipping_picture(done: RewrittenSummary) -> str | None:
    """Picture of the share of files that a lookup reads, by column, before and after."""
    if not done.skipping:
        return None
    rows: list[tuple[str, float, float]] = []
    for each in done.skipping[:SKIPPING_COLUMNS]:
        shares = [side.lookup / max(side.files, 1) for side in (each.before, each.after)]
        texts = (
            f"{share:.0%} of {side.files:,}"
            for share, side in zip(shares, (each.before, each.after), strict=True)
        )
        rows.append((f"{each.name}: {', now '.join(texts)}", shares[0], shares[1]))
    names = ("files read before", "files read now")
    return paired_bars(rows, names=names, title="files that a lookup reads")


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {WORDS[name]}" for name, count in counts.items() if count)


def _same_rows(_: StageRun, done: RewrittenSummary) -> tuple[bool, dict[str, Any]]:
    shown = {
        "rows_before": done.rows_removed,
        "rows_after": done.rows_added,
        "bins": done.bins,
        "bins_with_rows_compared": done.verified_bins,
    }
    return done.rows_removed == done.rows_added, shown


def _all_rewritten(_: StageRun, done: RewrittenSummary) -> tuple[bool, dict[str, Any]]:
    shown: dict[str, Any] = {
        "dropped": done.dropped, "refused": done.refused, "failed": done.failed
    }  # fmt: skip
    return not done.refused + done.failed, {**shown, **done.not_committed}


SAME_ROWS = Check(
    "same_rows",
    "New files hold as many rows as their inputs had live rows, and equal rows where they were "
    "compared (verify_rows): a bin that differs is never committed.",
    _same_rows,
)
ALL_REWRITTEN = Check(
    "all_rewritten", "No bin was refused or failed.", _all_rewritten, blocking=False
)
