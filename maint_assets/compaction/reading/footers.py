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
) -> list[tuple[Hazard | None, int]]:
    """The hazard of each file or None, and its live rows, from footers and deletion vectors.

    Raises StorageError for a file that cannot be opened.
    """
    found: list[tuple[Hazard | None, int]] = []
    files = DataFiles(location, target, footers_only=True)
    files.expect(inputs)
    for add in inputs:
        with closing(files.open(add)) as file:
            found.append((file_hazard(file), file.live_rows))
    return found


def is_promising(inputs: Sequence[Add], *, location: Location, target: FileSchema) -> bool:
    """Whether a rewrite of the files can succeed, as far as their footers tell.

    Files that no engine can rewrite are left out of a rewrite of several others.
    """
    try:
        found = hazards_of_footers(inputs, location=location, target=target)
    except MaintError:
        return False
    fit = [hazard for hazard, _ in found if hazard is None or hazard.engine is not None]
    is_doubtful = any(hazard is not None and hazard.is_doubtful for hazard in fit)
    return len(fit) >= min(len(found), 2) and not is_doubtful
