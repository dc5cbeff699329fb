"""Which sidecars a checkpoint that stays still needs (PROTOCOL, "Metadata Cleanup", 4 and 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from maint_assets.delta.actions import Sidecar
from maint_assets.delta.paths import decoded
from maint_assets.errors import LogGapError
from maint_assets.snapshot.control_actions import RESTORE, converted, other_rows
from maint_assets.snapshot.head import sidecar_file
from maint_assets.snapshot.log import SIDECARS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from maint_assets.log_cleanup.log_directory import LogDirectory
    from maint_assets.snapshot.log import LogEntry
    from maint_assets.storage.location import Location


def referenced_sidecars(kept: LogDirectory) -> set[str]:
    """The paths below the table root of all sidecars that checkpoints of a log name.

    Raises CorruptLogError or LogGapError when one of them cannot be read, or is a link: then
    nobody knows which sidecars are unneeded.
    """
    if kept.odd:
        table = kept.location.uri
        raise LogGapError(table, f"checkpoint {kept.odd[0]} is a link or a directory", RESTORE)
    return named_sidecars(kept.location, kept.checkpoint_files())


def named_sidecars(location: Location, checkpoints: Iterable[LogEntry]) -> set[str]:
    """The paths of the sidecars that some files of checkpoints may name, encoded or not.

    Each counts by its last name as well: where it lies is not looked at.
    """
    named = {
        converted(row, Sidecar, table=location.uri, file=entry.file.name).path
        for entry, row in _rows(location, checkpoints)
    }
    spelled = named | {decoded(path) for path in named}
    return {f"{SIDECARS}/{path.rpartition('/')[2]}" for path in spelled}


def sidecar_paths(location: Location, checkpoints: Iterable[LogEntry]) -> list[str]:
    """Where the sidecars lie that some files of checkpoints name.

    Raises CorruptLogError or LogGapError for one that is missing, or not in its directory.
    """
    return [sidecar_file(row, location, entry).path for entry, row in _rows(location, checkpoints)]


def _rows(location: Location, checkpoints: Iterable[LogEntry]) -> Iterator[tuple[LogEntry, Any]]:
    """The rows of sidecars, each with the file that names it."""
    for entry in checkpoints:
        rows = other_rows(location, entry, ("sidecar",))
        yield from ((entry, row["sidecar"]) for row in rows if row.get("sidecar"))
