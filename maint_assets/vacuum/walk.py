"""The rules of a walk over a table: which entries are hidden and which directories are entered."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from maint_assets.delta.names import checked_name, is_hidden, is_log_name
from maint_assets.delta.paths import parents
from maint_assets.snapshot.log import LOG, SIDECARS, STAGED
from maint_assets.storage import read
from maint_assets.storage.location import Location

_LOG_DIRECTORIES = (LOG, SIDECARS, STAGED)


class Walk(msgspec.Struct, frozen=True):
    """A walk over a table. ``iceberg``: whether the table keeps UniForm metadata (hidden).

    ``of_log``: files and directories below the root to which links of the log lead (hidden).
    """

    location: Location
    partition_columns: list[str]
    iceberg: bool
    of_log: list[str] = []

    @property
    def table(self) -> str:
        """The table's URI, for messages."""
        return self.location.uri

    def hides_directory(self, name: str) -> bool:
        """Whether a directory of this name is neither a candidate nor entered.

        As in Delta Spark: names that begin with ``_`` or ``.``, but not directories of partition
        values, ``_change_data`` and ``_delta_index``.
        """
        return is_hidden(name, self.partition_columns, iceberg=self.iceberg)

    def hides_file(self, name: str) -> bool:
        """Whether a file of this name is never a candidate: hidden, or named like a log file.

        The checksum that Hadoop keeps beside a file (``.<name>.crc``) is visible if the file is.
        """
        checked = checked_name(name)
        if checked is not None and self.hides_directory(name):
            return self.hides_directory(checked) or is_log_name(checked)
        return self.hides_directory(name) or is_log_name(name)

    def enters(self, directory: str, name: str) -> bool:
        """Whether the walk enters a directory: visible, named in UTF-8, no Delta table itself."""
        visible = not self.hides_directory(name) and read.is_utf8(name)
        path = f"{directory}{name}"
        return visible and path not in self.of_log and not self.is_table(path)

    def is_table(self, directory: str) -> bool:
        """Whether a directory below the root holds a Delta log of its own."""
        return read.has_directory(self.location, f"{directory}/_delta_log")


def behind_log_links(location: Location) -> list[str]:
    """Paths below the root, relative to it, to which symbolic links of the log lead.

    Some keep the log, or old files of it, elsewhere. Raises StorageError.
    """
    root = f"{location.uri}/"
    targets = [each for at in _LOG_DIRECTORIES for each in read.link_targets(location, at)]
    return sorted({each.removeprefix(root) for each in targets if each.startswith(root)})


class Entered:
    """Apply the rules of a walk to paths from another source: the log or an inventory.

    Answers about directories are cached, as each may cost a look at the storage.
    """

    def __init__(self, walk: Walk) -> None:
        self.walk = walk
        self._closed = lru_cache(maxsize=65_536)(self._is_closed)

    def reaches(self, path: str) -> bool:
        """Whether the walk enters all directories above a path below the root."""
        return not any(self._closed(directory) for directory in parents(path))

    def shows_file(self, path: str) -> bool:
        """Whether the walk reports a file of that path as a candidate."""
        is_hidden = self.walk.hides_file(path.rpartition("/")[2]) or path in self.walk.of_log
        return not is_hidden and self.reaches(path)

    def is_table(self, directory: str) -> bool:
        """Whether a directory that the walk reaches is the root of another Delta table."""
        return self._closed(directory) and self.walk.is_table(directory)

    def _is_closed(self, directory: str) -> bool:
        above, _, name = directory.rpartition("/")
        is_entered = self.walk.enters(f"{above}/" if above else "", name)
        return not is_entered or read.is_link(self.walk.location, directory)
