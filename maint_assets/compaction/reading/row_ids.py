"""Row ids and row commit versions that rewritten rows keep (PROTOCOL, "Row Tracking")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from maint_assets.compaction.reading.matching import MismatchError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray
    from typing_extensions import Self

    from maint_assets.compaction.reading.matching import Source
    from maint_assets.delta.actions import Add


_UNTRACKED = "it has rows without a row id or version, though the table tracks its rows"


@dataclass(frozen=True, slots=True)
class RowIds:
    """The sources of row ids and row commit versions of one file.

    ``columns`` are the materialised columns of the file, None for one that it lacks.
    """

    columns: tuple[str | None, str | None]
    base_row_id: int | None
    default_version: int | None

    @classmethod
    def of(cls, add: Add, columns: Sequence[Source], names: tuple[str, str]) -> Self:
        """The row ids of a file, materialised in these columns or not. Raises MismatchError."""
        row_id, version = (_name(columns, name) for name in names)
        found = cls((row_id, version), add.base_row_id, add.default_row_commit_version)
        if (row_id is None and found.base_row_id is None) or (
            version is None and found.default_version is None
        ):
            raise MismatchError(_UNTRACKED)
        return found

    def arrays(self, batch: pa.RecordBatch, indexes: NDArray[np.int64]) -> list[pa.Array]:
        """Row ids and commit versions of the rows with these physical indexes.

        Materialised values come first, then the defaults of the add. Raises MismatchError for a row
        without either.
        """
        ids = None if self.base_row_id is None else pa.array(indexes + self.base_row_id, pa.int64())
        versions = (
            None
            if self.default_version is None
            else pa.repeat(pa.scalar(self.default_version, pa.int64()), len(indexes))
        )
        row_id, version = (None if each is None else batch.column(each) for each in self.columns)
        return [_filled(row_id, ids), _filled(version, versions)]


def _filled(kept: pa.Array | None, defaults: pa.Array | None) -> pa.Array:
    if defaults is None and (kept is None or kept.null_count):
        raise MismatchError(_UNTRACKED)
    if kept is None or defaults is None:
        return defaults if kept is None else kept
    return pc.coalesce(kept, defaults) if kept.null_count else kept


def _name(columns: Sequence[Source], name: str) -> str | None:
    found = [column for column in columns if column.name == name]
    if not found:
        return None
    if len(found) > 1 or found[0].type != pa.int64():
        raise MismatchError(f"column {name} of row tracking is not one column of int64")
    return name
