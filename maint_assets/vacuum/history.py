"""The VACUUM START and END commits in the table's history, and Delta's log messages.

Operation names, parameters, metrics and messages are those of Delta Spark, so that DESCRIBE HISTORY
and log searches show the same as for Delta's own VACUUM.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from maint_assets.commit.transaction import commit_record, refuse_ignored_conditions
from maint_assets.delta.timestamps import utc
from maint_assets.snapshot.head import table_head

if TYPE_CHECKING:
    from collections.abc import Callable

    from maint_assets.snapshot.head import TableHead
    from maint_assets.storage.location import Location
    from maint_assets.vacuum.plan import Deleted, VacuumPlan

logger = logging.getLogger(__name__)


def start(head: TableHead, plan: VacuumPlan, *, now_ms: Callable[[], int]) -> int:
    """Commit VACUUM START and return its version.

    Raises GuardError on a store where it could overwrite another commit.
    ``specifiedRetentionMillis`` is present only when a retention was given, as Delta has it.
    """
    refuse_ignored_conditions(head.location)
    own_ms = head.properties.deleted_file_retention_ms
    parameters: dict[str, Any] = {
        "retentionCheckEnabled": not plan.retention_ms < own_ms,
        "defaultRetentionMillis": own_ms,
    }
    if plan.retention_asked:
        parameters["specifiedRetentionMillis"] = plan.retention_ms
    planned = plan.files + plan.directories
    metrics = {"numFilesToDelete": str(planned), "sizeOfDataToDelete": str(plan.bytes)}
    return commit_record(
        head, "VACUUM START", parameters=parameters, metrics=metrics, now_ms=now_ms
    )


def end(
    location: Location,
    plan: VacuumPlan,
    done: Deleted,
    *,
    now_ms: Callable[[], int],
    is_whole: bool = True,
) -> int:
    """Commit VACUUM END and return its version.

    The status is COMPLETED only when the whole plan was executed and no path failed.
    """
    metrics = {
        "numDeletedFiles": str(done.files + done.directories),
        "numVacuumedDirectories": str(plan.scanned_directories),
    }
    status = "COMPLETED" if is_whole and not done.failed else "FAILED"
    head = table_head(location)
    return commit_record(
        head, "VACUUM END", parameters={"status": status}, metrics=metrics, now_ms=now_ms
    )


def log_planned(plan: VacuumPlan, *, dry_run: bool) -> None:
    """Log the messages of Delta Spark about a plan."""
    cutoff = utc(plan.cutoff_ms)
    logger.info(
        "Starting garbage collection (dryRun = %s) of untracked files older than %s in %s",
        str(dry_run).lower(),
        cutoff.strftime("%d %b %Y %H:%M:%S GMT"),
        plan.table,
    )
    if dry_run:
        logger.info(
            "Found %s files (%s bytes) and directories in a total of %s directories "
            "that are safe to delete.",
            plan.files + plan.directories,
            plan.bytes,
            plan.scanned_directories,
        )
    else:
        logger.info(
            "Deleting untracked files and empty directories in %s. "
            "The amount of data to be deleted is %s (in bytes)",
            plan.table,
            plan.bytes,
        )


def log_deleted(plan: VacuumPlan, done: Deleted) -> None:
    """Log the message of Delta Spark about a finished deletion."""
    logger.info(
        "Deleted %s files (%s bytes) and directories in a total of %s directories.",
        done.files + done.directories,
        done.bytes,
        plan.scanned_directories,
    )
