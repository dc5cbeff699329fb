"""What is in a directory, and what is in a file: everything that only looks."""

from __future__ import annotations

import itertools
import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import obstore
import pyarrow.parquet as pq
from obstore.exceptions import BaseError

from maint_assets.errors import StorageError, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from maint_assets.storage.location import Location

_CHUNK_BYTES = 8 * 1024 * 1024
_ENTRIES = 8_192


class FileEntry(msgspec.Struct, frozen=True):
    """A file by its name in one directory: size in bytes, last modification in ms."""

    name: str
    size: int
    modified_ms: int


class Entries(NamedTuple):
    """What lies directly in one directory, or some of it, by column.

    Names are the last component of a path; modes are those of ``os.stat_result.st_mode``.
    """

    names: list[str]
    modes: list[int]
    sizes: list[int]
    modified_ms: list[int]

    def directories(self) -> list[str]:
        """The names of the directories among them."""
        pairs = zip(self.names, self.modes, strict=True)
        return [name for name, mode in pairs if stat.S_ISDIR(mode)]


def files(location: Location, directory: str, *, first: str | None = None) -> list[FileEntry]:
    """The files directly in ``directory``, by name; empty when there is no such directory.

    Of all names, or of those that are not before the first one.

    Raises StorageError.
    """
    with _scanned(location, directory) as found:
        entries = [
            FileEntry(entry.name, told.st_size, told.st_mtime_ns // 1_000_000)
            for entry in found
            if (first is None or entry.name >= first) and (told := _file_stat(entry)) is not None
        ]
    return sorted(entries, key=lambda entry: entry.name)


def content(location: Location, path: str) -> bytes:
    """The bytes of a small file; FileNotFoundError when it is gone."""
    with as_os_error():
        return bytes(obstore.get(location.store(), path).bytes())


def lines(location: Location, path: str, *, without: bytes | None = None) -> Iterator[bytes]:
    """The non-blank lines of a file, but for those with a beginning, in bounded memory."""
    rest = b""
    for chunk in _chunks(location, path):
        *whole, rest = (rest + chunk).split(b"\n")
        if without is not None:
            whole = [line for line in whole if not line.startswith(without)]
        yield from (line for line in whole if line and not line.isspace())
    if rest and not rest.isspace() and not (without and rest.startswith(without)):
        yield rest


def parquet(location: Location, path: str) -> pq.ParquetFile:
    """An open Parquet file: footer read, columns and row groups on demand."""
    return pq.ParquetFile(str(location.file(path)))


def exists(location: Location, path: str) -> bool:
    """Whether anything bears that name, a dangling symlink included."""
    return os.path.lexists(f"{location.path}/{path}")


def directory(
    location: Location, path: str, *, wanted: Callable[[str], bool] | None = None
) -> Iterator[Entries]:
    """The entries directly in a directory, those wanted by name, not sorted, some at a time.

    Links are not followed; what vanished meanwhile is left out. Raises StorageError.
    """
    with _scanned(location, path) as found:
        while some := list(itertools.islice(found, _ENTRIES)):
            yield _looked_at(some if wanted is None else [e for e in some if wanted(e.name)])


def count(location: Location, path: str) -> tuple[int, list[str]]:
    """How many entries lie directly in a directory, and the names of its directories."""
    entries = itertools.count()
    with _scanned(location, path) as found:
        counted = (entry for entry, _ in zip(found, entries))  # noqa: B905 - one is endless
        names = [entry.name for entry in counted if entry.is_dir(follow_symlinks=False)]
    return next(entries), names


def is_link(location: Location, path: str) -> bool:
    """Whether a path is a symbolic link: what lies behind it may be anybody's."""
    return os.path.islink(f"{location.path}/{path}")  # noqa: PTH114 - False where denied


def size_and_mtime(location: Location, path: str) -> tuple[int, int] | None:
    """Size in bytes and last modification in ms of a file; None when there is none.

    The size of a symbolic link is -1: it is no file of a table.
    """
    try:
        found = os.lstat(f"{location.path}/{path}")
    except (FileNotFoundError, NotADirectoryError):
        return None
    size = -1 if stat.S_ISLNK(found.st_mode) else found.st_size
    return size, found.st_mtime_ns // 1_000_000


def is_utf8(name: str) -> bool:
    """Whether a name that the file system told is one that a log can hold."""
    if name.isascii():
        return True
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


@contextmanager
def as_os_error() -> Generator[None, None, None]:
    """What obstore raises beyond FileNotFoundError, as the OSError that it is."""
    try:
        yield
    except BaseError as error:
        raise OSError(one_line(error)) from error


def _chunks(location: Location, path: str) -> Iterator[bytes]:
    """A file in pieces."""
    with open(f"{location.path}/{path}", "rb", buffering=0) as file:  # noqa: PTH123 - a Path costs
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk


@contextmanager
def _scanned(location: Location, path: str) -> Generator[Iterator[os.DirEntry[str]], None, None]:
    """The entries of a directory; none when it vanished, or is no directory any more."""
    try:
        with _scandir(f"{location.path}/{path}") as found:
            yield found
    except OSError as error:
        raise _unreadable(location, path, error.strerror) from error


def _unreadable(location: Location, directory: str, why: str | None) -> StorageError:
    found = f"directory {directory or '.'} cannot be read ({why})"
    return StorageError(location.uri, found, "allow reading it, or mend the disk")


@contextmanager
def _scandir(path: str) -> Generator[Iterator[os.DirEntry[str]], None, None]:
    try:
        found = os.scandir(path)
    except (FileNotFoundError, NotADirectoryError):
        yield iter(())
        return
    with found:
        yield found


def _file_stat(entry: os.DirEntry[str]) -> os.stat_result | None:
    """Size and times of a file, or of the one that a link leads to; None where there is none."""
    try:
        return entry.stat() if entry.is_file() else None
    except FileNotFoundError:
        return None


def _looked_at(found: list[os.DirEntry[str]]) -> Entries:
    entries = Entries([], [], [], [])
    for entry in found:
        try:
            told = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue
        entries.names.append(entry.name)
        entries.modes.append(told.st_mode)
        entries.sizes.append(told.st_size)
        entries.modified_ms.append(told.st_mtime_ns // 1_000_000)
    return entries
