"""Commits of a single commitInfo, by put-if-absent, for VACUUM START and END.

Put-if-absent makes commits safe beside other writers: of two that write one version, only one
succeeds (PROTOCOL, "Delta Log Entries").
"""

from __future__ import annotations

import json
import uuid
from importlib.metadata import version as package_version
from typing import TYPE_CHECKING, Any

from maint_assets.delta.actions import parse_action
from maint_assets.delta.features import Operation, refuse_unsupported
from maint_assets.delta.names import commit_name
from maint_assets.errors import CommitError, StalePlanError
from maint_assets.snapshot.head import table_head
from maint_assets.snapshot.log import LOG
from maint_assets.storage import read, write
from maint_assets.storage.write import put_if_absent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from maint_assets.snapshot.head import TableHead
    from maint_assets.storage.location import Location

ATTEMPTS = 100
ENGINE = f"maint-assets/{package_version('maint-assets')}"


def refuse_clock_skew(location: Location, *, now_ms: int) -> None:
    """Raise GuardError if our clock differs from the storage's.

    Commits and tombstones would get wrong timestamps, and the next VACUUM would treat files that
    were removed just now as expired.
    """
    write.refuse_clock_skew(location, LOG, now_ms=now_ms)


def refuse_ignored_conditions(location: Location) -> None:
    """Raise GuardError if a commit to this store could overwrite another one; not on disks."""
    if not location.is_local:
        write.refuse_ignored_conditions(location, LOG)


def commit_record(
    head: TableHead,
    operation: str,
    *,
    parameters: Mapping[str, Any],
    metrics: Mapping[str, str],
    now_ms: Callable[[], int],
) -> int:
    """Commit a commitInfo and no other action; return the version.

    After a lost race it checks the newest protocol and table id, and tries the next version: a
    commit without file actions conflicts with nothing else. Raises UnsupportedFeatureError,
    StalePlanError or CommitError.
    """
    latest = head
    for _ in range(ATTEMPTS):
        info = _commit_info(latest, operation, parameters, metrics=metrics, now_ms=now_ms())
        body = json.dumps({"commitInfo": info}, separators=(",", ":")).encode() + b"\n"
        version = latest.version + 1
        try:
            if put_if_absent(latest.location, f"{LOG}/{commit_name(version)}", body):
                return version
        except OSError as error:
            raise CommitError(
                head.table, f"{commit_name(version)} cannot be written ({error})", "allow writing"
            ) from error
        latest = _latest(head)
    raise CommitError(
        head.table, f"{ATTEMPTS} attempts to commit {operation} lost the race", "run again later"
    )


def _latest(head: TableHead) -> TableHead:
    latest = table_head(head.location)
    if latest.metadata.id != head.metadata.id:
        raise StalePlanError(head.table, "the table was replaced by another one", "plan again")
    refuse_unsupported(latest.protocol, Operation.VACUUM, table=head.table)
    return latest


def _commit_info(
    head: TableHead,
    operation: str,
    parameters: Mapping[str, Any],
    *,
    metrics: Mapping[str, str],
    now_ms: int,
) -> dict[str, Any]:
    info: dict[str, Any] = {}
    if head.properties.in_commit_timestamps:
        # First field of the first action, and larger than that of the version before: PROTOCOL,
        # "In-Commit Timestamps".
        info["inCommitTimestamp"] = max(now_ms, _newest_ict_ms(head) + 1)
    return info | {
        "timestamp": now_ms,
        "operation": operation,
        "operationParameters": dict(parameters),
        "readVersion": head.version,
        "isolationLevel": "SnapshotIsolation",
        "isBlindAppend": True,
        "operationMetrics": dict(metrics),
        "engineInfo": ENGINE,
        "txnId": str(uuid.uuid4()),
    }


def _newest_ict_ms(head: TableHead) -> int:
    name = commit_name(head.version)
    first = next(read.lines(head.location, f"{LOG}/{name}"), b"{}")
    info = parse_action(first, table=head.table, file=name).commitInfo
    return info.in_commit_timestamp or 0 if info is not None else 0
