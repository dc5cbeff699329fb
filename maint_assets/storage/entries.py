"""Values that reading returns: directory entries, identities of files, open files."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    import pyarrow as pa


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


class FileId(NamedTuple):
    """The identity of a regular file."""

    device: int
    inode: int
    size: int
    modified_ns: int


class OpenFile(NamedTuple):
    """An open file, and the size in bytes of the file in the storage."""

    source: pa.NativeFile
    size: int
