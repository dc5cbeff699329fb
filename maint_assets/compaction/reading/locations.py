"""The locations of data files, including those outside the table, as of a shallow clone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from maint_assets.delta.paths import TableRoot, is_outside
from maint_assets.errors import UnsupportedLocationError
from maint_assets.snapshot.resolved_paths import resolved_path
from maint_assets.storage.location import Location

if TYPE_CHECKING:
    from pathlib import Path

_FILE = "file://"


class StoredFile(NamedTuple):
    """A file by a directory and its path below it, as ``storage.read`` takes them."""

    location: Location
    path: str

    @property
    def local_path(self) -> Path:
        """The path of a file on a local disk. Raises UnsupportedLocationError on a store."""
        return self.location.file(self.path)


def data_file_of(location: Location, raw: str) -> StoredFile:
    """The file of a path in the log, which is URI-encoded."""
    return stored_file(location, resolved_path(raw, TableRoot.of(location.uri)))


def stored_file(location: Location, path: str) -> StoredFile:
    """The file of a decoded path: relative to the table's root, or absolute."""
    if not is_outside(path):
        return StoredFile(location, path)
    directory, _, name = path.removeprefix(_FILE).rpartition("/")
    if location.is_local and "://" not in directory:
        return StoredFile(Location(directory or "/"), name)
    outside = None if location.is_local else _on_store(directory)
    if outside is None:
        raise UnsupportedLocationError(
            location.uri,
            f"{path} lies on another storage",
            "copy it into the table, or rewrite it where it can be reached",
        )
    return StoredFile(replace(outside, options=location.options), name)


def _on_store(uri: str) -> Location | None:
    """The location of a directory on a store, None for all others."""
    try:
        found = Location.of(uri)
    except UnsupportedLocationError:
        return None
    return None if found.is_local else found
