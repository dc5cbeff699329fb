"""What a VACUUM was asked and what it planned: cutoff, limits, and the plan's identity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from maint_assets.delta.timestamps import shown_length
from maint_assets.errors import GuardError, RetentionError

if TYPE_CHECKING:
    from maint_assets.delta.properties import TableProperties


@dataclass(frozen=True, slots=True)
class Limits:
    """What an unattended deletion may do at most, and which guards are overridden."""

    max_delete_share: float = 0.5
    max_delete_files: int | None = None
    plan_max_age_ms: int = 24 * 3_600_000
    allow_missing_files: bool = False
    allow_clock_skew: bool = False


@dataclass(frozen=True, slots=True)
class VacuumPlan:
    """What the ``diff`` stage planned, as the executing stage needs it; sizes in bytes.

    ``handled_version`` is the version up to which nothing is left to remove once all of it is done.
    ``commit_mark`` tells the commit of the version from another one of the same number.
    ``aliased_files`` are planned ones that the log also names outside of the table.
    """

    table: str
    table_id: str
    version: int
    cutoff_ms: int
    retention_ms: int
    retention_asked: bool
    table_retention_ms: int
    planned_ms: int
    digest: str
    files: int
    directories: int
    bytes: int
    table_bytes: int
    scanned_directories: int
    missing_files: int
    missing_example: str | None
    mode: str = "full"
    handled_version: int | None = None
    commit_mark: str = ""
    aliased_files: int = 0
    aliased_example: str | None = None
    lost_files: int = 0
    lost_example: str | None = None

    @property
    def paths(self) -> int:
        """The planned files and directories."""
        return self.files + self.directories

    @property
    def share(self) -> float:
        """The planned bytes as a share of all bytes found under the table root."""
        return self.bytes / self.table_bytes if self.table_bytes else 0.0


@dataclass(frozen=True, slots=True)
class Deleted:
    """What a deletion did, counted from its ledger; bytes of files that are gone now."""

    files: int
    directories: int
    bytes: int
    missing: int
    failed: int
    skipped: int
    start_version: int | None = None
    end_version: int | None = None

    @property
    def paths(self) -> int:
        """The planned paths that have an outcome."""
        return self.files + self.directories + self.missing + self.failed + self.skipped


def retention_ms(
    properties: TableProperties, asked_ms: int | None, *, allow_short: bool, table: str
) -> int:
    """The retention that a VACUUM keeps: as asked, else the table's own, in ms.

    Raises RetentionError for a negative one, and for one below the table's own unless allowed.
    """
    own_ms = properties.deleted_file_retention_ms
    if asked_ms is None:
        return own_ms
    if asked_ms < 0:
        raise RetentionError(table, "a retention can't be less than 0 hours", "ask for 0 or more")
    if asked_ms < own_ms and not allow_short:
        raise RetentionError(
            table,
            f"retention of {shown_length(asked_ms)} is below the table's {shown_length(own_ms)}",
            "raise it, or allow a short retention (--allow-short-retention, "
            "vacuum.allow_short_retention) if no reader or writer needs older files",
        )
    return asked_ms


def refuse_beyond(plan: VacuumPlan, limits: Limits, *, attended: bool) -> None:
    """GuardError when the table is not whole, or an unattended plan exceeds its limits."""
    if plan.aliased_files:
        raise GuardError(
            plan.table,
            f"{plan.aliased_files} planned files are files that the log names elsewhere, "
            f"{plan.aliased_example} among them: the table was moved, or is mounted twice",
            "maintain it where its log says that it lies",
        )
    if plan.missing_files and not limits.allow_missing_files:
        raise GuardError(
            plan.table,
            f"{plan.missing_files} active files were not found, {plan.missing_example} among them",
            "look whether the root is right and the table whole, or allow it "
            "(--allow-missing-files, vacuum.allow_missing_files)",
        )
    if attended:
        return
    if plan.share > limits.max_delete_share:
        raise GuardError(
            plan.table,
            f"the plan deletes {plan.share:.1%} of the table's bytes, "
            f"more than max_delete_share of {limits.max_delete_share:.1%}",
            "approve the plan by hand, or raise the limit",
        )
    if limits.max_delete_files is not None and plan.files > limits.max_delete_files:
        raise GuardError(
            plan.table,
            f"the plan deletes {plan.files} files, "
            f"more than max_delete_files of {limits.max_delete_files}",
            "approve the plan by hand, or raise the limit",
        )
