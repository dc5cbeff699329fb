"""The plan of a VACUUM as a value, its retention, and the guards checked before a deletion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from maint_assets.delta.timestamps import duration_text
from maint_assets.errors import GuardError, RetentionError

if TYPE_CHECKING:
    from maint_assets.delta.properties import TableProperties


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of an unattended deletion, and the guards that are overridden.

    ``max_delete_share`` is a share of the table's bytes (0 to 1); None means no limit.
    """

    max_delete_share: float = 0.5
    max_delete_files: int | None = None
    plan_max_age_ms: int = 24 * 3_600_000
    allow_missing_files: bool = False
    allow_clock_skew: bool = False


@dataclass(frozen=True, slots=True)
class VacuumPlan:
    """The plan of the ``diff`` stage, as the executing stage needs it; sizes in bytes.

    ``retention_asked`` is False when the table's own retention was used. ``handled_version`` is the
    version up to which no removed file is left once the whole plan is executed. ``commit_mark`` is
    the digest of the commit of ``version``: it detects a restored log that reuses the number.
    ``aliased_files`` counts planned files that the log also names outside of the table,
    ``lost_files`` existing files that the checkpoint lacks although a commit before it added them,
    ``valid_in_plan`` planned paths that are valid files: a defect of the plan.
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
    valid_in_plan: int = 0

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
    """Counts of the outcomes of a deletion, from its ledger; bytes of the deleted files."""

    files: int
    directories: int
    bytes: int
    missing: int
    failed: int
    skipped: int
    start_version: int | None = None

    @property
    def paths(self) -> int:
        """The planned paths that have an outcome."""
        return self.files + self.directories + self.missing + self.failed + self.skipped


def retention_ms(
    properties: TableProperties, asked_ms: int | None, *, allow_short: bool, table: str
) -> int:
    """Retention of a VACUUM in ms: the given one, else ``delta.deletedFileRetentionDuration``.

    Raises RetentionError for a negative one, and for one below the table's own unless allowed.
    """
    own_ms = properties.deleted_file_retention_ms
    if asked_ms is None:
        return own_ms
    if asked_ms < 0:
        raise RetentionError(table, "a retention can't be less than 0 hours", "give 0 or more")
    if asked_ms < own_ms and not allow_short:
        raise RetentionError(
            table,
            f"retention of {duration_text(asked_ms)} is below the table's {duration_text(own_ms)}",
            "raise it, or allow a short retention (--allow-short-retention, "
            "vacuum.allow_short_retention) if no reader or writer needs older files",
        )
    return asked_ms


def refuse_beyond(plan: VacuumPlan, limits: Limits, *, attended: bool) -> None:
    """Raise GuardError for planned files that are valid or aliased, for missing files, and limits.

    The limits hold for unattended plans only. Nothing allows a plan with valid files.
    """
    if plan.valid_in_plan:
        raise GuardError(
            plan.table,
            f"{plan.valid_in_plan} planned paths are needed by a retained version",
            "plan again, and report it if the new plan has such paths too",
        )
    if plan.aliased_files:
        raise GuardError(
            plan.table,
            f"{plan.aliased_files} planned files are files that the log names by another path, "
            f"{plan.aliased_example} among them: the table was moved, or is mounted twice",
            "run the maintenance at the location that the paths in the log name",
        )
    if plan.missing_files and not limits.allow_missing_files:
        raise GuardError(
            plan.table,
            f"{plan.missing_files} active files were not found, {plan.missing_example} among them",
            "check that the table root is right and no file was lost, or allow missing files "
            "(--allow-missing-files, vacuum.allow_missing_files)",
        )
    if attended:
        return
    if plan.share > limits.max_delete_share:
        raise GuardError(
            plan.table,
            f"the plan deletes {plan.share:.1%} of the table's bytes, "
            f"more than max_delete_share of {limits.max_delete_share:.1%}",
            "approve the plan by hand (--yes), or raise the limit",
        )
    if limits.max_delete_files is not None and plan.files > limits.max_delete_files:
        raise GuardError(
            plan.table,
            f"the plan deletes {plan.files} files, "
            f"more than max_delete_files of {limits.max_delete_files}",
            "approve the plan by hand (--yes), or raise the limit",
        )
