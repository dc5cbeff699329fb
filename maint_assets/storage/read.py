"""Read-only access to storage: directory listings, file contents, file status."""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import pathlib
import re
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
_OCTAL = re.compile(r"\\([0-7]{3})")
"""How the kernel writes blanks and backslashes of mount points."""


class FileEntry(msgspec.Struct, frozen=True):
    """A directory entry: name, size in bytes, last modification in ms since the epoch."""

    name: str
    size: int
    modified_ms: int


class Entries(NamedTuple):
    """Direct entries of one directory, as columns.

    ``names`` are last path components, ``modes`` are ``os.stat_result.st_mode``.
    """

    names: list[str]
    modes: list[int]
    sizes: list[int]
    modified_ms: list[int]

    def directories(self) -> list[str]:
        """Names of the entries that are directories."""
        pairs = zip(self.names, self.modes, strict=True)
        return [name for name, mode in pairs if stat.S_ISDIR(mode)]


def files(location: Location, directory: str, *, first: str | None = None) -> list[FileEntry]:
    """List the direct entries of ``directory``, sorted by name; empty if it does not exist.

    All names, or those from ``first`` on. Entries that are neither a file nor a link to one have
    size -1. Raises StorageError.
    """
    with _scanned(location, directory) as found:
        entries = [
            file
            for entry in found
            if (first is None or entry.name >= first) and (file := _file_entry(entry)) is not None
        ]
    return sorted(entries, key=lambda entry: entry.name)


def content(location: Location, path: str) -> bytes:
    """The bytes of a small file. Raises FileNotFoundError, OSError for what is no file."""
    _refuse_special(location, path)
    with as_os_error():
        return bytes(obstore.get(location.store(), path).bytes())


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
    return pq.ParquetFile(str(location.file(path)))


def exists(location: Location, path: str) -> bool:
    """Whether an entry of that name exists, including a dangling symlink."""
    return os.path.lexists(f"{location.path}/{path}")


def may_write(location: Location, directory: str) -> bool:
    """Whether the directory's mode and its mount permit creating files in it."""
    return os.access(location.file(directory), os.W_OK | os.X_OK)


def is_file(location: Location, path: str) -> bool:
    """Whether the path is a regular file, links followed."""
    return os.path.isfile(f"{location.path}/{path}")  # noqa: PTH113 - False where denied


def directory(
    location: Location, path: str, *, wanted: Callable[[str], bool] | None = None
) -> Iterator[Entries]:
    """Iterate over the direct entries of a directory in unsorted chunks, filtered by name.

    Links are not followed; entries that vanish meanwhile are left out. Raises StorageError.
    """
    with _scanned(location, path) as found:
        while some := list(itertools.islice(found, _ENTRIES)):
            yield _with_status(some if wanted is None else [e for e in some if wanted(e.name)])


def count(location: Location, path: str) -> tuple[int, list[str]]:
    """The number of direct entries of a directory, and the names of its subdirectories."""
    entries = itertools.count()
    with _scanned(location, path) as found:
        counted = (entry for entry, _ in zip(found, entries))  # noqa: B905 - one is endless
        names = [entry.name for entry in counted if entry.is_dir(follow_symlinks=False)]
    return next(entries), names


def names(location: Location, path: str) -> list[str]:
    """Names of the direct entries of a directory. Raises StorageError."""
    with _scanned(location, path) as found:
        return [entry.name for entry in found]


def state(location: Location, path: str) -> tuple[int, ...] | None:
    """A file's or directory's change marker, None if it is gone: differs after any rewrite.

    Contains ctime, which, unlike mtime, no program can set.
    """
    try:
        found = os.lstat(f"{location.path}/{path}")
    except (OSError, ValueError):
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def has_mounts(location: Location) -> bool:
    """Whether a mount point lies below the directory: a bind mount gives files a second path."""
    try:
        mounts = pathlib.Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    points = (line.split(" ")[4] for line in mounts.split("\n") if line)
    plain = (_OCTAL.sub(lambda match: chr(int(match[1], 8)), point) for point in points)
    return any(point.startswith(f"{location.path}/") for point in plain)


class FileId(NamedTuple):
    """What tells one regular file from another."""

    device: int
    inode: int
    size: int
    modified_ns: int


def file_id(path: str) -> FileId | None:
    """The identity of a regular file, links followed; None if there is none."""
    try:
        found = pathlib.Path(path).stat()
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return FileId(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def device(location: Location) -> int:
    """The number of the device that the directory lies on. Raises OSError."""
    return pathlib.Path(location.path).stat().st_dev


def link_targets(location: Location, directory: str) -> list[str]:
    """The resolved absolute paths of the symbolic links in a directory, and of itself if it is one.

    Empty if it does not exist. Raises StorageError.
    """
    with _scanned(location, directory) as found:
        links = [entry.path for entry in found if entry.is_symlink()]
    links += [f"{location.path}/{directory}"] if is_link(location, directory) else []
    return [os.path.realpath(link) for link in links]


def is_link(location: Location, path: str) -> bool:
    """Whether the path is a symbolic link."""
    return os.path.islink(f"{location.path}/{path}")  # noqa: PTH114 - False where denied


def size_and_mtime(location: Location, path: str) -> tuple[int, int] | None:
    """Size in bytes and last modification in ms of a file; None if it does not exist.

    Links, directories and special files have size -1: they are never files of a table.
    """
    try:
        found = os.lstat(f"{location.path}/{path}")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError:  # a NUL in the name: no such file can exist
        return None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:  # no such file can exist either
            return None
        raise
    size = found.st_size if stat.S_ISREG(found.st_mode) else -1
    return size, found.st_mtime_ns // 1_000_000


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


@contextmanager
def as_os_error() -> Generator[None, None, None]:
    """Raise errors of obstore as OSError."""
    try:
        yield
    except BaseError as error:
        raise OSError(one_line(error)) from error


def _refuse_special(location: Location, path: str) -> None:
    """Raise OSError for what is no regular file: opening a pipe would wait for its writer."""
    if not stat.S_ISREG(os.stat(f"{location.path}/{path}").st_mode):  # noqa: PTH116 - a Path costs
        raise OSError(errno.EINVAL, "it is a directory, a pipe or a device")


def _chunks(location: Location, path: str) -> Iterator[bytes]:
    """Iterate over a file's bytes in chunks."""
    _refuse_special(location, path)
    with open(f"{location.path}/{path}", "rb", buffering=0) as file:  # noqa: PTH123 - a Path costs
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk


@contextmanager
def _scanned(location: Location, path: str) -> Generator[Iterator[os.DirEntry[str]], None, None]:
    """Scan a directory; yields nothing if it vanished or is no longer a directory."""
    try:
        with _scandir(f"{location.path}/{path}") as found:
            yield found
    except OSError as error:
        raise _unreadable(location, path, error.strerror) from error


def _unreadable(location: Location, directory: str, why: str | None) -> StorageError:
    found = f"directory {directory or '.'} cannot be read ({why})"
    return StorageError(location.uri, found, "allow reading it, or check the disk")


@contextmanager
def _scandir(path: str) -> Generator[Iterator[os.DirEntry[str]], None, None]:
    try:
        found = os.scandir(path)
    except (FileNotFoundError, NotADirectoryError):
        yield iter(())
        return
    with found:
        yield found


def _file_entry(entry: os.DirEntry[str]) -> FileEntry | None:
    """Status of a file, links followed; None if it vanished meanwhile."""
    try:
        if entry.is_file():
            status = entry.stat()
            return FileEntry(entry.name, status.st_size, status.st_mtime_ns // 1_000_000)
        status = entry.stat(follow_symlinks=False)
        return FileEntry(entry.name, -1, status.st_mtime_ns // 1_000_000)
    except FileNotFoundError:
        return None


def _with_status(found: list[os.DirEntry[str]]) -> Entries:
    entries = Entries([], [], [], [])
    for entry in found:
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue
        entries.names.append(entry.name)
        entries.modes.append(status.st_mode)
        entries.sizes.append(status.st_size)
        entries.modified_ms.append(status.st_mtime_ns // 1_000_000)
    return entries
