"""Checkpoint protection: whether a cleanup may delete versions that the table protects.

It follows Delta's RFC for the feature ``checkpointProtection``: a client may clean up below
``delta.requireCheckpointProtectionBeforeVersion`` if all protected versions are deleted together,
or if it supports the protocols of all versions that it deletes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from maint_assets.delta.actions import may_hold, parse_action
from maint_assets.delta.features import Operation, unsupported
from maint_assets.errors import MaintError, NotADeltaTableError
from maint_assets.log_cleanup.log_directory import log_entry
from maint_assets.snapshot.control_actions import log_lines
from maint_assets.snapshot.head import table_head, version_checksum

if TYPE_CHECKING:
    from collections.abc import Iterator

    from maint_assets.delta.actions import Protocol
    from maint_assets.log_cleanup.log_directory import LogDirectory
    from maint_assets.storage.location import Location


def is_protected(log: LogDirectory, *, anchor: int, before: int) -> bool:
    """Whether the versions below an anchor must stay, for protection below version ``before``.

    They must if some protected versions would be left and a protocol among the deleted versions is
    unsupported or unknown.
    """
    versions = log.commit_versions
    deleted = versions[versions < anchor]
    if not deleted.size or anchor >= before:
        return False
    if not log.has_commits(int(deleted[0]), anchor):
        return True
    try:
        first = _protocol_at(log.location, int(deleted[0]))
        if first is None:
            return True
        protocols = [first, *_protocols(log, last=anchor)]
    except MaintError:
        return True
    return any(unsupported(each, Operation.READ) for each in protocols) or bool(
        unsupported(protocols[-1], Operation.CLEAN_LOG)
    )


def protocol_of_checksum(location: Location, version: int) -> Protocol | None:
    """The protocol in the version checksum; None without a checksum."""
    found = version_checksum(location, version)
    return found and found.protocol


def _protocol_at(location: Location, version: int) -> Protocol | None:
    """The protocol of a version, None if the version cannot be reconstructed."""
    found = protocol_of_checksum(location, version)
    if found is not None:
        return found
    try:
        return table_head(location, version).protocol
    except NotADeltaTableError:
        return None


def _protocols(log: LogDirectory, *, last: int) -> Iterator[Protocol]:
    """The protocol actions of the commits up to a version, oldest first."""
    for row in log.commits.to_pylist():
        if row["version"] > last or (entry := log_entry(row)) is None:
            continue
        for line in log_lines(log.location, entry):
            if not may_hold(line, b"protocol"):
                continue
            found = parse_action(line, table=log.location.uri, file=entry.file.name).protocol
            if found is not None:
                yield found
