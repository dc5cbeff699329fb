"""The plan of a log cleanup and its terms as values, its retention, and checks before deleting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from maint_assets.delta.features import Operation, feature_names, refuse_unsupported
from maint_assets.delta.timestamps import duration_text
from maint_assets.errors import RetentionError, StalePlanError
from maint_assets.log_cleanup.commit_times import InCommitTimes
from maint_assets.snapshot.commits import refuse_other_commit
from maint_assets.snapshot.head import newest_head
from maint_assets.snapshot.newer_commits import refuse_old, refuse_other_table

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from maint_assets.delta.properties import TableProperties
    from maint_assets.snapshot.head import TableHead
    from maint_assets.storage.location import Location

    Kept = Callable[[TableProperties], int]

GRANULARITY_MS = {"day": 86_400_000, "hour": 3_600_000, "minute": 60_000}

DAY_MS = 86_400_000

STOP_REASONS = {
    "disabled": "the table's property delta.enableExpiredLogCleanup is false",
    "no_expired_commit": "no commit is older than the cutoff",
    "no_checkpoint_before_cutoff": "no checkpoint is old enough to be the anchor: "
    "all commits are needed",
    "anchor_invalid": "no checkpoint that is old enough to be the anchor is sound: "
    "all commits are needed",
    "gap": "a commit after the checkpoint that the log would begin with is missing",
    "links": "log files that would have to be read are symbolic links, which are left alone",
    "checkpoint_protection": "the table protects its checkpoints, and the protocol of a version "
    "that would be deleted is unknown or unsupported",
    "no_hint": "there is no _last_checkpoint, without which Delta Spark deletes nothing",
    "nothing_to_delete": "no file is older than the checkpoint that the log begins with",
}
"""Why nothing is planned, by name."""


class Terms(msgspec.Struct, frozen=True):
    """The settings of a plan and the table's own properties; times in ms.

    ``in_commit`` is None for a table without in-commit timestamps: file times are used then.
    ``protection_before`` is 0 where no checkpoint is protected. ``time_slack_ms`` is that of the
    log's location: its files may be that much younger than their times.
    """

    planned_ms: int
    retention_ms: int
    table_retention_ms: int
    granularity: str = "day"
    mode: str = "protocol"
    enabled: bool = True
    creates_anchor: bool = False
    min_keep_version: int | None = None
    in_commit: InCommitTimes | None = None
    protection_before: int = 0
    has_sidecars: bool = False
    time_slack_ms: int = 0

    @property
    def cutoff_ms(self) -> int:
        """Planned time less the retention, cut to the start of the day, hour or minute in UTC."""
        step = GRANULARITY_MS[self.granularity]
        return (self.planned_ms - self.retention_ms - self.time_slack_ms) // step * step

    @property
    def left_over_ms(self) -> int:
        """Unreferenced files must be older than this: a writer may be about to reference them."""
        return min(self.cutoff_ms, self.planned_ms - DAY_MS)


def terms(  # noqa: PLR0913
    properties: TableProperties,
    features: Collection[str],
    *,
    planned_ms: int,
    retention_ms: int,
    granularity: str,
    mode: str,
    force: bool,
    creates_anchor: bool,
    min_keep_version: int | None,
    time_slack_ms: int = 0,
) -> Terms:
    """The terms of a plan for a table with these properties and features."""
    in_commit = None
    if properties.in_commit_timestamps:
        in_commit = InCommitTimes(
            properties.in_commit_timestamp_enablement_version or 0,
            properties.in_commit_timestamp_enablement_timestamp_ms,
        )
    return Terms(
        planned_ms=planned_ms,
        retention_ms=retention_ms,
        table_retention_ms=properties.log_retention_ms,
        granularity=granularity,
        mode=mode,
        enabled=properties.enable_expired_log_cleanup or force,
        creates_anchor=creates_anchor,
        min_keep_version=min_keep_version,
        in_commit=in_commit,
        protection_before=protected_before(properties, features),
        has_sidecars="v2Checkpoint" in features,
        time_slack_ms=time_slack_ms,
    )


@dataclass(frozen=True, slots=True)
class LogCleanupPlan:
    """The plan of the ``expired_logs`` stage, as the executing stage needs it; sizes in bytes.

    ``anchor_version`` is the version of the checkpoint that the log begins with afterwards, None
    when nothing is planned. With ``creates_anchor`` the execution writes that checkpoint first.
    ``commit_mark`` is the digest of the commit of ``version``: it detects a restored log that
    reuses the number.
    """

    table: str
    table_id: str
    version: int
    mode: str
    cutoff_ms: int
    retention_ms: int
    table_retention_ms: int
    planned_ms: int
    digest: str
    files: int
    bytes: int
    anchor_version: int | None
    creates_anchor: bool
    stop_reason: str | None
    earliest_version_before: int | None
    earliest_version_after: int | None
    protection_before: int = 0
    commit_mark: str = ""


def retention_ms(
    properties: TableProperties, asked_ms: int | None, *, allow_short: bool, table: str
) -> int:
    """Retention of a log cleanup in ms: the given one, else ``delta.logRetentionDuration``.

    The table's own is raised to ``delta.deletedFileRetentionDuration``, as versions whose removed
    files are kept can still be read. Raises RetentionError for a given one that is negative, and,
    unless a short one is allowed, below either of the two properties.
    """
    own_ms, files_ms = properties.log_retention_ms, properties.deleted_file_retention_ms
    if asked_ms is None:
        return own_ms if allow_short else max(own_ms, files_ms)
    if asked_ms < 0:
        raise RetentionError(table, "a retention can't be less than 0 hours", "give 0 or more")
    for least_ms, what in ((own_ms, "log retention"), (files_ms, "deletedFileRetentionDuration")):
        if asked_ms < least_ms and not allow_short:
            raise RetentionError(
                table,
                f"log retention of {duration_text(asked_ms)} is below the table's {what} of "
                f"{duration_text(least_ms)}",
                "raise it, or allow a short retention (--allow-short-retention, "
                "log_cleanup.allow_short_retention) if nobody reads older versions",
            )
    return asked_ms


def ready_head(
    plan: LogCleanupPlan,
    location: Location,
    *,
    max_age_ms: int,
    force: bool,
    kept_ms: Kept,
    now_ms: int,
) -> TableHead:
    """The head of the planned table, after all checks that its plan may still be executed.

    ``kept_ms`` computes the retention from the table's present properties. Raises StalePlanError,
    RetentionError, UnsupportedFeatureError or LogGapError; changes nothing.
    """
    table = plan.table
    refuse_old(table, planned_ms=plan.planned_ms, max_age_ms=max_age_ms, now_ms=now_ms)
    head = newest_head(location)
    refuse_other_table(head, table_id=plan.table_id, version=plan.version)
    refuse_other_commit(head.location, plan.version, plan.commit_mark)
    refuse_unsupported(head.protocol, Operation.CLEAN_LOG, table=table)
    if not (head.properties.enable_expired_log_cleanup or force):
        raise StalePlanError(
            table, "log cleanup of the table was disabled since the plan", "plan again"
        )
    if kept_ms(head.properties) > plan.retention_ms:
        raise StalePlanError(table, "the table's retention was raised since the plan", "plan again")
    before = protected_before(head.properties, feature_names(head.protocol))
    if before > max(plan.protection_before, plan.anchor_version or 0):
        raise StalePlanError(
            table, "checkpoint protection of the table was raised since the plan", "plan again"
        )
    return head


def protected_before(properties: TableProperties, features: Collection[str]) -> int:
    """The version before which checkpoints are protected, 0 without ``checkpointProtection``."""
    before = properties.require_checkpoint_protection_before_version
    return before if "checkpointProtection" in features else 0
