"""What is in a directory, and what is in a file: everything that only looks."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import obstore
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterator

    from maint_assets.storage.location import Location

_CHUNK_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file by its name in one directory: size in bytes, last modification in ms."""

    name: str
    size: int
    modified_ms: int


class Entry(NamedTuple):
    """A file, directory or other thing found on a walk; ``name`` is its last path component.

    ``plain`` is False for what must never be touched or entered: symlinks, sockets, devices,
    and names that are not UTF-8.
    """

    name: str
    is_dir: bool
    plain: bool
    found: os.DirEntry[str]

    def size_and_mtime(self) -> tuple[int, int] | None:
        """Size in bytes (0 for directories) and last modification in ms; None when it vanished."""
        try:
            found = self.found.stat(follow_symlinks=False)
        except FileNotFoundError:
            return None
        return (0 if self.is_dir else found.st_size), found.st_mtime_ns // 1_000_000


def files(location: Location, directory: str) -> list[FileEntry]:
    """The files directly in ``directory``, by name; empty when there is no such directory."""
    if not Path(location.path).is_dir():
        return []
    found = obstore.list_with_delimiter(location.store(), directory)["objects"]
    return sorted(
        (
            FileEntry(
                Path(meta["path"]).name,
                meta["size"],
                int(meta["last_modified"].timestamp() * 1000),
            )
            for meta in found
        ),
        key=lambda entry: entry.name,
    )


def content(location: Location, path: str) -> bytes:
    """The bytes of a small file; FileNotFoundError when it is gone."""
    return bytes(obstore.get(location.store(), path).bytes())


def lines(location: Location, path: str) -> Iterator[bytes]:
    """The non-blank lines of a file, in bounded memory."""
    rest = b""
    for chunk in obstore.get(location.store(), path).stream(min_chunk_size=_CHUNK_BYTES):
        *whole, rest = (rest + bytes(chunk)).split(b"\n")
        yield from (line for line in whole if line and not line.isspace())
    if rest and not rest.isspace():
        yield rest


def parquet(location: Location, path: str) -> pq.ParquetFile:
    """An open Parquet file: footer read, columns and row groups on demand."""
    return pq.ParquetFile(str(location.file(path)))


def exists(location: Location, path: str) -> bool:
    """Whether anything bears that name, a dangling symlink included."""
    return os.path.lexists(f"{location.path}/{path}")


def directory(location: Location, path: str) -> Iterator[Entry]:
    """The entries directly in a directory, not sorted; nothing when it vanished meanwhile."""
    try:
        with os.scandir(f"{location.path}/{path}") as found:
            for entry in found:
                name = entry.name
                is_file = entry.is_file(follow_symlinks=False)
                is_dir = not is_file and entry.is_dir(follow_symlinks=False)
                yield Entry(name, is_dir, (is_file or is_dir) and _is_utf8(name), entry)
    except FileNotFoundError:
        return


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


def _is_utf8(name: str) -> bool:
    if name.isascii():
        return True
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
