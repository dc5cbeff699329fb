"""Which entries of a table a walk looks at, and which directories it enters."""

from __future__ import annotations

import msgspec

from maint_assets.delta.names import is_hidden
from maint_assets.storage import read
from maint_assets.storage.location import Location


class Walk(msgspec.Struct, frozen=True):
    """What decides which entries a walk enters: table, partition columns, UniForm."""

    table: str
    partition_columns: list[str]
    iceberg: bool

    @property
    def location(self) -> Location:
        """The root of the walk."""
        return Location(self.table, self.table)

    def hides_name(self, name: str) -> bool:
        """Whether a file or directory of this name is never a candidate (vacuum.md 6)."""
        return is_hidden(name, self.partition_columns, iceberg=self.iceberg)

    def enters(self, directory: str, name: str) -> bool:
        """Whether a walk goes into a directory: visible, a name in UTF-8, no table of its own."""
        visible = not self.hides_name(name) and read.is_utf8(name)
        return visible and not self.is_table(f"{directory}{name}")

    def is_table(self, directory: str) -> bool:
        """Whether a directory below the root holds a Delta log of its own."""
        return read.exists(self.location, f"{directory}/_delta_log")
