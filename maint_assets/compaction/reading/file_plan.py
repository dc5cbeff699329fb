"""How rows of a data file become rows of new files: derived once for all files alike."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from maint_assets.compaction.reading.dictionaries import with_dictionaries
from maint_assets.compaction.reading.hazards import Hazard, hazard
from maint_assets.compaction.reading.matching import matches, sources
from maint_assets.compaction.reading.partition_constants import constant
from maint_assets.compaction.reading.row_ids import RowIds

if TYPE_CHECKING:
    import pyarrow.parquet as pq
    from numpy.typing import NDArray

    from maint_assets.compaction.columns.physical import FileSchema
    from maint_assets.compaction.reading.matching import Match, Source
    from maint_assets.delta.actions import Add


@dataclass(frozen=True)
class FileKind:
    """What is derived from a footer, and holds for all files with the same schema.

    ``dictionaries`` are the columns read as dictionary arrays, named as in ``target.arrow``.
    """

    parquet: pq.ParquetSchema
    arrow: pa.Schema
    footer: dict[bytes, bytes] | None
    untracked: tuple[bool, bool]
    values: dict[str, str | None]
    hazard: Hazard | None
    target: FileSchema
    columns: tuple[Source, ...]
    dictionaries: tuple[str, ...]

    @classmethod
    def of(
        cls,
        file: pq.ParquetFile,
        add: Add,
        target: FileSchema,
        *,
        dictionaries: tuple[str, ...] = (),
    ) -> FileKind:
        """The kind of an open file of the table."""
        return cls(
            parquet=file.schema,
            arrow=file.schema_arrow,
            footer=file.metadata.metadata,
            untracked=_untracked(add),
            values=add.partition_values,
            hazard=hazard(file, add, target),
            target=target,
            columns=sources(file),
            dictionaries=dictionaries,
        )

    def is_of(self, file: pq.ParquetFile, add: Add) -> bool:
        """Whether a file is of this kind."""
        return (
            add.partition_values == self.values
            and _untracked(add) == self.untracked
            and file.schema.equals(self.parquet)
            # Only this one has the field ids of structs.
            and file.schema_arrow.equals(self.arrow, check_metadata=True)
            and file.metadata.metadata == self.footer
        )

    @cached_property
    def matches(self) -> tuple[Match, ...]:
        """The matches for the data columns of new files. Raises MismatchError for hazards too."""
        return tuple(
            match.as_dictionary() if match.source in self.dictionaries else match
            for match in matches(self.columns, self.target)
        )

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of its rows: ``target.arrow``, some columns as dictionaries."""
        return with_dictionaries(self.target.arrow, self.dictionaries)

    @cached_property
    def constants(self) -> tuple[pa.Scalar, ...]:
        """The partition values for new files. Raises MismatchError, also for a hazard."""
        found = self.target.partitions
        return tuple(constant(each, self.values.get(each.physical_name)) for each in found)

    def plan(self, add: Add) -> RowPlan:
        """The row plan for a file of this kind. Raises MismatchError."""
        names = self.target.row_tracking
        row_ids = None if names is None else RowIds.of(add, self.columns, names)
        return RowPlan(self.schema, self.matches, self.constants, row_ids)


class Rows(NamedTuple):
    """Rows of a file from a physical index on; ``live`` is the mask of those not deleted."""

    batch: pa.RecordBatch
    start: int
    live: NDArray[np.bool_] | None

    def indexes(self) -> NDArray[np.int64]:
        """The physical index of each row."""
        if self.live is None:
            return np.arange(self.start, self.start + self.batch.num_rows)
        return np.flatnonzero(self.live) + self.start


@dataclass(frozen=True, slots=True)
class RowPlan:
    """How each batch of one file is turned into rows of new files."""

    schema: pa.Schema
    data: tuple[Match, ...]
    constants: tuple[pa.Scalar, ...]
    row_ids: RowIds | None

    @property
    def columns(self) -> list[str]:
        """The columns of the file to read."""
        read = [match.source for match in self.data]
        read += [] if self.row_ids is None else self.row_ids.columns
        return [name for name in read if name is not None]

    def rewritten(self, rows: Rows) -> pa.RecordBatch:
        """The rows in the columns of new files."""
        count = rows.batch.num_rows
        arrays = [
            pa.nulls(count, match.target.type)
            if match.source is None
            else match.cast(rows.batch.column(match.source))
            for match in self.data
        ]
        arrays += [pa.repeat(value, count) for value in self.constants]
        if self.row_ids is not None:
            arrays += self.row_ids.arrays(rows.batch, rows.indexes())
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _untracked(add: Add) -> tuple[bool, bool]:
    return add.base_row_id is None, add.default_row_commit_version is None
