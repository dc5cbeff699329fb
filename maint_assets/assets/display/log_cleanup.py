"""Log cleanup in the UI: summaries in Markdown, and checks."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from maint_assets.assets.checks import Check
from maint_assets.assets.numbers import human_bytes, human_count, human_rest, human_time
from maint_assets.delta.timestamps import duration_text
from maint_assets.log_cleanup.plan import STOP_REASONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from maint_assets.assets.stage_run import StageRun
    from maint_assets.assets.stages.log_cleanup import DeletedLogsSummary, ExpiredLogsSummary
    from maint_assets.log_cleanup.plan import LogCleanupPlan

KINDS = {
    "commit": "commit",
    "checksum": "checksum",
    "checkpoint": "checkpoint",
    "checkpoint_part": "checkpoint part",
    "v2_checkpoint": "V2 checkpoint",
    "compaction": "compaction file",
    "staged_commit": "staged commit",
    "sidecar": "sidecar",
    "temporary": "temporary file",
    "hadoop_checksum": "Hadoop checksum",
}
"""Kinds of log files in words."""

_WAYS = {
    "disabled": "force (log_cleanup.force, --force) cleans it all the same",
    "no_checkpoint_before_cutoff": "create_anchor_checkpoint may write one",
    "anchor_invalid": "create_anchor_checkpoint may write another",
}
"""What makes a cleanup possible, by the reason that prevents it."""

_LINE = 40
"""Characters in a line of a summary that stay visible beside a preview with long paths."""

_RUNS = 3
"""How many ranges of versions are listed one by one."""

_NO_BREAK = "\N{NO-BREAK SPACE}"
_FOLDS = textwrap.TextWrapper(_LINE, break_long_words=False, break_on_hyphens=False)


def counted(by_kind: Mapping[str, int]) -> str:
    """``1,200 commits, 3 checkpoints``; lines do not break after a number."""
    counts = (human_count(count, KINDS[kind]) for kind, count in by_kind.items())
    return ", ".join(count.replace(" ", _NO_BREAK) for count in counts)


def expired_line(planned: ExpiredLogsSummary) -> str:
    """The plan in Markdown."""
    plan = planned.plan
    log = (
        f"of {human_count(planned.log_files, 'file')}, {human_bytes(planned.log_bytes)} in the log"
    )
    more = len(planned.rejected) - 1
    others = (f"and {human_count(more, 'checkpoint')} more not sound",) if more > 0 else ()
    notes = (*planned.rejected[:1], *others, *planned.notes)
    if plan.stop_reason is not None:
        return _folded(
            f"**Nothing to delete** {log}:", stop_line(plan), since_line(planned), *notes
        )
    files = (
        f"**{human_count(plan.files, 'file')}, {human_bytes(plan.bytes)} can be deleted** {log}:"
    )
    lines = (files, counted(planned.by_kind), since_line(planned), ends_line(planned), *notes)
    approve = _folded("To approve, launch `deleted_logs` with `approved_plan`:", f"`{plan.digest}`")
    return f"{_folded(*lines)}\n\n{approve}"


def stop_line(plan: LogCleanupPlan) -> str:
    """Why nothing can be deleted, the name of the reason, and what would change that."""
    reason = plan.stop_reason or ""
    way = _WAYS.get(reason)
    return f"{STOP_REASONS[reason]} ({reason})" + (f"; {way}" if way else "")


def since_line(planned: ExpiredLogsSummary) -> str:
    """The retention, and which version was the newest at the cutoff."""
    plan, newest = planned.plan, planned.cutoff_version
    then = "" if newest is None else f", when version {newest} was the newest"
    kept = duration_text(plan.retention_ms)
    return f"Versions are kept for {kept}: since {human_time(plan.cutoff_ms)}{then}"


def ends_line(planned: ExpiredLogsSummary) -> str:
    """The checkpoint with which the log begins then, and the versions that become unreadable."""
    plan = planned.plan
    if plan.mode == "spark":
        return f"As delta-spark does it, {_ending(planned)}"
    yet = ", which is written first" if plan.creates_anchor else ""
    return f"The log then begins with checkpoint {plan.anchor_version}{yet}; {_ending(planned)}"


def _ending(planned: ExpiredLogsSummary) -> str:
    if not planned.ending:
        return "every version that can be read now stays readable"
    if planned.plan.earliest_version_after is None:
        return "no version can be read any more"
    newest = planned.cutoff_version
    lost = newest is not None and any(first <= newest <= last for first, last in planned.ending)
    too = f", also {newest}, which was the newest then" if lost else ""
    return f"{_versions(planned)} can no longer be read{too}"


def _versions(planned: ExpiredLogsSummary) -> str:
    """The versions that become unreadable: as ranges, if these are few."""
    runs = planned.ending
    if len(runs) > _RUNS:
        return f"{planned.versions_ending:,} versions from {runs[0][0]} to {runs[-1][1]}"
    shown = [f"{first}" if first == last else f"{first} to {last}" for first, last in runs]
    plural = "" if planned.versions_ending == 1 else "s"
    return f"version{plural} " + " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))


def deleted_line(done: DeletedLogsSummary) -> str:
    """The outcome in Markdown."""
    rest = human_rest({"missing": done.missing, "failed": done.failed, "skipped": done.skipped})
    made = done.checkpoint_version
    return _folded(
        f"**{human_count(done.files, 'log file')}, {human_bytes(done.bytes)} deleted**{rest} in "
        f"{done.seconds:.1f} s",
        counted(done.by_kind),
        "" if made is None else f"Checkpoint {made} was written first",
        left_line(done),
    )


def left_line(done: DeletedLogsSummary) -> str:
    """The size of the log afterwards, and the oldest version that can be read."""
    left = f"{human_count(done.log_files, 'file')}, {human_bytes(done.log_bytes)}"
    return f"{left}, are left; versions from {done.earliest_version} on can be read"


def _folded(*sentences: str) -> str:
    """Sentences wrapped into lines of Markdown that fit beside a wide preview."""
    lines = (line for each in sentences for line in _FOLDS.wrap(each))
    return "  \n".join(lines)


def _anchor_sound(_: StageRun, planned: ExpiredLogsSummary) -> tuple[bool, dict[str, Any]]:
    return not planned.rejected, {
        "anchor_version": -1
        if planned.plan.anchor_version is None
        else planned.plan.anchor_version,
        "rejected": "; ".join(planned.rejected) or "none",
    }


def _readable(_: StageRun, done: DeletedLogsSummary) -> tuple[bool, dict[str, Any]]:
    found = done.earliest_version
    return found is not None, {"earliest_version": "none" if found is None else found}


def _all_gone(_: StageRun, done: DeletedLogsSummary) -> tuple[bool, dict[str, Any]]:
    shown = {"failed": done.failed, "skipped": done.skipped, "missing": done.missing}
    return not done.failed, shown


CHECKPOINTS_SOUND = Check(
    "checkpoints_sound",
    "Every checkpoint examined as a possible anchor is sound.",
    _anchor_sound,
    blocking=False,
)
LOG_READABLE = Check(
    "kept_versions_readable",
    "Every retained version can be reconstructed from a new listing of the log.",
    _readable,
)
LOGS_GONE = Check(
    "nothing_failed", "Every planned file is gone or skipped with a reason.", _all_gone
)
