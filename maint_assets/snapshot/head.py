"""The head of a version: protocol, metadata, properties, timestamp and log segment.

Read on the driver; file actions are left to ``replay``.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from maint_assets.delta.actions import Metadata, Protocol, Sidecar, may_hold, parse_action
from maint_assets.delta.checksum import VersionChecksum
from maint_assets.delta.hint import parse_hint
from maint_assets.delta.names import checksum_name
from maint_assets.delta.paths import TableRoot, is_outside, relative
from maint_assets.delta.properties import TableProperties
from maint_assets.delta.schema import refuse_odd_partitions
from maint_assets.errors import (
    CorruptLogError,
    LogGapError,
    MaintError,
    NotADeltaTableError,
    one_line,
)
from maint_assets.snapshot.control_actions import (
    RESTORE,
    first_line,
    log_lines,
    non_file_rows,
    to_action,
)
from maint_assets.snapshot.log import (
    HINT,
    LOG,
    SIDECARS,
    LogEntry,
    LogSegment,
    has_lost_commits,
    log_files,
    segments,
    up_to,
)
from maint_assets.storage import read

if TYPE_CHECKING:
    from collections.abc import Iterable

    from maint_assets.storage.location import Location

Value = TypeVar("Value")

logger = logging.getLogger(__name__)

# A listing is not atomic: it may show a new checkpoint and miss the commit before it.
_LISTINGS_AGAIN = 2
_HEAD_COLUMNS = ("protocol", "metaData", "sidecar", "checkpointMetadata")


@dataclass(frozen=True, slots=True)
class SidecarFile:
    """A sidecar of a V2 checkpoint: path below the table root, size in bytes."""

    path: str
    size: int


@dataclass(frozen=True, slots=True)
class TableHead:
    """One version of a table, without file actions."""

    location: Location
    root: TableRoot
    segment: LogSegment
    sidecars: tuple[SidecarFile, ...]
    protocol: Protocol
    metadata: Metadata
    properties: TableProperties
    timestamp_ms: int
    checksum: VersionChecksum | None

    @property
    def table(self) -> str:
        """The table's URI, as used in messages."""
        return self.location.uri

    @property
    def version(self) -> int:
        """The version number."""
        return self.segment.version


def table_head(location: Location, version: int | None = None) -> TableHead:
    """Load the newest version of a table, or a given one whose commit still exists.

    If a checkpoint is unreadable, an older one or the commits from 0 are used where possible.
    Raises NotADeltaTableError, LogGapError or CorruptLogError.
    """
    table = location.uri
    hinted = _hinted_version(location) if version is None else -1
    try:
        entries = _listed(location)
    except PermissionError as error:
        raise NotADeltaTableError(
            table,
            f"_delta_log cannot be read ({one_line(error)})",
            "allow reading it",
        ) from error
    if version is not None:
        entries = up_to(entries, version, table=table)
    first_error: MaintError | None = None
    for segment in segments(entries, table=table):
        _refuse_lost_commits(segment, hinted, table=table)
        try:
            return _head(location, segment)
        except (CorruptLogError, LogGapError) as error:
            logger.warning("%s", error)
            first_error = first_error or error
            if segment.checkpoint is None:
                break
    if first_error is None:
        raise NotADeltaTableError(
            table, "is not a Delta table: its _delta_log is empty", "give the root of a Delta table"
        )
    raise first_error


def _hinted_version(location: Location) -> int:
    """The version in ``_last_checkpoint``, -1 without one.

    Read before the log is listed: a checkpoint written in between must not look like lost commits.
    """
    try:
        hint = parse_hint(read.content(location, HINT))
    except OSError:
        return -1
    return -1 if hint is None else hint.version


def _listed(location: Location) -> list[LogEntry]:
    """List the log; list again if a writer may have added files meanwhile."""
    entries = log_files(location)
    for _ in range(_LISTINGS_AGAIN):
        if not has_lost_commits(entries):
            break
        entries = log_files(location)
    return entries


def _refuse_lost_commits(segment: LogSegment, hinted: int, *, table: str) -> None:
    """Raise LogGapError if the hint names a newer version: the commits up to it are lost."""
    if hinted > segment.version:
        raise LogGapError(
            table,
            f"_last_checkpoint names version {hinted}, but the log ends with version "
            f"{segment.version}",
            "restore the missing files of _delta_log, or remove _last_checkpoint if it is stale",
        )


def sidecar_file(row: Any, location: Location, entry: LogEntry) -> SidecarFile:
    """Resolve a sidecar that a checkpoint names, by file name or URI.

    Raises LogGapError if it is missing or has another size, CorruptLogError if it lies elsewhere.
    """
    named = to_action(row, Sidecar, table=location.uri, file=entry.file.name)
    below = relative(named.path, TableRoot.of(f"{location.uri}/{SIDECARS}"))
    if is_outside(below):
        what = f"sidecar {named.path} of {entry.file.name} is not in {SIDECARS}"
        raise CorruptLogError(location.uri, what, RESTORE)
    path = f"{SIDECARS}/{below}"
    try:
        found = read.size_and_mtime(location, path)
    except (OSError, ValueError) as error:
        what = f"sidecar {named.path} of {entry.file.name} cannot be read ({one_line(error)})"
        raise CorruptLogError(location.uri, what, RESTORE) from error
    if found is None or found[0] != named.size_in_bytes:
        what = "is missing" if found is None else f"has {found[0]} bytes, not {named.size_in_bytes}"
        raise LogGapError(
            location.uri, f"sidecar {named.path} of {entry.file.name} {what}", RESTORE
        )
    return SidecarFile(path, found[0])


def version_checksum(location: Location, version: int) -> VersionChecksum | None:
    """The version checksum; None if there is no readable one."""
    try:
        return VersionChecksum.parse(read.content(location, f"{LOG}/{checksum_name(version)}"))
    except OSError:
        return None


def in_commit_ms(location: Location, entry: LogEntry) -> int:
    """The in-commit timestamp of a commit, in ms. Raises CorruptLogError if it has none."""
    first = next(log_lines(location, entry), b"")
    info = (
        parse_action(first, table=location.uri, file=entry.file.name).commitInfo if first else None
    )
    if info is None or info.in_commit_timestamp is None:
        raise CorruptLogError(
            location.uri,
            f"{entry.file.name} lacks the inCommitTimestamp that the table's properties require",
            RESTORE,
        )
    return info.in_commit_timestamp


def _head(location: Location, segment: LogSegment) -> TableHead:
    table = location.uri
    checkpoint, sidecars = _checkpoint_head(location, segment)
    tail = _tail_head(location, segment.commits)
    protocol = tail.protocol or checkpoint.protocol
    metadata = tail.metadata or checkpoint.metadata
    if protocol is None or metadata is None:
        what = "protocol" if protocol is None else "metaData"
        raise CorruptLogError(
            table, f"the log up to version {segment.version} holds no {what} action", RESTORE
        )
    file = tail.file or checkpoint.file
    refuse_odd_partitions(metadata, table=table, file=file)
    properties = TableProperties.of(metadata.configuration, table=table)
    return TableHead(
        location=location,
        root=TableRoot.of(location.uri),
        segment=segment,
        sidecars=sidecars,
        protocol=protocol,
        metadata=metadata,
        properties=properties,
        timestamp_ms=_timestamp_ms(location, segment, properties),
        checksum=_checksum(location, segment),
    )


def newest_head(location: Location) -> TableHead:
    """Load the newest version, listing the log only from the checkpoint that the hint names.

    Falls back to ``table_head`` if the hint leads to no complete segment; raises the same errors.
    """
    try:
        hint = parse_hint(read.content(location, HINT))
        if hint is not None:
            entries = log_files(location, since=hint.version)
            segment = next(segments(entries, table=location.uri))
            if segment.checkpoint is not None:
                return _head(location, segment)
    except (OSError, MaintError) as error:
        logger.info("%s: _last_checkpoint cannot be used (%s)", location.uri, error)
    return table_head(location)


class _Head(msgspec.Struct):
    """The newest protocol and metadata; ``file`` is the name of the file with the metadata."""

    protocol: Protocol | None = None
    metadata: Metadata | None = None
    file: str = ""


def _tail_head(location: Location, commits: Iterable[LogEntry]) -> _Head:
    """The newest protocol and metadata in the commits after the checkpoint.

    Reads back from the newest commit until both are found; parses only lines that may hold one.
    """
    head = _Head()
    for entry in read.in_turn(location, list(commits)[::-1]):
        found = _Head()
        for line in log_lines(location, entry):
            if may_hold(line, b"protocol", b"metaData"):
                action = parse_action(line, table=location.uri, file=entry.file.name)
                found.protocol = action.protocol or found.protocol
                found.metadata = action.metaData or found.metadata
        head.protocol = head.protocol or found.protocol
        if head.metadata is None and found.metadata is not None:
            head.metadata, head.file = found.metadata, entry.file.name
        if head.protocol and head.metadata:
            break
    return head


def _checkpoint_head(
    location: Location, segment: LogSegment
) -> tuple[_Head, tuple[SidecarFile, ...]]:
    head = _Head()
    sidecars: list[SidecarFile] = []
    for entry in () if segment.checkpoint is None else segment.checkpoint.entries:
        for row in non_file_rows(location, entry, _HEAD_COLUMNS):
            if row.get("protocol"):
                head.protocol = to_action(
                    row["protocol"], Protocol, table=location.uri, file=entry.file.name
                )
            if row.get("metaData"):
                head.metadata = to_action(
                    row["metaData"], Metadata, table=location.uri, file=entry.file.name
                )
                head.file = entry.file.name
            if row.get("sidecar"):
                sidecars.append(sidecar_file(row["sidecar"], location, entry))
    return head, tuple(sidecars)


def _timestamp_ms(location: Location, segment: LogSegment, properties: TableProperties) -> int:
    """Commit time of the version in ms: the in-commit timestamp if enabled, else the file time."""
    by_file = segment.commit_ms[segment.version]
    if not properties.in_commit_timestamps:
        return by_file
    # Without commits after the checkpoint, the version is that of the newest commit up to it.
    return in_commit_ms(location, (segment.commits or segment.history)[-1])


def _checksum(location: Location, segment: LogSegment) -> VersionChecksum | None:
    if segment.checksum is None:
        return None
    try:
        return VersionChecksum.parse(read.content(location, segment.checksum.path))
    except FileNotFoundError:  # a log cleanup may delete it after the listing
        return None
    except OSError as error:
        name = segment.checksum.path.rpartition("/")[2]
        raise CorruptLogError(
            location.uri, f"{name} cannot be read ({first_line(error)})", RESTORE
        ) from error
