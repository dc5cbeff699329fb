"""What lies in ``_delta_log``, its staged commits and its sidecars: one row a file, by column."""

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
"""Paths below the table root; ``checked`` is the file that a Hadoop checksum is of."""

CHECKPOINT_KINDS = ("checkpoint", "checkpoint_part", "v2_checkpoint")

_PLAIN = r"^0*(?P<version>[0-9]{1,18})\.(?P<kind>json|crc)$"
_PLAIN_KINDS = {"json": "commit", "crc": "checksum"}


@dataclass(frozen=True)
class LogDirectory:
    """The files of a log that have a name which somebody gives them; all others are not seen.

    ``files`` has LOG_FILES_ARROW, in no order. ``odd`` names checkpoints that are links or
    directories: other readers may use what we do not look into. ``links`` are those with a name of
    the protocol that are links: nothing is done to them.
    """

    location: Location
    files: pa.Table
    odd: tuple[str, ...] = ()
    links: tuple[LogFile, ...] = ()

    def without(self, paths: set[str]) -> LogDirectory:
        """The log as it is once some files are gone."""
        kept = self.files.filter(pc.invert(is_in(self.files, paths)))
        return LogDirectory(self.location, kept, self.odd, self.links)

    @property
    def file_count(self) -> int:
        """The files, links among them."""
        return self.files.num_rows + len(self.links)

    @property
    def bytes(self) -> int:
        """The size of the files, without what lies behind links."""
        return pc.sum(self.files["size"], min_count=0).as_py()

    @property
    def linked_commits(self) -> list[int]:
        """The versions of the commits that are links, ascending."""
        return sorted(f.version for f in self.links if f.kind is LogFileKind.COMMIT)

    def of(self, *kinds: str) -> pa.Table:
        """The files of some kinds."""
        return self.files.filter(pc.is_in(self.files["kind"], pa.array(kinds)))

    @cached_property
    def commits(self) -> pa.Table:
        """The published commits, by version."""
        return self.of("commit").sort_by("version")

    @cached_property
    def commit_versions(self) -> Versions:
        """The versions of the published commits, ascending."""
        return self.commits["version"].to_numpy()

    @cached_property
    def checkpoints(self) -> list[Checkpoint]:
        """The complete checkpoints, newest and preferred format first; empty files are none."""
        return complete_checkpoints(self.checkpoint_files())

    def checkpoint_files(self, *kinds: str) -> list[LogEntry]:
        """The files of checkpoints that are not empty, of all kinds or of some."""
        rows = self.of(*(kinds or CHECKPOINT_KINDS)).sort_by("path").to_pylist()
        return [entry for row in rows if row["size"] and (entry := log_entry(row)) is not None]

    def has_commits(self, first: int, last: int) -> bool:
        """Whether every commit from one version to another is there."""
        versions = self.commit_versions
        found = np.unique(versions[(versions >= first) & (versions <= last)])
        return found.size == last - first + 1

    def commits_between(self, first: int, last: int) -> list[LogEntry]:
        """The commits from one version to another, oldest first."""
        versions = self.commit_versions
        rows = self.commits.filter(pa.array((versions >= first) & (versions <= last)))
        return [entry for row in rows.to_pylist() if (entry := log_entry(row)) is not None]


def log_directory(location: Location) -> LogDirectory:
    """What lies in the log of a table now.

    Nothing behind a link that stands for a directory below the log is seen. Raises StorageError.
    """
    places: tuple[tuple[str, Callable[[str, str], _Named | None]], ...] = (
        (LOG, _in_log),
        (STAGED, _staged),
        (SIDECARS, _sidecar),
    )
    found = [LOG_FILES_ARROW.empty_table()]
    odd: list[str] = []
    links: list[LogFile] = []
    for directory, named in places:
        if directory != LOG and read.is_link(location, directory):
            continue
        for entries in read.directory(location, directory):
            found += _tables(directory, entries, named)
            if directory == LOG:
                odd += _odd_checkpoints(entries)
                links += _links(entries)
    return LogDirectory(location, pa.concat_tables(found), tuple(odd), tuple(links))


def is_in(files: pa.Table, paths: set[str], column: str = "path") -> pa.ChunkedArray:
    """Which rows of files name one of some paths."""
    wanted = pa.array(sorted(paths), pa.string())
    return pc.fill_null(pc.is_in(files[column], wanted), fill_value=False)


def log_entry(row: dict[str, Any]) -> LogEntry | None:
    """The file of a row as the read path knows it; None for one that the protocol does not name."""
    file = LogFile.parse(row["path"].rpartition("/")[2])
    return None if file is None else LogEntry(file, row["size"], row["modified_ms"])


@dataclass(frozen=True, slots=True)
class _Named:
    """What the name of a file says."""

    kind: str
    version: int | None = None
    end_version: int | None = None
    checked: str | None = None


def _tables(
    directory: str, entries: Entries, named: Callable[[str, str], _Named | None]
) -> Iterator[pa.Table]:
    """The files of some entries of a directory: plain commits and checksums at once."""
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
        told = pc.extract_regex(every["name"], _PLAIN).combine_chunks()
        is_plain = told.is_valid()
        yield _plain(every.filter(is_plain), told.filter(is_plain))
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


def _plain(files: pa.Table, told: pa.StructArray) -> pa.Table:
    kinds = pa.array(list(_PLAIN_KINDS)), pa.array(list(_PLAIN_KINDS.values()))
    at = pc.index_in(pc.struct_field(told, "kind"), kinds[0])
    columns = {
        "path": pc.binary_join_element_wise(LOG, files["name"], "/"),
        "kind": kinds[1].take(at),
        "version": pc.cast(pc.struct_field(told, "version"), pa.int64()),
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
    """Files that are none of the log's own: temporary ones, and what Hadoop keeps beside each."""
    if is_temporary(name):
        return _Named("temporary")
    checked = checked_name(name)
    if checked is None:
        return None
    file = parse(checked) if parse else None
    version = staged_version(checked) if directory == STAGED else file and file.version
    return _Named("hadoop_checksum", version, checked=f"{directory}/{checked}")
