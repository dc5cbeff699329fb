"""The locations of data files, including those outside the table, as of a shallow clone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from maint_assets.delta.paths import TableRoot
from maint_assets.errors import UnsupportedLocationError
from maint_assets.snapshot.resolved_paths import resolved_path

if TYPE_CHECKING:
    from maint_assets.storage.location import Location

_FILE = "file://"


def data_path(location: Location, raw: str) -> Path:
    """The file of a path in the log, which is URI-encoded."""
    return local_path(location, resolved_path(raw, TableRoot.of(location.uri)))


def local_path(location: Location, path: str) -> Path:
    """The file of a decoded path: relative to the table's root, or absolute."""
    if path.startswith(_FILE):
        return Path(path.removeprefix(_FILE))
    if "://" in path:
        raise UnsupportedLocationError(
            location.uri,
            f"{path} lies on another storage",
            "copy it into the table, or rewrite it where it can be reached",
        )
    return location.file(path)
