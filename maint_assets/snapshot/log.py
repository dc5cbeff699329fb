"""Files of ``_delta_log``: listing, complete checkpoints, log segments, commit times."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from maint_assets.delta.names import LogFile, LogFileKind, commit_name
from maint_assets.delta.timestamps import monotonic
from maint_assets.errors import CorruptLogError, LogGapError, NotADeltaTableError
from maint_assets.storage import read

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from maint_assets.storage.location import Location

LOG = "_delta_log"
HINT = f"{LOG}/_last_checkpoint"
SIDECARS = f"{LOG}/_sidecars"
STAGED = f"{LOG}/_staged_commits"

_CHECKPOINTS = (LogFileKind.CHECKPOINT, LogFileKind.CHECKPOINT_PART, LogFileKind.CHECKPOINT_V2)


class LogEntry(msgspec.Struct, frozen=True):
    """A log file whose name the protocol defines. Size in bytes, mtime in ms."""

    file: LogFile
    size: int
    modified_ms: int

    @property
    def path(self) -> str:
        """Path below the table root."""
        return f"{LOG}/{self.file.name}"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint: one file, or all parts in order."""

    version: int
    entries: tuple[LogEntry, ...]


@dataclass(frozen=True, slots=True)
class LogSegment:
    """The files that make up ``version``: a checkpoint and the commits after it.

    ``history``: readable commits up to the checkpoint. The state does not need them, but they show
    which commit removed a file. ``commit_ms``: commit times in ms by version, from file mtimes,
    made monotonic as in delta-spark.
    """

    version: int
    checkpoint: Checkpoint | None
    commits: tuple[LogEntry, ...]
    history: tuple[LogEntry, ...]
    checksum: LogEntry | None
    commit_ms: dict[int, int]

    @property
    def checkpoint_ms(self) -> int | None:
        """The checkpoint's mtime in ms, an upper bound for the age of its tombstones."""
        if self.checkpoint is None:
            return None
        return max(entry.modified_ms for entry in self.checkpoint.entries)

    @property
    def bytes(self) -> int:
        """Total bytes that a replay reads, without sidecars."""
        parts = () if self.checkpoint is None else self.checkpoint.entries
        return sum(entry.size for entry in (*parts, *self.commits, *self.history))


def log_files(location: Location, *, since: int | None = None) -> list[LogEntry]:
    """List the log files whose names the protocol defines, by name; empty checkpoints are left out.

    With ``since``, only names from that version on, as Delta lists a log. Raises CorruptLogError
    for a commit that is a directory, a device or a dangling link, and for a name that is not UTF-8.
    """
    first = None if since is None else f"{since:020d}."
    found = [(LogFile.parse(entry.name), entry) for entry in read.files(location, LOG, first=first)]
    _refuse_foreign_names((file for file, _ in found if file is not None), table=location.uri)
    return [
        LogEntry(file, entry.size, entry.modified_ms)
        for file, entry in found
        if file is not None and _is_file(file, entry.size, table=location.uri)
    ]


def _refuse_foreign_names(files: Iterable[LogFile], *, table: str) -> None:
    """Raise CorruptLogError for a file name that is not UTF-8, which no message could pass on."""
    for file in files:
        if not read.is_utf8(file.name):
            found = f"{read.shown(file.name)} in _delta_log has a name that is not UTF-8"
            raise CorruptLogError(table, found, "rename or remove it")


def _is_file(file: LogFile, size: int, *, table: str) -> bool:
    if file.kind is LogFileKind.COMMIT and size < 0:
        raise CorruptLogError(
            table,
            f"{file.name} is a directory, a device or a dangling link, not a commit file",
            "restore it from a backup or a replica",
        )
    # Spark reads an empty checkpoint as one without rows; delta-spark drops them, too.
    return size > 0 or (size == 0 and file.kind not in _CHECKPOINTS)


def has_lost_commits(entries: Iterable[LogEntry]) -> bool:
    """Whether some file implies a version newer than the newest commit."""
    newest = max(map(_newest_version, entries), default=-1)
    commits = (e.file.version for e in entries if e.file.kind is LogFileKind.COMMIT)
    return newest > max(commits, default=-1)


def segments(entries: Iterable[LogEntry], *, table: str) -> Iterator[LogSegment]:
    """Candidate segments for the newest version, by checkpoint, newest first, last without one.

    If a checkpoint turns out to be unreadable, take the next. Raises NotADeltaTableError for an
    empty log, LogGapError if no segment is complete.
    """
    known = list(entries)
    commits = _commits(known, table=table)
    if not known:
        raise NotADeltaTableError(
            table, "is not a Delta table: it has no _delta_log", "give the root of a Delta table"
        )
    first_error: LogGapError | None = None
    whole = False
    for checkpoint in (*complete_checkpoints(known), None):
        try:
            segment = _segment(known, commits, checkpoint=checkpoint, table=table)
            _refuse_older(segment, known, table=table)
        except LogGapError as error:
            first_error = first_error or error
        else:
            whole = True
            yield segment
    if first_error is not None and not whole:
        raise _missing_part(known, table=table) or first_error


def up_to(entries: Iterable[LogEntry], version: int, *, table: str) -> list[LogEntry]:
    """The files up to a version. Raises LogGapError if it has no commit file."""
    known = list(entries)
    commits = _commits(known, table=table)
    if known and version not in commits:
        versions = f"versions {min(commits)} to {max(commits)}" if commits else "no version"
        raise LogGapError(
            table,
            f"version {version} is not in the log, which has {versions}",
            "give another version",
        )
    return [entry for entry in known if _newest_version(entry) <= version]


def contiguous_after(entries: Iterable[LogEntry], version: int, *, table: str) -> list[LogEntry]:
    """The commits after ``version``, ascending. Raises LogGapError if one is missing."""
    commits = _commits(entries, table=table)
    newer = [commits[v] for v in sorted(commits) if v > version]
    _refuse_gaps([entry.file.version for entry in newer], after=version, table=table)
    return newer


def complete_checkpoints(entries: Iterable[LogEntry]) -> list[Checkpoint]:
    """All complete checkpoints, newest first; in a version V2 before multi-part before classic.

    The order of delta-spark's ``CheckpointInstance``: readers take the first.
    """
    single = [
        ((e.file.version, e.file.format_rank, 1, e.file.name), Checkpoint(e.file.version, (e,)))
        for e in entries
        if e.file.kind in {LogFileKind.CHECKPOINT, LogFileKind.CHECKPOINT_V2}
    ]
    parts: dict[tuple[int, int], list[LogEntry]] = defaultdict(list)
    for entry in entries:
        if entry.file.kind is LogFileKind.CHECKPOINT_PART:
            parts[entry.file.version, entry.file.parts].append(entry)
    multi = [
        ((version, files[0].file.format_rank, count, files[0].file.name), _multi(version, files))
        for (version, count), files in parts.items()
        if sorted(e.file.part for e in files) == list(range(1, count + 1))
    ]
    return [found for _, found in sorted((*single, *multi), key=lambda c: c[0], reverse=True)]


def _commits(entries: Iterable[LogEntry], *, table: str) -> dict[int, LogEntry]:
    commits: dict[int, LogEntry] = {}
    for entry in entries:
        if entry.file.kind is not LogFileKind.COMMIT:
            continue
        if entry.file.name != commit_name(entry.file.version):
            raise LogGapError(
                table,
                f"{entry.file.name} does not have the 20 digits of a commit's name: some readers "
                f"take it for version {entry.file.version}, others ignore it",
                "rename it to 20 digits, or remove it",
            )
        if entry.file.version in commits:
            raise LogGapError(
                table,
                f"version {entry.file.version} has two commit files, {entry.file.name} among them",
                "remove the one that is not the commit",
            )
        commits[entry.file.version] = entry
    return commits


def _missing_part(entries: Iterable[LogEntry], *, table: str) -> LogGapError | None:
    """An error that names the missing part of the newest checkpoint, if a part is missing."""
    parts = [e.file for e in entries if e.file.kind is LogFileKind.CHECKPOINT_PART]
    if not parts:
        return None
    newest = max(parts, key=lambda file: (file.version, file.parts))
    there = {f.part for f in parts if (f.version, f.parts) == (newest.version, newest.parts)}
    missing = sorted(set(range(1, newest.parts + 1)) - there)
    if not missing:
        return None
    return LogGapError(
        table,
        f"checkpoint {newest.version} lacks part {missing[0]} of {newest.parts}, "
        "and the commits before it are gone",
        "restore that file of _delta_log",
    )


def _multi(version: int, files: list[LogEntry]) -> Checkpoint:
    return Checkpoint(version, tuple(sorted(files, key=lambda entry: entry.file.part)))


def _segment(
    entries: list[LogEntry],
    commits: dict[int, LogEntry],
    *,
    checkpoint: Checkpoint | None,
    table: str,
) -> LogSegment:
    base = -1 if checkpoint is None else checkpoint.version
    # Commits after the checkpoint may be lost, and what they added would look like orphans.
    if not any(version >= base for version in commits):
        raise LogGapError(
            table,
            f"has no commit file at or after checkpoint {base}"
            if checkpoint
            else "has no commit files and no complete checkpoint",
            "restore the missing files of _delta_log",
        )
    tail = sorted(version for version in commits if version > base)
    _refuse_gaps(tail, after=base, table=table)
    version = tail[-1] if tail else base
    times = [(v, commits[v].modified_ms) for v in sorted(commits)]
    checksum = [
        e for e in entries if e.file.kind is LogFileKind.CHECKSUM and e.file.version == version
    ]
    return LogSegment(
        version=version,
        checkpoint=checkpoint,
        commits=tuple(commits[v] for v in tail),
        history=tuple(commits[v] for v in sorted(commits) if v <= base),
        checksum=checksum[0] if checksum else None,
        commit_ms=monotonic(times),
    )


def _refuse_older(segment: LogSegment, entries: Iterable[LogEntry], *, table: str) -> None:
    """Raise LogGapError if other files imply a newer version than the segment: commits are lost.

    The files that those commits added would look like orphans.
    """
    newest = max(entries, key=_newest_version, default=None)
    if newest is not None and (version := _newest_version(newest)) > segment.version:
        what = "checkpoint" if newest.file.kind in _CHECKPOINTS else newest.file.kind.value
        raise LogGapError(
            table,
            f"has a {what} of version {version}, but no usable log beyond version "
            f"{segment.version}",
            f"restore the missing files of _delta_log, or remove {newest.file.name} if it was left "
            "over",
        )


def _newest_version(entry: LogEntry) -> int:
    return max(entry.file.version, entry.file.end_version)


def _refuse_gaps(versions: list[int], *, after: int, table: str) -> None:
    missing = next((want for want, v in enumerate(versions, after + 1) if v != want), None)
    if missing is not None:
        raise LogGapError(
            table,
            f"commit {missing:020d}.json is missing from _delta_log",
            "restore that file, or a complete checkpoint at or after that version",
        )
