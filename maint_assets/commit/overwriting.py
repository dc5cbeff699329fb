"""Writers that overwrite commits on S3, and commits of ours that they have overwritten.

delta-spark puts a commit to S3 without a condition, after a look whether the version exists. A
commit that lands in between is lost although it was acknowledged, and rows that were deleted since
can come back with the files that it removed. So a rewrite asks who else writes the table.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from maint_assets.delta.actions import may_hold, parse_action
from maint_assets.delta.names import LogFileKind, commit_name
from maint_assets.errors import CorruptLogError, GuardError, OverwrittenError
from maint_assets.snapshot.commits import commit_lines, commit_path
from maint_assets.snapshot.log import LOG, log_files
from maint_assets.storage import read, write

if TYPE_CHECKING:
    from collections.abc import Mapping

    from maint_assets.config import CommitSetting
    from maint_assets.delta.actions import CommitInfo
    from maint_assets.snapshot.head import TableHead
    from maint_assets.storage.location import Location

RECENT_VERSIONS = 100
"""Versions whose writers are looked at."""

_CONDITIONAL = re.compile(r"maint-assets/|delta-kernel-rs")
"""Beginnings of ``engineInfo`` of writers that put commits on condition that they do not exist."""

_DELTA_RS, _CONDITIONAL_SINCE = re.compile(r"delta-rs:py-(\d+)\.(\d+)\.(\d+)"), (1, 6, 6)
"""deltalake, and the first release known to have no locks by DynamoDB (1.1.4 still has them).

With these locks it copies a commit over whatever is there.
"""

_DYNAMO_DIRECTORY = f"{LOG}/.tmp"
"""Where delta-spark's S3DynamoDBLogStore keeps copies of commits; nothing removes them."""

_DYNAMO_COMMIT = "_commit_"
"""Beginning of the names in the log of commits that older delta-rs copies by a lock of DynamoDB."""

_WAYS_OUT = (
    "set storage.commit to exclusive if nobody else writes the table while this runs, or to "
    "conditional if all writers put commits conditionally by now"
)


def refuse_overwriting_writers(head: TableHead, setting: CommitSetting | None) -> None:
    """Raise GuardError if another writer, or the store, may overwrite a commit; not on disks.

    Without a ``setting`` all commits of the last RECENT_VERSIONS must be of writers that are known
    to put conditionally. Tries the store with two objects of one name.
    """
    location = head.location
    if location.is_local:
        return
    if (trace := _trace_of_dynamodb(location)) is not None:
        raise GuardError(
            location.uri,
            f"{trace} shows that a writer coordinates its commits by DynamoDB, which "
            "takes no notice of ours and overwrites them or loses its own",
            f"rewrite it with that writer, or remove {trace} once nobody uses DynamoDB",
        )
    if setting is None and (found := _overwriting_commit(head)) is not None:
        raise GuardError(location.uri, found, _WAYS_OUT)
    write.refuse_ignored_conditions(location, LOG)


def refuse_overwritten(location: Location, commits: Mapping[int, str]) -> None:
    """Raise OverwrittenError unless the log still holds our commits, by version and ``txnId``.

    A commit that log cleanup has removed since counts as ours.
    """
    for version, txn_id in commits.items():
        try:
            info = _commit_info(location, version)
        except FileNotFoundError:
            continue
        if info is None or info.txn_id != txn_id:
            writer = (info and info.engine_info) or "unknown"
            raise OverwrittenError(
                location.uri,
                f"version {version}, which this run committed, was overwritten by another writer "
                f"(engineInfo {writer}): its rewrite is undone",
                "compare the rows with those of the version before, then stop one of the writers "
                "while the other one works",
            )


def _overwriting_commit(head: TableHead) -> str | None:
    """Which recent commit is of a writer that may overwrite others; None if there is none."""
    recent = log_files(head.location, since=max(head.version - RECENT_VERSIONS + 1, 0))
    commits = [each for each in recent if each.file.kind is LogFileKind.COMMIT]
    for each in read.in_turn(head.location, commits):
        version, writer = each.file.version, _writer(head.location, each.file.version)
        if writer is not None and not _is_conditional(writer):
            by = f"was written by {writer}" if writer else "does not name its writer"
            return f"version {version} {by}, which may overwrite commits on this store"
    return None


def _trace_of_dynamodb(location: Location) -> str | None:
    if read.has_directory(location, _DYNAMO_DIRECTORY):
        return _DYNAMO_DIRECTORY
    names = (entry.name for entry in read.files(location, LOG, first=_DYNAMO_COMMIT))
    found = (name for name in names if name.startswith(_DYNAMO_COMMIT))
    return next((f"{LOG}/{name}" for name in found), None)


def _is_conditional(writer: str) -> bool:
    release = _DELTA_RS.match(writer)
    if release is not None:
        return tuple(map(int, release.groups())) >= _CONDITIONAL_SINCE
    return _CONDITIONAL.match(writer) is not None


def _writer(location: Location, version: int) -> str | None:
    """The ``engineInfo`` of a commit, empty if it has none; None if the commit is gone."""
    try:
        info = _commit_info(location, version)
    except FileNotFoundError:
        return None
    return (info and info.engine_info) or ""


def _commit_info(location: Location, version: int) -> CommitInfo | None:
    """The commitInfo of a version. Raises FileNotFoundError, CorruptLogError."""
    name = commit_name(version)
    try:
        every = commit_lines(location, commit_path(version))
        lines = (line for line in every if may_hold(line, b"commitInfo"))
        infos = (parse_action(line, table=location.uri, file=name).commitInfo for line in lines)
        return next((info for info in infos if info is not None), None)
    except FileNotFoundError:
        raise
    except OSError as error:
        found = f"{name} cannot be read ({error})"
        raise CorruptLogError(location.uri, found, "allow reading it") from error
