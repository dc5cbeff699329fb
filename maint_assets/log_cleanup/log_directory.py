"""The listing of ``_delta_log``, its staged commits and its sidecars: an Arrow row per file."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from maint_assets.delta.names import (
    LogFile,
    LogFileKind,
    checked_name,
    is_temporary,
    staged_version,
)
from maint_assets.snapshot.log import (
    LOG,
    SIDECARS,
    STAGED,
    Checkpoint,
    LogEntry,
    complete_checkpoints,
)
from maint_assets.storage import read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from maint_assets.storage.location import Location
    from maint_assets.storage.read import Entries

    Versions = npt.NDArray[np.int64]

LOG_FILES_ARROW = pa.schema([
    ("path", pa.string()),
    ("kind", pa.string()),
    ("version", pa.int64()),
    ("end_version", pa.int64()),
    ("size", pa.int64()),
    ("modified_ms", pa.int64()),
    ("checked", pa.string()),
])
"""Paths are relative to the table root; ``checked`` is the file that a Hadoop checksum
(``.<name>.crc``) belongs to."""

CHECKPOINT_KINDS = ("checkpoint", "checkpoint_part", "v2_checkpoint")

# 18 digits fit into 64 bits; longer names are left to LogFile.parse.
_PLAIN = r"^0*(?P<version>[0-9]{1,18})\.(?P<kind>json|crc)$"
_PLAIN_KINDS = {"json": "commit", "crc": "checksum"}


@dataclass(frozen=True)
class LogDirectory:
    """The files of a log with names that Delta, delta-rs or Hadoop give; others are ignored.

    ``files`` has LOG_FILES_ARROW, in no order. ``unreadable_checkpoints`` names those that are
    links or directories: they are not read here, but other readers may use them. ``links`` are
    symbolic links with a name of the protocol: they are never touched.
    """

    location: Location
    files: pa.Table
    unreadable_checkpoints: tuple[str, ...] = ()
    links: tuple[LogFile, ...] = ()

    def without(self, paths: set[str]) -> LogDirectory:
        """The log as it will be without the files at these paths."""
        kept = self.files.filter(pc.invert(is_in(self.files, paths)))
        return LogDirectory(self.location, kept, self.unreadable_checkpoints, self.links)

    @property
    def file_count(self) -> int:
        """The number of files, links included."""
        return self.files.num_rows + len(self.links)

    @property
    def bytes(self) -> int:
        """The size of the files, without the targets of links."""
        return pc.sum(self.files["size"], min_count=0).as_py()

    @property
    def linked_commits(self) -> list[int]:
        """The versions of the commits that are links, ascending."""
        return sorted(f.version for f in self.links if f.kind is LogFileKind.COMMIT)

    def of(self, *kinds: str) -> pa.Table:
        """The files of the given kinds."""
        return self.files.filter(pc.is_in(self.files["kind"], pa.array(kinds)))

    @cached_property
    def commits(self) -> pa.Table:
        """The published commits, sorted by version."""
        return self.of("commit").sort_by("version")

    @cached_property
    def commit_versions(self) -> Versions:
        """The versions of the published commits, ascending."""
        return self.commits["version"].to_numpy()

    @cached_property
    def checkpoints(self) -> list[Checkpoint]:
        """The complete checkpoints, newest and preferred format first; empty files do not count."""
        return complete_checkpoints(self.checkpoint_files())

    def checkpoint_files(self, *kinds: str) -> list[LogEntry]:
        """The checkpoint files that are not empty, of the given kinds (default: all)."""
        rows = self.of(*(kinds or CHECKPOINT_KINDS)).sort_by("path").to_pylist()
        return [entry for row in rows if row["size"] and (entry := log_entry(row)) is not None]

    def has_commits(self, first: int, last: int) -> bool:
        """Whether all commits of the versions ``first`` to ``last`` exist."""
        versions = self.commit_versions
        found = np.unique(versions[(versions >= first) & (versions <= last)])
        return found.size == last - first + 1

    def commits_between(self, first: int, last: int) -> list[LogEntry]:
        """The commits of the versions ``first`` to ``last``, oldest first."""
        versions = self.commit_versions
        rows = self.commits.filter(pa.array((versions >= first) & (versions <= last)))
        return [entry for row in rows.to_pylist() if (entry := log_entry(row)) is not None]


def log_directory(location: Location) -> LogDirectory:
    """List the log of a table.

    ``_sidecars`` and ``_staged_commits`` are not listed if they are symbolic links. Raises
    StorageError.
    """
    directories: tuple[tuple[str, Callable[[str, str], _Named | None]], ...] = (
        (LOG, _in_log),
        (STAGED, _staged),
        (SIDECARS, _sidecar),
    )
    found = [LOG_FILES_ARROW.empty_table()]
    odd: list[str] = []
    links: list[LogFile] = []
    for directory, named in directories:
        # What lies behind a link may be the log of another table.
        if directory != LOG and read.is_link(location, directory):
            continue
        for entries in read.directory(location, directory):
            found += _tables(directory, entries, named)
            if directory == LOG:
                odd += _odd_checkpoints(entries)
                links += _links(entries)
    return LogDirectory(location, pa.concat_tables(found), tuple(odd), tuple(links))


def is_in(files: pa.Table, paths: set[str], column: str = "path") -> pa.ChunkedArray:
    """Mask of the files whose ``column`` is one of the paths."""
    wanted = pa.array(sorted(paths), pa.string())
    return pc.fill_null(pc.is_in(files[column], wanted), fill_value=False)


def log_entry(row: dict[str, Any]) -> LogEntry | None:
    """The LogEntry of a row; None for a name that the protocol does not define."""
    file = LogFile.parse(row["path"].rpartition("/")[2])
    return None if file is None else LogEntry(file, row["size"], row["modified_ms"])


@dataclass(frozen=True, slots=True)
class _Named:
    """The values that follow from the name of a file."""

    kind: str
    version: int | None = None
    end_version: int | None = None
    checked: str | None = None


def _tables(
    directory: str, entries: Entries, named: Callable[[str, str], _Named | None]
) -> Iterator[pa.Table]:
    """Rows of the entries of a directory.

    Commits and checksums with plain names are most of a log, and are parsed by Arrow.
    """
    files = [
        (name, size, modified_ms)
        for name, mode, size, modified_ms in zip(*entries, strict=True)
        if stat.S_ISREG(mode) and read.is_utf8(name)
    ]
    names, sizes, times = list(zip(*files, strict=True)) or [(), (), ()]
    every = pa.table({
        "name": pa.array(names, pa.string()),
        "size": pa.array(sizes, pa.int64()),
        "modified_ms": pa.array(times, pa.int64()),
    })
    if directory == LOG:
        parsed = pc.extract_regex(every["name"], _PLAIN).combine_chunks()
        is_plain = parsed.is_valid()
        yield _plain(every.filter(is_plain), parsed.filter(is_plain))
        every = every.filter(pc.invert(is_plain))
    rows = [
        {
            "path": f"{directory}/{row['name']}",
            "kind": found.kind,
            "version": found.version,
            "end_version": found.end_version,
            "size": row["size"],
            "modified_ms": row["modified_ms"],
            "checked": found.checked,
        }
        for row in every.to_pylist()
        if (found := named(row["name"], directory)) is not None
    ]
    yield pa.Table.from_pylist(rows, LOG_FILES_ARROW)


def _odd_checkpoints(entries: Entries) -> Iterator[str]:
    for name, mode in zip(entries.names, entries.modes, strict=True):
        file = None if stat.S_ISREG(mode) else LogFile.parse(name)
        if file is not None and file.format_rank >= 0:
            yield read.shown(name)


def _links(entries: Entries) -> Iterator[LogFile]:
    for name, mode in zip(entries.names, entries.modes, strict=True):
        file = LogFile.parse(name) if stat.S_ISLNK(mode) else None
        if file is not None:
            yield msgspec.structs.replace(file, name=read.shown(name))


def _plain(files: pa.Table, parsed: pa.StructArray) -> pa.Table:
    kinds = pa.array(list(_PLAIN_KINDS)), pa.array(list(_PLAIN_KINDS.values()))
    index = pc.index_in(pc.struct_field(parsed, "kind"), kinds[0])
    columns = {
        "path": pc.binary_join_element_wise(LOG, files["name"], "/"),
        "kind": kinds[1].take(index),
        "version": pc.cast(pc.struct_field(parsed, "version"), pa.int64()),
        "end_version": pa.nulls(len(files), pa.int64()),
        "size": files["size"],
        "modified_ms": files["modified_ms"],
        "checked": pa.nulls(len(files), pa.string()),
    }
    return pa.table(columns, LOG_FILES_ARROW)


def _in_log(name: str, directory: str) -> _Named | None:
    file = LogFile.parse(name)
    if file is not None:
        end = file.end_version if file.kind is LogFileKind.COMPACTION else None
        return _Named(file.kind.value.replace(" ", "_"), file.version, end)
    return _beside(name, directory, LogFile.parse)


def _staged(name: str, directory: str) -> _Named | None:
    version = staged_version(name)
    if version is not None:
        return _Named("staged_commit", version)
    return _beside(name, directory, None)


def _sidecar(name: str, directory: str) -> _Named | None:
    if name.endswith(".parquet") and not name.startswith("."):
        return _Named("sidecar")
    return _beside(name, directory, None)


def _beside(
    name: str, directory: str, parse: Callable[[str], LogFile | None] | None
) -> _Named | None:
    """Files that the protocol does not define: temporary files and Hadoop checksums."""
    if is_temporary(name):
        return _Named("temporary")
    checked = checked_name(name)
    if checked is None:
        return None
    file = parse(checked) if parse else None
    version = staged_version(checked) if directory == STAGED else file and file.version
    return _Named("hadoop_checksum", version, checked=f"{directory}/{checked}")
