"""Refuse an unusable workspace before any table is read and Spark is started."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from maint_assets.errors import ConfigError, UnsupportedLocationError
from maint_assets.storage.location import Location

if TYPE_CHECKING:
    from collections.abc import Iterable

    from maint_assets.config import TableSettings

_LOG = "_delta_log"
_BESIDE = "put it beside the tables"


def refuse_workspace(workspace: str, tables: Iterable[TableSettings], *, source: str) -> None:
    """Raise ConfigError if the workspace is inside a table, or cannot be written.

    ``source`` names the config, or the only table, in errors. Nothing is created.
    """
    try:
        place = Path(Location.of(workspace).path)
    except (UnsupportedLocationError, RuntimeError, ValueError) as error:
        remedy = "give a local path or file: URI"
        raise ConfigError(source, f"the workspace {workspace} cannot be used", remedy) from error
    _refuse_unwritable(place, source=source)
    known = list(tables)
    for root in filter(None, map(_root, known)):
        for each in (place, *(place / table.name for table in known)):
            if _is_among(each, root) or _is_among(each.resolve(), root):
                found = f"the workspace {place} lies inside the table {root}"
                raise ConfigError(source, found, _BESIDE)


def refuse_same_location(tables: Iterable[TableSettings], *, source: str) -> None:
    """Raise ConfigError if two tables of a config have one location: their runs would overlap."""
    names: dict[str, str] = {}
    for table in tables:
        try:
            uri = Location.of(table.uri).uri
        except UnsupportedLocationError:  # its own run refuses it
            continue
        other = names.setdefault(uri, table.name)
        if other != table.name:
            found = f"the tables {other} and {table.name} have one location, {uri}"
            raise ConfigError(source, found, "keep one of them")


def _refuse_unwritable(place: Path, *, source: str) -> None:
    for each in (place, *place.parents):
        if not os.path.lexists(each):
            continue
        if not each.is_dir():
            found = f"the workspace {place} cannot be made: {each} is not a directory"
            raise ConfigError(source, found, _BESIDE)
        if not os.access(each, os.W_OK | os.X_OK):
            found = (
                f"the workspace {place} cannot be written: no permission to create files in {each}"
            )
            raise ConfigError(source, found, "allow writing there, or give another workspace")
        return


def _root(table: TableSettings) -> Path | None:
    """The local root of a table; None on a store, and where the location is unsupported."""
    try:
        location = Location.of(table.uri)
    except UnsupportedLocationError:  # its own run refuses it
        return None
    return Path(location.path) if location.is_local else None


def _is_among(place: Path, table: Path) -> bool:
    """Whether a directory is among a table's files; hidden ones, which VACUUM skips, are not."""
    if not place.is_relative_to(table):
        return False
    first = next(iter(place.relative_to(table).parts), "")
    return first == _LOG or not first.startswith(("_", "."))
