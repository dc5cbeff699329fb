"""Data skipping before and after a rewrite: how files overlap, how many files a predicate reads.

Computed over all live files from the statistics in the log, which is what readers skip files by
(PROTOCOL, "Per-file Statistics").
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from maint_assets.compaction.ordering.positions import comparable, key_columns, top_columns
from maint_assets.compaction.reading.data_files import DataFiles
from maint_assets.datasets.columns import arrow_schema, column
from maint_assets.datasets.exchange import exchanged
from maint_assets.datasets.rows import encode_result
from maint_assets.snapshot.whole.live_adds import live_adds
from maint_assets.snapshot.whole.typed_values import stats_type, typed_stats

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from maint_assets.compaction.writing.target import Rewriting
    from maint_assets.delta.actions import Add
    from maint_assets.snapshot.head import TableHead

LOOKUPS = 100
"""Example predicates of each kind per column."""

RANGE = 5
"""An example range reaches from one example value to the one this many values after it."""

_SAMPLED_FILES = 10
_BOUNDS = T.StructType([
    column("version", "bigint"),
    column("one", "bigint", "constant, so that all rows are shuffled to one task"),
    column("stats", "string", nullable=True),
])
_BOUNDS_ARROW = arrow_schema(_BOUNDS)

Path = tuple[str, ...]


class Skipping(msgspec.Struct, frozen=True):
    """Average data skipping by one column over ``files`` live files.

    ``overlaps`` is the number of other files whose bounds overlap those of a file, ``lookup`` the
    number of files read for an equality, ``range`` for a range. A file without bounds is always
    read.
    """

    files: int
    overlaps: float
    lookup: float
    range: float


class ColumnSkipping(msgspec.Struct, frozen=True):
    """Data skipping by a column before and after a rewrite."""

    name: str
    before: Skipping
    after: Skipping


class Versions(NamedTuple):
    """A table before and after its rewrite, and new files to sample example values from."""

    before: TableHead
    after: TableHead
    outputs: Sequence[Add]


def column_skipping(
    spark: SparkSession, versions: Versions, how: Rewriting, *, parallelism: int, scratch: str
) -> list[ColumnSkipping]:
    """Data skipping by each column of the order, computed in one task from all files' bounds."""
    rows = [
        each.then(partial(_bounds, version=head.version))
        for head in (versions.before, versions.after)
        for each in live_adds(spark, head, parallelism=parallelism, scratch=scratch)
    ]
    first, last = versions.before.version, versions.after.version
    step = max(len(versions.outputs) // _SAMPLED_FILES, 1)
    outputs = list(versions.outputs)[::step][:_SAMPLED_FILES]

    def answer(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        bounds = pa.Table.from_batches(batches, _BOUNDS_ARROW)
        before, after = (bounds.filter(pc.equal(bounds["version"], at)) for at in (first, last))
        found: list[ColumnSkipping] = []
        for name, path, examples in _examples(outputs, how):
            were, are = (
                _skipping(*_file_bounds(files, path, how), examples) for files in (before, after)
            )
            found.append(ColumnSkipping(name, were, are))
        yield encode_result(found)

    met = exchanged(spark, rows, by=["one"], buckets=1, scratch=scratch)
    (found,) = met.then(answer).values(list[ColumnSkipping])
    return found


def _bounds(adds: Iterable[pa.RecordBatch], *, version: int) -> Iterator[pa.RecordBatch]:
    for batch in adds:
        count = batch.num_rows
        same = pa.repeat(pa.scalar(version, pa.int64()), count), pa.array([0] * count, pa.int64())
        yield pa.RecordBatch.from_arrays(
            [*same, pc.struct_field(batch["add"], "stats")], schema=_BOUNDS_ARROW
        )


def _examples(outputs: Iterable[Add], how: Rewriting) -> Iterator[tuple[str, Path, pa.Array]]:
    """Name, path and LOOKUPS sorted example values of each column of the order."""
    if how.ordering is None:
        return
    columns = how.ordering.columns
    keys = key_columns(how.files, columns)
    files = DataFiles(how.location, keys)
    sample: list[pa.RecordBatch] = []
    for add in outputs:
        with closing(files.open(add)) as file:
            sample += next(([batch] for batch in file.rows()), [])
    rows = pa.Table.from_batches(sample, keys.arrow).combine_chunks().to_batches()
    for name, path in zip(how.ordering.shown, columns, strict=True):
        values = comparable(rows[0], path).drop_null() if rows else pa.array([])
        in_order = values.take(pc.sort_indices(values))
        at = np.arange(LOOKUPS) * len(values) // LOOKUPS if len(values) else np.zeros(0, np.int64)
        yield name, path, in_order.take(pa.array(at))


def _file_bounds(files: pa.Table, path: Path, how: Rewriting) -> tuple[pa.Array, pa.Array]:
    """Minimum and maximum of each file, null where unknown."""
    schema = top_columns(how.schema, [path])
    every = replace(
        how.properties, data_skipping_stats_columns=None, data_skipping_num_indexed_cols=-1
    )
    kind = stats_type(schema, every, tight_bounds=False)
    stats = typed_stats(files["stats"].combine_chunks(), kind)
    low, high = (_leaf(stats, name, path) for name in ("minValues", "maxValues"))
    # Timestamps are truncated to milliseconds in statistics, maxima included (PROTOCOL).
    if pa.types.is_timestamp(high.type):
        high = pc.add(high, pa.scalar(999, pa.duration("us")))
    return low, high


def _skipping(low: pa.Array, high: pa.Array, examples: pa.Array) -> Skipping:
    files, bounded = len(low), pc.and_(pc.is_valid(low), pc.is_valid(high))
    low, high = low.filter(bounded), high.filter(bounded)
    bounds = [each.take(pc.sort_indices(each)) for each in (low, high)]
    last = np.minimum(np.arange(len(examples)) + RANGE, max(len(examples) - 1, 0))
    further = examples.take(pa.array(last))
    unbounded = files - len(low)
    return Skipping(
        files,
        _mean(_reached(bounds, low, high) - 1),
        _mean(_reached(bounds, examples, examples) + unbounded),
        _mean(_reached(bounds, examples, further) + unbounded),
    )


def _reached(bounds: Sequence[pa.Array], first: pa.Array, last: pa.Array) -> np.ndarray:
    """How many files have bounds that overlap each range from ``first`` to ``last``."""
    starts, ends = bounds
    if not len(starts) or not len(first):
        return np.zeros(len(first), np.int64)
    begun = pc.search_sorted(starts, last.cast(starts.type), side="right").to_numpy()
    ended = pc.search_sorted(ends, first.cast(ends.type), side="left").to_numpy()
    return begun.astype(np.int64) - ended.astype(np.int64)


def _leaf(stats: pa.StructArray, name: str, path: Path) -> pa.Array:
    found = pc.struct_field(stats, [name, *path])
    return found.cast(pa.float64()) if pa.types.is_decimal(found.type) else found


def _mean(numbers: np.ndarray) -> float:
    return round(float(numbers.mean()), 2) if len(numbers) else 0.0
