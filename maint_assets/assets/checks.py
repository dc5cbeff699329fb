"""Asset checks: what a person should see at a glance. Safety does not depend on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dagster as dg

if TYPE_CHECKING:
    from maint_assets.assets.stage_run import StageRun
    from maint_assets.snapshot.summary import SnapshotSummary
    from maint_assets.vacuum.summaries import DeletionSummary, DiffSummary


_UNKNOWN = dg.AssetCheckSeverity.WARN
"""A check that was not evaluated blocks nothing."""


@dataclass(frozen=True, slots=True)
class Check:
    """A check of one stage. ``holds`` returns the outcome (None: not evaluated) and metadata."""

    name: str
    description: str
    holds: Callable[[StageRun, Any], tuple[bool | None, dict[str, Any]]]
    blocking: bool = True

    def spec(self, key: dg.AssetKey) -> dg.AssetCheckSpec:
        """The declaration of the check on a stage of a table."""
        return dg.AssetCheckSpec(
            self.name, asset=key, description=self.description, blocking=self.blocking
        )

    def result(self, run: StageRun, summary: Any) -> dg.AssetCheckResult:
        """Evaluate the check on the summary of a stage."""
        passed, shown = self.holds(run, summary)
        return dg.AssetCheckResult(
            passed=bool(passed),
            check_name=self.name,
            metadata=shown,
            severity=_UNKNOWN if passed is None else dg.AssetCheckSeverity.ERROR,
        )


def _checksum(_: StageRun, seen: SnapshotSummary) -> tuple[bool, dict[str, Any]]:
    shown = {
        "checksum": seen.checksum,
        "live_files": seen.live_files,
        "live_bytes": seen.live_bytes,
    }
    return seen.checksum in {"agrees", "absent"}, shown


def _none_missing(_: StageRun, planned: DiffSummary) -> tuple[bool, dict[str, Any]]:
    plan = planned.plan
    return not plan.missing_files, {
        "missing_files": plan.missing_files,
        "example": plan.missing_example or "none",
    }


def _none_lost(_: StageRun, planned: DiffSummary) -> tuple[bool, dict[str, Any]]:
    plan = planned.plan
    return not plan.lost_files, {
        "lost_files": plan.lost_files,
        "example": plan.lost_example or "none",
    }


def _nothing_valid(_: StageRun, planned: DiffSummary) -> tuple[bool, dict[str, Any]]:
    found = planned.plan.valid_in_plan
    return not found, {"valid_in_plan": found}


def _active_there(_: StageRun, done: DeletionSummary) -> tuple[bool | None, dict[str, Any]]:
    found, before = done.active_missing, done.active_missing_before
    if found is None:
        return None, {"active_missing": "not counted: see the log of the run"}
    return found <= before, {"active_missing": found, "active_missing_before": before}


def _all_done(_: StageRun, done: DeletionSummary) -> tuple[bool, dict[str, Any]]:
    return not done.failed, {
        "failed": done.failed,
        "skipped": done.skipped,
        "missing": done.missing,
    }


def _end_there(_: StageRun, done: DeletionSummary) -> tuple[bool, dict[str, Any]]:
    return done.end_error is None, {"error": done.end_error or "none"}


CHECKSUM = Check(
    "log_checksum_agrees",
    "Replay of the log counts the files and bytes that the version checksum records.",
    _checksum,
    blocking=False,
)
NONE_MISSING = Check(
    "no_active_file_missing",
    "Every file of the newest version was found under the table root.",
    _none_missing,
    blocking=False,
)
NONE_LOST = Check(
    "no_file_lost_to_checkpoint",
    "The checkpoint holds each file that an earlier commit adds and no commit removes.",
    _none_lost,
    blocking=False,
)
NOTHING_VALID = Check(
    "nothing_valid_in_plan", "No planned path is needed by a retained version.", _nothing_valid
)
ACTIVE_THERE = Check(
    "active_files_are_there",
    "Every live file that existed before the deletion still exists.",
    _active_there,
)
ALL_DONE = Check(
    "nothing_failed", "Every planned path was deleted, or skipped for a recorded reason.", _all_done
)
END_THERE = Check(
    "vacuum_end_committed",
    "The history of the table has the END of the deletion, unless none is to be committed.",
    _end_there,
    blocking=False,
)
