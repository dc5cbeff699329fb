"""What people see of the log cleanup chain: summary lines and checks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from maint_assets.assets.checks import Check
from maint_assets.assets.metadata import human_bytes, human_count, human_time
from maint_assets.log_cleanup.plan import STOP_REASONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from maint_assets.assets.log_stages import DeletedLogsSummary, ExpiredLogsSummary
    from maint_assets.assets.run import StageRun

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
"""Kinds as people read them."""


def counted(by_kind: Mapping[str, int]) -> str:
    """``1,200 commits, 3 checkpoints``."""
    return ", ".join(human_count(count, KINDS[kind]) for kind, count in by_kind.items())


def expired_line(planned: ExpiredLogsSummary) -> str:
    """The plan in Markdown."""
    plan = planned.plan
    log = (
        f"of {human_count(planned.log_files, 'file')}, {human_bytes(planned.log_bytes)} in the log"
    )
    notes = "".join(f"  \n{note}" for note in (*planned.rejected, *planned.notes))
    if plan.stop_reason is not None:
        why = STOP_REASONS[plan.stop_reason]
        return f"**Nothing may go** {log}: {why} ({human_time(plan.cutoff_ms)}){notes}"
    return (
        f"**{human_count(plan.files, 'file')}, {human_bytes(plan.bytes)}** {log} may go:  \n"
        f"{counted(planned.by_kind)}  \n{kept_line(planned)}{notes}\n\n"
        f"To approve, launch `deleted_logs` with `approved_plan`:  \n`{plan.digest}`"
    )


def kept_line(planned: ExpiredLogsSummary) -> str:
    """From which version on the log is kept, and what can be read no more."""
    plan = planned.plan
    made = ", a checkpoint yet to be written" if plan.creates_anchor else ""
    ending = planned.versions_ending
    ends = f"; {human_count(ending, 'version')} before it end" if ending else ""
    return (
        f"kept from version {plan.anchor_version}{made}, for all since "
        f"{human_time(plan.cutoff_ms)}{ends}"
    )


def deleted_line(done: DeletedLogsSummary) -> str:
    """The outcome in Markdown."""
    rest = "".join(
        f", {count:,} {what}"
        for what, count in (
            ("missing", done.missing), ("failed", done.failed), ("skipped", done.skipped)
        )
        if count
    )  # fmt: skip
    made = done.checkpoint_version
    return (
        f"**{human_count(done.files, 'log file')}, {human_bytes(done.bytes)} deleted**{rest} in "
        f"{done.seconds:.1f} s  \n{counted(done.by_kind) or 'nothing'}  \n"
        f"{human_count(done.log_files, 'file')}, {human_bytes(done.log_bytes)} are left, versions "
        f"from {done.earliest_version} on"
        + ("" if made is None else f"; checkpoint {made} was written")
    )


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
    "Each checkpoint that was opened to be what the log begins with is whole.",
    _anchor_sound,
    blocking=False,
)
LOG_READABLE = Check(
    "kept_versions_readable",
    "On a fresh listing every version that is kept can be made of what is there.",
    _readable,
)
LOGS_GONE = Check(
    "nothing_failed", "Every planned file is gone or skipped with a reason.", _all_gone
)
