"""The sidecars that kept checkpoints reference (PROTOCOL.md, "Metadata Cleanup", steps 4 and 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from maint_assets.delta.actions import Sidecar
from maint_assets.delta.paths import decoded
from maint_assets.errors import LogGapError
from maint_assets.snapshot.control_actions import RESTORE, non_file_rows, to_action
from maint_assets.snapshot.head import sidecar_file
from maint_assets.snapshot.log import SIDECARS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from maint_assets.log_cleanup.log_directory import LogDirectory
    from maint_assets.snapshot.log import LogEntry
    from maint_assets.storage.location import Location


def referenced_sidecars(kept: LogDirectory) -> set[str]:
    """Paths, relative to the table root, of the sidecars that any checkpoint of a log names.

    Raises CorruptLogError or LogGapError when a checkpoint cannot be read or is a link: then it is
    unknown which sidecars are unreferenced.
    """
    if kept.unreadable_checkpoints:
        table = kept.location.uri
        raise LogGapError(
            table, f"checkpoint {kept.unreadable_checkpoints[0]} is a link or a directory", RESTORE
        )
    return named_sidecars(kept.location, kept.checkpoint_files())


def named_sidecars(location: Location, checkpoints: Iterable[LogEntry]) -> set[str]:
    """Paths of the sidecars that checkpoint files may name, with and without URI decoding.

    Only the file name of each counts, put below ``_sidecars``: this keeps more, never fewer.
    """
    named = {
        to_action(row, Sidecar, table=location.uri, file=entry.file.name).path
        for entry, row in _rows(location, checkpoints)
    }
    spelled = named | {decoded(path) for path in named}
    return {f"{SIDECARS}/{path.rpartition('/')[2]}" for path in spelled}


def sidecar_paths(location: Location, checkpoints: Iterable[LogEntry]) -> list[str]:
    """Paths of the existing sidecars that checkpoint files name.

    Raises CorruptLogError or LogGapError for one that is missing or not in ``_sidecars``.
    """
    return [sidecar_file(row, location, entry).path for entry, row in _rows(location, checkpoints)]


def _rows(location: Location, checkpoints: Iterable[LogEntry]) -> Iterator[tuple[LogEntry, Any]]:
    """The ``sidecar`` actions, each with the checkpoint file that holds it."""
    for entry in checkpoints:
        rows = non_file_rows(location, entry, ("sidecar",))
        yield from ((entry, row["sidecar"]) for row in rows if row.get("sidecar"))
