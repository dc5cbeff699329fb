"""Which sidecars a checkpoint that stays still needs (PROTOCOL, "Metadata Cleanup", 4 and 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from maint_assets.delta.actions import Sidecar
from maint_assets.delta.paths import decoded
from maint_assets.errors import LogGapError
from maint_assets.snapshot.log import SIDECARS
from maint_assets.snapshot.other_actions import RESTORE, converted, other_rows

if TYPE_CHECKING:
    from collections.abc import Iterable

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
    """The paths of the sidecars that some files of checkpoints name, encoded or not."""
    rows = (
        (entry, row["sidecar"])
        for entry in checkpoints
        for row in other_rows(location, entry, ("sidecar",))
        if row.get("sidecar")
    )
    named = {
        converted(row, Sidecar, table=location.uri, file=entry.file.name).path
        for entry, row in rows
    }
    spelled = named | {decoded(path) for path in named}
    return {f"{SIDECARS}/{path.rpartition('/')[2]}" for path in spelled}
