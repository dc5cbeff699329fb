"""Which sidecars a checkpoint that stays still needs (PROTOCOL, "Metadata Cleanup", 4 and 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from maint_assets.delta.paths import decoded
from maint_assets.snapshot.log import SIDECARS
from maint_assets.snapshot.other_actions import other_rows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from maint_assets.snapshot.log import LogEntry
    from maint_assets.storage.location import Location


def referenced_sidecars(location: Location, checkpoints: Iterable[LogEntry]) -> set[str]:
    """The paths below the table root of all sidecars that files of checkpoints name.

    Raises CorruptLogError or LogGapError when one of the files cannot be read: then nobody knows
    which sidecars are unneeded.
    """
    return {
        f"{SIDECARS}/{_bare(row['sidecar'])}"
        for entry in checkpoints
        for row in other_rows(location, entry, ("sidecar",))
        if row.get("sidecar")
    }


def _bare(row: object) -> str:
    values = row if isinstance(row, dict) else msgspec.to_builtins(row)
    return decoded(values["path"]).rpartition("/")[2]
