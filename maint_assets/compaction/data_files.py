"""The rows of a data file as a rewrite writes them: live ones, in the columns of new files."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from maint_assets.compaction.constants import constant
from maint_assets.compaction.deleted_rows import deleted_rows
from maint_assets.compaction.inputs import data_path
from maint_assets.compaction.matching import MismatchError, matches, sources
from maint_assets.compaction.row_ids import RowIds
from maint_assets.errors import CorruptLogError, StorageError, one_line

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from numpy.typing import NDArray

    from maint_assets.compaction.matching import Match
    from maint_assets.compaction.physical import FileSchema
    from maint_assets.delta.actions import Add
    from maint_assets.storage.location import Location

_MOST_ROWS, _LEAST_ROWS = 65_536, 256
_PROBE_ROWS = 1024
_BATCH_BYTES = 16 * 1024 * 1024
_BUFFER_BYTES = 256 * 1024
"""What is read of a column at once: a row group is never held whole."""

_REMEDY = "restore it from a backup or a replica, or leave it out of the rewrite"


def data_file(location: Location, add: Add) -> pq.ParquetFile:
    """The open file of an add, to be closed by the caller; checksums of its pages are checked.

    Raises StorageError.
    """
    with _as_storage_error(location, add):
        return pq.ParquetFile(
            str(data_path(location, add.path)),
            pre_buffer=False,
            buffer_size=_BUFFER_BYTES,
            page_checksum_verification=True,
            # Nanoseconds, the default, wrap around for years before 1678 and after 2262.
            coerce_int96_timestamp_unit="us",
        )


def rows_of(location: Location, add: Add, target: FileSchema) -> Iterator[pa.RecordBatch]:
    """The live rows of a file in the columns of ``target.arrow``, in the order of the file.

    Columns that the file lacks are null: defaults of columns are never applied. Raises
    StorageError for a file that cannot be read as the table's, CorruptLogError for a deletion
    vector that is not what the log says.
    """
    with _as_storage_error(location, add), data_file(location, add) as file:
        plan = _Plan.of(file, add, target)
        deleted = _deleted(location, add, file.metadata.num_rows)
        start = 0
        for batch in batches(file, plan.columns):
            rows = _live(batch, start, deleted)
            start += batch.num_rows
            if rows.batch.num_rows:
                yield plan.rewritten(rows)
        if start != file.metadata.num_rows:
            raise MismatchError(f"it has {start} rows where its footer says otherwise")


class _Rows(NamedTuple):
    """Rows of a file that start at a physical index; ``live`` says which of them are left."""

    batch: pa.RecordBatch
    start: int
    live: NDArray[np.bool_] | None

    def indexes(self) -> NDArray[np.int64]:
        """The physical index of each row."""
        if self.live is None:
            return np.arange(self.start, self.start + self.batch.num_rows)
        return np.flatnonzero(self.live) + self.start


@dataclass(frozen=True, slots=True)
class _Plan:
    """What becomes of each batch of one file."""

    schema: pa.Schema
    data: tuple[Match, ...]
    constants: tuple[pa.Scalar, ...]
    row_ids: RowIds | None

    @classmethod
    def of(cls, file: pq.ParquetFile, add: Add, target: FileSchema) -> _Plan:
        columns, values = sources(file), add.partition_values
        names = target.row_tracking
        return cls(
            target.arrow,
            matches(columns, target),
            tuple(constant(each, values.get(each.physical_name)) for each in target.partitions),
            None if names is None else RowIds.of(add, columns, names),
        )

    @property
    def columns(self) -> list[str]:
        """The columns of the file to read."""
        read = [match.source for match in self.data]
        read += [] if self.row_ids is None else self.row_ids.columns
        return [name for name in read if name is not None]

    def rewritten(self, rows: _Rows) -> pa.RecordBatch:
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


def _deleted(location: Location, add: Add, num_rows: int) -> NDArray[np.uint64]:
    if add.deletion_vector is None:
        return np.array([], np.uint64)
    deleted = deleted_rows(location, add.deletion_vector)
    if len(deleted) and deleted[-1] >= num_rows:
        found = f"the deletion vector of {add.path} names row {deleted[-1]} of {num_rows}"
        raise CorruptLogError(location.uri, found, "restore the log from a backup or a replica")
    return deleted


def batches(file: pq.ParquetFile, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """All rows in order; as many at once as take a moderate number of bytes."""
    groups = [file.metadata.row_group(at) for at in range(file.metadata.num_row_groups)]
    widest = max((group.total_byte_size // max(group.num_rows, 1) for group in groups), default=0)
    rows = min(max(_BATCH_BYTES // max(widest, 1), _LEAST_ROWS), _MOST_ROWS)
    repeated = _repeated(file, columns)
    if repeated and file.metadata.num_rows > 4 * _PROBE_ROWS:
        some = next(file.iter_batches(_PROBE_ROWS, columns=repeated, use_threads=False))
        wide = some.nbytes // max(some.num_rows, 1)
        rows = min(max(_BATCH_BYTES // max(wide, 1), _LEAST_ROWS), rows)
    # One thread a file: the tasks of Spark are what runs at once.
    return file.iter_batches(rows, columns=columns, use_threads=False)


def _repeated(file: pq.ParquetFile, columns: list[str]) -> list[str]:
    """The columns whose values may take little room in the file and much in memory."""
    leaves = (file.schema.column(at) for at in range(len(file.schema)))
    found = {leaf.path.partition(".")[0] for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"}
    return [name for name in columns if name in found]


def _live(batch: pa.RecordBatch, start: int, deleted: NDArray[np.uint64]) -> _Rows:
    """The rows of a batch that the vector leaves."""
    ends = np.array([start, start + batch.num_rows], np.uint64)
    first, last = np.searchsorted(deleted, ends)
    if first == last:
        return _Rows(batch, start, None)
    live = np.ones(batch.num_rows, np.bool_)
    live[deleted[first:last] - ends[0]] = False
    return _Rows(batch.filter(pa.array(live)), start, live)


@contextmanager
def _as_storage_error(location: Location, add: Add) -> Generator[None, None, None]:
    try:
        yield
    except FileNotFoundError as error:
        raise StorageError(location.uri, f"data file {add.path} is missing", _REMEDY) from error
    except (OSError, pa.ArrowException, MismatchError) as error:
        found = f"data file {add.path} cannot be rewritten: {one_line(error)}"
        raise StorageError(location.uri, found, _REMEDY) from error
