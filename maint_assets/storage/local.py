"""Local implementation of ``storage.read``."""

from __future__ import annotations

import errno
import itertools
import os
import pathlib
import re
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from maint_assets.errors import StorageError
from maint_assets.storage.entries import Entries, FileEntry, FileId, OpenFile

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from maint_assets.storage.location import Location


_CHUNK_BYTES = 8 * 1024 * 1024
_ENTRIES = 8_192
_OCTAL = re.compile(r"\\([0-7]{3})")
"""How the kernel writes blanks and backslashes of mount points."""


def files(location: Location, directory: str, *, first: str | None = None) -> list[FileEntry]:
    """List the direct entries of ``directory``, sorted by name; empty if it does not exist.

    All names, or those from ``first`` on. Entries that are neither a file nor a link to one have
    size -1. Raises StorageError.
    """
    with _scanned(location.uri, directory) as found:
        entries = [
            file
            for entry in found
            if (first is None or entry.name >= first) and (file := _file_entry(entry)) is not None
        ]
    return sorted(entries, key=lambda entry: entry.name)


def content(location: Location, path: str) -> bytes:
    """The bytes of a small file. Raises FileNotFoundError, OSError for what is no file."""
    _refuse_special(location.uri, path)
    with open(f"{location.uri}/{path}", "rb") as file:  # noqa: PTH123 - a Path costs
        return file.read()


def opened(location: Location, path: str) -> OpenFile:
    """Open a file. Raises FileNotFoundError, OSError."""
    source = pa.OSFile(f"{location.uri}/{path}")
    return OpenFile(source, source.size())


def ranges(location: Location, path: str, spans: Sequence[tuple[int, int]]) -> list[bytes]:
    """Byte ranges of a file, each by start and length; cut at the end of the file."""
    with open(f"{location.uri}/{path}", "rb") as file:  # noqa: PTH123 - a Path costs
        return [os.pread(file.fileno(), length, start) for start, length in spans]


def exists(location: Location, path: str) -> bool:
    """Whether an entry of that name exists, including a dangling symlink."""
    return os.path.lexists(f"{location.uri}/{path}")


def may_write(location: Location, directory: str) -> bool:
    """Whether the directory's mode and its mount permit creating files in it."""
    return os.access(f"{location.uri}/{directory}", os.W_OK | os.X_OK)


def is_file(location: Location, path: str) -> bool:
    """Whether the path is a regular file, links followed."""
    return os.path.isfile(f"{location.uri}/{path}")  # noqa: PTH113 - False where denied


def directory(
    location: Location, path: str, *, wanted: Callable[[str], bool] | None = None
) -> Iterator[Entries]:
    """Iterate over the direct entries of a directory in unsorted chunks, filtered by name.

    Links are not followed; entries that vanish meanwhile are left out. Raises StorageError.
    """
    with _scanned(location.uri, path) as found:
        while some := list(itertools.islice(found, _ENTRIES)):
            yield _with_status(some if wanted is None else [e for e in some if wanted(e.name)])


def count(location: Location, path: str) -> tuple[int, list[str]]:
    """The number of direct entries of a directory, and the names of its subdirectories."""
    entries = itertools.count()
    with _scanned(location.uri, path) as found:
        counted = (entry for entry, _ in zip(found, entries))  # noqa: B905 - one is endless
        names = [entry.name for entry in counted if entry.is_dir(follow_symlinks=False)]
    return next(entries), names


def names(location: Location, path: str) -> list[str]:
    """Names of the direct entries of a directory. Raises StorageError."""
    with _scanned(location.uri, path) as found:
        return [entry.name for entry in found]


def state(location: Location, path: str) -> tuple[int, ...] | None:
    """A file's or directory's change marker, None if it is gone: differs after any rewrite.

    Contains ctime, which, unlike mtime, no program can set.
    """
    try:
        found = os.lstat(f"{location.uri}/{path}")
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
    return any(point.startswith(f"{location.uri}/") for point in plain)


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
    return pathlib.Path(location.uri).stat().st_dev


def link_targets(location: Location, directory: str) -> list[str]:
    """The resolved absolute paths of the symbolic links in a directory, and of itself if it is one.

    Empty if it does not exist. Raises StorageError.
    """
    with _scanned(location.uri, directory) as found:
        links = [entry.path for entry in found if entry.is_symlink()]
    links += [f"{location.uri}/{directory}"] if is_link(location, directory) else []
    return [os.path.realpath(link) for link in links]


def is_link(location: Location, path: str) -> bool:
    """Whether the path is a symbolic link."""
    return os.path.islink(f"{location.uri}/{path}")  # noqa: PTH114 - False where denied


def size_and_mtime(location: Location, path: str) -> tuple[int, int] | None:
    """Size in bytes and last modification in ms of a file; None if it does not exist.

    Links, directories and special files have size -1: they are never files of a table.
    """
    try:
        found = os.lstat(f"{location.uri}/{path}")
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


def _refuse_special(root: str, path: str) -> None:
    """Raise OSError for what is no regular file: opening a pipe would wait for its writer."""
    if not stat.S_ISREG(os.stat(f"{root}/{path}").st_mode):  # noqa: PTH116 - a Path costs
        raise OSError(errno.EINVAL, "it is a directory, a pipe or a device")


def chunks(location: Location, path: str) -> Iterator[bytes]:
    """Iterate over a file's bytes in chunks."""
    _refuse_special(location.uri, path)
    with open(f"{location.uri}/{path}", "rb", buffering=0) as file:  # noqa: PTH123 - a Path costs
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk


@contextmanager
def _scanned(root: str, path: str) -> Generator[Iterator[os.DirEntry[str]], None, None]:
    """Scan a directory; yields nothing if it vanished or is no longer a directory."""
    try:
        with _scandir(f"{root}/{path}") as found:
            yield found
    except OSError as error:
        raise _unreadable(root, path, error.strerror) from error


def _unreadable(root: str, directory: str, why: str | None) -> StorageError:
    found = f"directory {directory or '.'} cannot be read ({why})"
    return StorageError(root, found, "allow reading it, or check the disk")


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
