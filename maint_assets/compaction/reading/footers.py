"""Check footers before a rewrite: hazards, and numbers of live rows."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from maint_assets.compaction.reading.data_files import DataFiles
from maint_assets.compaction.reading.hazards import Hazard
from maint_assets.errors import MaintError
from maint_assets.storage.location import Location

if TYPE_CHECKING:
    from collections.abc import Sequence

    from maint_assets.compaction.columns.physical import FileSchema
    from maint_assets.compaction.reading.data_files import DataFile
    from maint_assets.delta.actions import Add


def file_hazard(file: DataFile) -> Hazard | None:
    """The hazard that forbids a rewrite of a file by Arrow, with its path, or None."""
    found, add = file.hazard, file.add
    if add.size != file.size:
        # Another file under the same name, or another log: Spark does not find its footer.
        found = Hazard(f"the log says {add.size} bytes, the file has {file.size}")
    elif add.num_records not in {None, file.num_rows}:
        found = Hazard(f"the log says {add.num_records} rows, the file has {file.num_rows}")
    return None if found is None else found.of(file.add.path)


def hazards_of_footers(
    inputs: Sequence[Add], *, location: Location, target: FileSchema
) -> tuple[Hazard | None, list[int]]:
    """The hazard among files, and the live rows of each, from footers and deletion vectors.

    A hazard for every engine comes first, and ends the check. Raises StorageError for a file that
    cannot be opened.
    """
    by_spark: Hazard | None = None
    counts: list[int] = []
    files = DataFiles(location, target, footers_only=True)
    files.expect(inputs)
    for add in inputs:
        with closing(files.open(add)) as file:
            found = file_hazard(file)
            counts.append(file.live_rows)
        if found is not None and found.engine is None:
            return found, counts
        by_spark = found if by_spark is None or (found and found.is_doubtful) else by_spark
    return by_spark, counts


def is_promising(inputs: Sequence[Add], *, location: Location, target: FileSchema) -> bool:
    """Whether a rewrite of the files can succeed, as far as their footers tell."""
    try:
        found, _ = hazards_of_footers(inputs, location=location, target=target)
    except MaintError:
        return False
    return found is None or (found.engine is not None and not found.is_doubtful)
