"""Where a row comes in the order of new files: its place on the curve as a number (O4.5).

A value counts by its range among those of a sample, which is taken once for all columns. Ranges
fill all bits whatever their number, so that a column of few values weighs as much as one of many.
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

_STEP = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Positions:
    """The order of rows by some columns; ``bounds`` are the first values of all ranges but one."""

    columns: tuple[Path, ...]
    bounds: tuple[pa.Array, ...]

    @classmethod
    def of(cls, sample: pa.Table, ordering: Ordering) -> Self:
        """The order that a sample of the rows gives: columns by physical name, structs whole."""
        most = 1 << _bits(len(ordering.columns))
        rows = sample.combine_chunks().to_batches()
        batch = rows[0] if rows else pa.RecordBatch.from_pylist([], sample.schema)
        bounds = [_bounds(comparable(batch, path), most - 1) for path in ordering.columns]
        return cls(ordering.columns, tuple(bounds))

    def of_rows(self, batch: pa.RecordBatch, ties: Keys) -> Keys:
        """The position of each row; ``ties`` put rows of one place on the curve in an order."""
        bits = _bits(len(self.columns))
        ranks = [
            _ranks(comparable(batch, path), bounds, bits)
            for path, bounds in zip(self.columns, self.bounds, strict=True)
        ]
        below = np.uint64(_BITS - bits * len(self.columns))
        keys = curve_keys(ranks, bits)
        return (keys << below) | (ties >> (np.uint64(_BITS) - below))


def splits(positions: Keys, ranges: int) -> Keys:
    """The first positions of all ranges but the first, each with as many rows of a sample."""
    if not len(positions):
        return np.zeros(ranges - 1, np.uint64)
    at = np.arange(1, ranges) * len(positions) // ranges
    return np.sort(positions)[at]


def mixed(seed: int, rows: NDArray[np.int64]) -> Keys:
    """A number a row of a file, spread over all 64 bits and always the same (splitmix64)."""
    found = (rows.astype(np.uint64) + np.uint64(seed)) * _STEP
    found = (found ^ (found >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return found ^ (found >> np.uint64(31))


def top_columns(schema: TableSchema, columns: Sequence[Path]) -> TableSchema:
    """The schema with no other data columns than those of the order, structs whole."""
    wanted = {path[0] for path in columns}
    fields = [each for each in schema.data.fields if each.physical_name in wanted]
    return type(schema)(Struct(tuple(fields)), ())


def key_columns(files: FileSchema, columns: Sequence[Path]) -> FileSchema:
    """What is read of the same files where only the columns of the order are."""
    return FileSchema.of(top_columns(files.table, columns), by_id=files.by_id)


def _bits(columns: int) -> int:
    """The bits of a rank: what is left of the 64 tells rows of one place apart."""
    return max(min(_MOST_BITS, _MOST_KEY_BITS // columns), 1)


def comparable(batch: pa.RecordBatch, path: Path) -> pa.Array:
    """The values of a column of the order, in a type that Arrow searches; decimals about."""
    values = leaf_column(batch, path)
    if values is None:
        return pa.nulls(batch.num_rows, pa.int64())
    return values.cast(pa.float64()) if pa.types.is_decimal(values.type) else values


def _bounds(values: pa.Array, most: int) -> pa.Array:
    """The first value of each of at most so many ranges but the first, from a sample."""
    known = values.drop_null()
    distinct = pc.unique(known)
    if len(distinct) <= most:
        found = distinct.take(pc.sort_indices(distinct))
    else:
        at = np.arange(most) * len(known) // most
        found = pc.unique(known.take(pc.sort_indices(known)).take(pa.array(at)))
    return found.slice(1)


def _ranks(values: pa.Array, bounds: pa.Array, bits: int) -> Keys:
    """The range of each value, 0 for nulls, stretched over all bits."""
    found = pc.search_sorted(bounds, values, side="right") if len(bounds) else _zeros(values)
    places = pc.add(pc.cast(found, pa.uint64()), pa.scalar(1, pa.uint64()))
    ranks = pc.fill_null(places, 0).to_numpy(zero_copy_only=False)
    return (ranks << np.uint64(bits)) // np.uint64(len(bounds) + 2)


def _zeros(values: pa.Array) -> pa.Array:
    return pc.if_else(pc.is_valid(values), pa.scalar(0, pa.uint64()), None)
