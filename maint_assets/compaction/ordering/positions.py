"""The position of a row in the order of a bin: the key of its point on the curve.

The rank of a value is the number of its range; the ranges of each column are quantiles of one
sample of the rows. Ranks are stretched over all bits, so that a column with few distinct values
weighs as much as one with many.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from maint_assets.compaction.columns.physical import FileSchema
from maint_assets.compaction.columns.statistics import leaf_column
from maint_assets.compaction.ordering.curve import curve_keys
from maint_assets.delta.schema import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from typing_extensions import Self

    from maint_assets.compaction.ordering.curve import Keys
    from maint_assets.compaction.ordering.order import Ordering
    from maint_assets.delta.schema import TableSchema

    Path = tuple[str, ...]

_MOST_BITS, _MOST_KEY_BITS, _BITS = 14, 48, 64

MOST_COLUMNS = _MOST_KEY_BITS // 2
"""The most columns that count: a rank of one bit would only tell nulls from values."""

_STEP = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Positions:
    """The order of rows by some columns.

    ``bounds`` has, for each column, the least value of each range but the first.
    """

    columns: tuple[Path, ...]
    bounds: tuple[pa.Array, ...]

    @classmethod
    def of(cls, sample: pa.Table, ordering: Ordering) -> Self:
        """The order that results from a sample: columns by physical name, structs unflattened.

        Columns after the first MOST_COLUMNS do not count: no file would have fewer of their values.
        """
        columns = ordering.columns[:MOST_COLUMNS]
        most = 1 << _bits(len(columns))
        rows = sample.combine_chunks().to_batches()
        batch = rows[0] if rows else pa.RecordBatch.from_pylist([], sample.schema)
        bounds = [_bounds(comparable(batch, path), most - 1) for path in columns]
        return cls(columns, tuple(bounds))

    def of_rows(self, batch: pa.RecordBatch, ties: Keys) -> Keys:
        """The position of each row; ``ties`` order the rows that share a key."""
        bits = _bits(len(self.columns))
        ranks = [
            _ranks(comparable(batch, path), bounds, bits)
            for path, bounds in zip(self.columns, self.bounds, strict=True)
        ]
        below = np.uint64(_BITS - bits * len(self.columns))
        keys = curve_keys(ranks, bits)
        return (keys << below) | (ties >> (np.uint64(_BITS) - below))


def splits(positions: Keys, ranges: int) -> Keys:
    """Divide sampled positions into ``ranges`` of equal counts: the least of each but the first."""
    if not len(positions):
        return np.zeros(ranges - 1, np.uint64)
    at = np.arange(1, ranges) * len(positions) // ranges
    return np.sort(positions)[at]


def mixed(seed: int, rows: NDArray[np.int64]) -> Keys:
    """A reproducible 64-bit number for each row index of a file (splitmix64 seeded by ``seed``)."""
    found = (rows.astype(np.uint64) + np.uint64(seed)) * _STEP
    found = (found ^ (found >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return found ^ (found >> np.uint64(31))


def top_columns(schema: TableSchema, columns: Sequence[Path]) -> TableSchema:
    """The schema cut down to the data columns of the order; structs are kept whole."""
    wanted = {path[0] for path in columns}
    fields = [each for each in schema.data.fields if each.physical_name in wanted]
    return type(schema)(Struct(tuple(fields)), ())


def key_columns(files: FileSchema, columns: Sequence[Path]) -> FileSchema:
    """The file schema cut down to the columns of the order."""
    return FileSchema.of(top_columns(files.table, columns), by_id=files.by_id)


def _bits(columns: int) -> int:
    """The bits of a rank. The remaining bits of the 64 order the rows that share a key."""
    return min(_MOST_BITS, _MOST_KEY_BITS // columns)


def comparable(batch: pa.RecordBatch, path: Path) -> pa.Array:
    """The values of an order column in a type that ``search_sorted`` accepts.

    Decimals become doubles: approximate, which only moves a row within the order.
    """
    values = leaf_column(batch, path)
    if values is None:
        return pa.nulls(batch.num_rows, pa.int64())
    return values.cast(pa.float64()) if pa.types.is_decimal(values.type) else values


def _bounds(values: pa.Array, most: int) -> pa.Array:
    """The least value of each quantile range but the first; at most ``most`` of them."""
    known = values.drop_null()
    distinct = pc.unique(known)
    if len(distinct) <= most:
        found = distinct.take(pc.sort_indices(distinct))
    else:
        at = np.arange(most) * len(known) // most
        found = pc.unique(known.take(pc.sort_indices(known)).take(pa.array(at)))
    return found.slice(1)


def _ranks(values: pa.Array, bounds: pa.Array, bits: int) -> Keys:
    """The number of the range of each value, nulls first, stretched over ``bits`` bits."""
    found = pc.search_sorted(bounds, values, side="right") if len(bounds) else _zeros(values)
    places = pc.add(pc.cast(found, pa.uint64()), pa.scalar(1, pa.uint64()))
    ranks = pc.fill_null(places, 0).to_numpy(zero_copy_only=False)
    return (ranks << np.uint64(bits)) // np.uint64(len(bounds) + 2)


def _zeros(values: pa.Array) -> pa.Array:
    return pc.if_else(pc.is_valid(values), pa.scalar(0, pa.uint64()), None)
