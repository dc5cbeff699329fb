"""Write a data file: rows are buffered until they make a row group."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from maint_assets.compaction.reading.dictionaries import column_bytes, held_bytes, with_dictionaries
from maint_assets.datasets.leaves import (
    bounded_leaves,
    is_floating,
    leaf_values,
    leaves,
    shared_paths,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from collections.abc import Set as AbstractSet
    from concurrent.futures import Future

    from typing_extensions import Self

    from maint_assets.compaction.writing.target import Rewriting

ROW_GROUP_BYTES = 64 * 1024 * 1024
"""Bytes in memory of a row group, about."""

ROW_GROUP_ROWS = 1_000_000

_LEAST_BATCH_ROWS, _MOST_BATCH_ROWS = 1024, 16_384
_BATCH_BYTES = 512 * 1024
"""Bytes of a column that are encoded at once: half a page."""

_INTEGERS = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}

_SAMPLE_ROWS = 4096
_MOST_DISTINCT = 0.97
"""Share of distinct values above which a dictionary costs time and saves nothing."""


class NewFile:
    """A new data file and its statistics.

    A row group is written while the next one is gathered, so that two are in memory. As a context
    manager its exit writes the footer, unless there was an error. The columns of ``dictionaries``
    arrive as dictionary arrays and are written as such. Leaves in ``plain`` get no dictionary.

    A leaf in ``late`` at exit has a dictionary, and a -0.0 after the first row group: then the
    file is unusable, and has to be written again with these leaves plain.
    """

    def __init__(
        self,
        sink: BinaryIO | pa.NativeFile,
        how: Rewriting,
        *,
        dictionaries: Sequence[str] = (),
        plain: AbstractSet[str] = frozenset(),
    ) -> None:
        self.statistics = how.statistics()
        self.late: set[str] = set()
        self._plain, self._looked_up = plain, set[str]()
        self._sink, self._how = sink, how
        self._schema = with_dictionaries(how.files.arrow, dictionaries)
        self._file: pq.ParquetWriter | None = None
        self._held: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0
        self._thread = ThreadPoolExecutor(1)
        self._writing: Future[None] | None = None

    def append(self, batch: pa.RecordBatch) -> None:
        """Add rows in the columns of new files. Raises the error of an earlier write."""
        self._held.append(batch)
        self._rows += batch.num_rows
        self._bytes += held_bytes(batch)
        if self._bytes >= ROW_GROUP_BYTES or self._rows >= ROW_GROUP_ROWS:
            self._written()
            self._writing = self._thread.submit(self._write, self._row_group())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self._thread.shutdown()
            if kind is None:
                self._written()
                self._write(self._row_group())
        finally:
            if self._file is not None:
                self._file.close()

    def _row_group(self) -> pa.Table:
        held, self._held, self._rows, self._bytes = self._held, [], 0, 0
        return pa.Table.from_batches(held, self._schema).combine_chunks()

    def _written(self) -> None:
        """Wait for the row group that is being written."""
        if self._writing is not None:
            self._writing.result()

    def _write(self, group: pa.Table) -> None:
        if self._file is None:
            self._looked_up = _dictionary_leaves(group, self._plain)
            self._file = _writer(self._sink, group, self._how, dictionaries=self._looked_up)
        else:
            self.late |= _with_negative_zeros(group, self._looked_up - self.late)
        if group.num_rows and not self.late:
            for batch in group.to_batches():
                self.statistics.add(batch)
            self._file.write_table(group, row_group_size=group.num_rows)


def _writer(
    sink: BinaryIO | pa.NativeFile,
    first: pa.Table,
    how: Rewriting,
    *,
    dictionaries: AbstractSet[str],
) -> pq.ParquetWriter:
    """The Parquet writer, configured by the first rows; leaves in ``dictionaries`` get one."""
    return pq.ParquetWriter(
        sink,
        first.schema,
        compression=how.codec,
        store_schema=False,
        store_decimal_as_integer=True,
        write_page_checksum=True,
        write_batch_size=_batch_rows(first),
        use_dictionary=sorted(dictionaries),  # pyright: ignore[reportArgumentType]
        write_statistics=bounded_leaves(first.schema),  # pyright: ignore[reportArgumentType]
    )


def _batch_rows(rows: pa.Table) -> int:
    """How many values of a column are encoded at once, from the widest column of the first rows.

    Each time costs a pass for the bounds, through the dictionary if there is one; pages end
    only between two times, so that too many values make them too large.
    """
    widest = max((sum(map(column_bytes, each.chunks)) for each in rows.columns), default=0)
    width = widest / max(rows.num_rows, 1)
    return min(max(int(_BATCH_BYTES / max(width, 1)), _LEAST_BATCH_ROWS), _MOST_BATCH_ROWS)


def _dictionary_leaves(rows: pa.Table, plain: AbstractSet[str]) -> set[str]:
    """The paths of leaves to write with dictionaries, chosen by the first rows.

    None with a -0.0: Spark looks 0.0 up in a dictionary bit by bit, and then skips the row group
    although both zeros are equal. None whose path is ambiguous.
    """
    every = {path for column in _repeating(rows) for path, _ in leaves(column)}
    every -= plain | shared_paths(rows.schema)
    return every - _with_negative_zeros(rows, every)


def _with_negative_zeros(rows: pa.Table, paths: AbstractSet[str]) -> set[str]:
    """The leaves that contain a -0.0."""
    return {
        path
        for column in rows.schema
        if any(path in paths and is_floating(kind) for path, kind in leaves(column))
        for chunk in rows.column(column.name).chunks
        for (path, kind), values in zip(leaves(column), leaf_values(chunk), strict=True)
        if path in paths and is_floating(kind) and _has_negative_zero(values)
    }


def _has_negative_zero(values: pa.Array) -> bool:
    """Whether a value has the bits of -0.0, which are those of the least integer of its width."""
    bits = values.type.bit_width
    least = pc.min(values.view(_INTEGERS[bits])).as_py()
    return least == -(1 << (bits - 1))


def _repeating(rows: pa.Table) -> Iterator[pa.Field]:
    """The columns that a dictionary makes smaller, estimated from the first rows."""
    some = rows.slice(0, _SAMPLE_ROWS)
    for column in rows.schema:
        if pa.types.is_dictionary(column.type):
            yield column
            continue
        values = some.column(column.name)
        try:
            distinct = pc.count_distinct(values).as_py()
        except pa.ArrowNotImplementedError:  # values of several parts
            yield column
            continue
        if distinct <= _MOST_DISTINCT * (len(values) - values.null_count):
            yield column
