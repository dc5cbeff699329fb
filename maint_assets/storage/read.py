"""Read-only access to storage: directory listings, file contents, file status.

Dispatches to ``local`` or ``objects`` by location. Paths are relative to the location.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Protocol, TypeVar

import pyarrow.parquet as pq

from maint_assets.storage import local, object_files, object_listing, objects
from maint_assets.storage.entries import Entries, FileEntry, FileId, OpenFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa

    from maint_assets.storage.location import Location


class _Sized(Protocol):
    """A file by its path and its size in bytes."""

    @property
    def path(self) -> str: ...
    @property
    def size(self) -> int: ...


File = TypeVar("File", bound=_Sized)

NEVER_OLD = objects.NEVER_OLD
"""The time of what is no file that could be deleted."""

__all__ = ["Entries", "FileEntry", "FileId", "OpenFile"]


def files(location: Location, directory: str, *, first: str | None = None) -> list[FileEntry]:
    """List the direct entries of ``directory``, sorted by name; empty if it does not exist.

    All names, or those from ``first`` on. Entries that are neither a file nor a link to one have
    size -1. Raises StorageError.
    """
    return _of(location).files(location, directory, first=first)


def content(location: Location, path: str) -> bytes:
    """The bytes of a small file. Raises FileNotFoundError, OSError for what is no file."""
    return _of(location).content(location, path)


def in_turn(location: Location, files: Iterable[File]) -> Iterator[File]:
    """Iterate over files whose ``lines`` are read in this order.

    A store is asked for the next small ones while one is read.
    """
    if location.is_local:
        yield from files
        return
    every = list(files)
    with objects.reading(location, [(each.path, each.size) for each in every]):
        yield from every


def lines(location: Location, path: str) -> Iterator[bytes]:
    """Iterate over the non-blank lines of a file, in bounded memory."""
    rest = b""
    for chunk in _chunks(location, path):
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line for line in whole if line and not line.isspace())
    if rest and not rest.isspace():
        yield rest


def digest(location: Location, path: str) -> str:
    """A digest of a file's bytes, in bounded memory. Raises FileNotFoundError."""
    found = hashlib.sha256()
    for chunk in _chunks(location, path):
        found.update(chunk)
    return found.hexdigest()[:32]


def parquet(location: Location, path: str) -> pq.ParquetFile:
    """Open a Parquet file: reads the footer, then columns and row groups on demand."""
    return pq.ParquetFile(opened(location, path, size=0).source)


def opened(location: Location, path: str, *, size: int) -> OpenFile:
    """Open a file that is read as a whole; ``size`` is the one expected, in bytes.

    Raises FileNotFoundError, OSError.
    """
    if location.is_local:
        return local.opened(location, path)
    return object_files.opened(location, path, size=size)


def footer(location: Location, path: str) -> OpenFile:
    """Open a Parquet file of which only the footer is read.

    Raises FileNotFoundError, OSError.
    """
    if location.is_local:
        return local.opened(location, path)
    return object_files.footer(location, path)


def copy(location: Location, path: str, target: str) -> None:
    """Copy an object of a store to a local file. Raises FileNotFoundError, OSError."""
    object_files.copy(location, path, target)


def ranges(location: Location, path: str, spans: Sequence[tuple[int, int]]) -> list[bytes]:
    """Byte ranges of a file, each by start and length; cut at the end of the file."""
    if location.is_local:
        return local.ranges(location, path, spans)
    return object_files.ranges(location, path, spans)


def exists(location: Location, path: str) -> bool:
    """Whether an entry of that name exists, including a dangling symlink."""
    return _of(location).exists(location, path)


def is_file(location: Location, path: str) -> bool:
    """Whether the path is a regular file, links followed."""
    return _of(location).is_file(location, path)


def are_files(location: Location, paths: Sequence[str]) -> list[bool]:
    """Whether each path is a regular file, links followed."""
    if location.is_local:
        return [local.is_file(location, path) for path in paths]
    return [found is not None for found in objects.sizes_and_mtimes(location, paths)]


def has_directory(location: Location, path: str) -> bool:
    """Whether an entry of that name exists, or objects below that prefix."""
    if location.is_local:
        return local.exists(location, path)
    return objects.has_prefix(location, path)


def directory(
    location: Location, path: str, *, wanted: Callable[[str], bool] | None = None
) -> Iterator[Entries]:
    """Iterate over the direct entries of a directory in unsorted chunks, filtered by name.

    Links are not followed; entries that vanish meanwhile are left out. Raises StorageError.
    """
    return _of(location).directory(location, path, wanted=wanted)


def objects_between(
    location: Location, after: str, until: str | None, *, ordered: bool
) -> Iterator[pa.RecordBatch]:
    """The objects of a store in a range of keys, as ``object_listing.listed`` returns them."""
    return object_listing.listed(location, after=after, until=until, ordered=ordered)


def is_named(path: str) -> bool:
    """Whether requests to a store can name an object of that path."""
    return object_listing.is_named(path)


def count(location: Location, path: str) -> tuple[int, list[str]]:
    """The number of direct entries of a directory, and the names of its subdirectories."""
    if location.is_local:
        return local.count(location, path)
    found = list(objects.directory(location, path))
    return sum(len(each.names) for each in found), [n for each in found for n in each.directories()]


def names(location: Location, path: str) -> list[str]:
    """Names of the direct entries of a directory. Raises StorageError."""
    if location.is_local:
        return local.names(location, path)
    return [name for each in objects.directory(location, path) for name in each.names]


def state(location: Location, path: str) -> tuple[int, ...] | None:
    """A file's or directory's change marker, None if it is gone: differs after any rewrite.

    None for a directory of an object store, which has none.
    """
    return _of(location).state(location, path)


def size_and_mtime(location: Location, path: str) -> tuple[int, int] | None:
    """Size in bytes and last modification in ms of a file; None if it does not exist.

    Links, directories and special files have size -1: they are never files of a table.
    """
    return _of(location).size_and_mtime(location, path)


def sizes_and_mtimes(location: Location, paths: Sequence[str]) -> list[tuple[int, int] | None]:
    """``size_and_mtime`` of many files, in their order."""
    if location.is_local:
        return [local.size_and_mtime(location, path) for path in paths]
    return objects.sizes_and_mtimes(location, paths)


def may_write(location: Location, directory: str) -> bool:
    """Whether the directory's mode and its mount permit creating files in it; True on a store."""
    return not location.is_local or local.may_write(location, directory)


def has_mounts(location: Location) -> bool:
    """Whether a mount point lies below the directory: a bind mount gives files a second path."""
    return location.is_local and local.has_mounts(location)


def file_id(path: str) -> FileId | None:
    """The identity of a local regular file, links followed; None if there is none."""
    return local.file_id(path)


def device(location: Location) -> int:
    """The number of the device that the directory lies on. Raises OSError."""
    return local.device(location)


def link_targets(location: Location, directory: str) -> list[str]:
    """The resolved absolute paths of the symbolic links in a directory, and of itself if it is one.

    Empty if it does not exist. Raises StorageError.
    """
    return local.link_targets(location, directory) if location.is_local else []


def is_link(location: Location, path: str) -> bool:
    """Whether the path is a symbolic link."""
    return location.is_local and local.is_link(location, path)


def is_utf8(name: str) -> bool:
    """Whether a file name is valid UTF-8, so that a log can contain it."""
    if name.isascii():
        return True
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown(name: str) -> str:
    """A file name as text for messages, in ASCII where it is not UTF-8."""
    return name if is_utf8(name) else name.encode("ascii", "backslashreplace").decode()


def _chunks(location: Location, path: str) -> Iterator[bytes]:
    return _of(location).chunks(location, path)


class _Backend(Protocol):
    """What ``local`` and ``objects`` offer alike, below a root."""

    def files(
        self, location: Location, directory: str, *, first: str | None = None
    ) -> list[FileEntry]: ...
    def content(self, location: Location, path: str) -> bytes: ...
    def chunks(self, location: Location, path: str) -> Iterator[bytes]: ...
    def exists(self, location: Location, path: str) -> bool: ...
    def is_file(self, location: Location, path: str) -> bool: ...
    def directory(
        self, location: Location, path: str, *, wanted: Callable[[str], bool] | None = None
    ) -> Iterator[Entries]: ...
    def state(self, location: Location, path: str) -> tuple[int, ...] | None: ...
    def size_and_mtime(self, location: Location, path: str) -> tuple[int, int] | None: ...


def _of(location: Location) -> _Backend:
    return local if location.is_local else objects
