"""Parquet parts of a stage: executors write, count, hash and measure rows in one pass.

A part counts only once its task has finished and named it: the leftovers of a failed attempt are
never read.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import acero

from maint_assets.errors import StalePlanError, StorageError, one_line

ArrowFunction = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
Numbers = npt.NDArray[np.uint64]

PART_ROWS = 250_000
"""Rows per part. Later stages divide work by parts, so a task starts a new one after this many."""

BATCH_ROWS = 65_536

FIRST_ROWS = 25

_MIX = np.uint64(0x9E3779B97F4A7C15)
_NULL = np.uint64(0xD1B54A32D192ED03)
_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Measure:
    """An aggregate over rows or a filtered subset: count, or sum, max or min of a column.

    ``max`` and ``min`` over no rows are None.
    """

    how: Literal["count", "sum", "max", "min"]
    column: str = ""
    where: pc.Expression | None = None

    def of(self, rows: pa.Table, holds: pa.ChunkedArray | None) -> Any:
        """The measure over the rows where the mask ``holds``; over all rows without a mask."""
        if self.how == "count":
            return rows.num_rows if holds is None else pc.sum(holds, min_count=0).as_py()
        values = rows.column(self.column)
        if holds is not None:
            values = values.filter(holds)
        if self.how == "sum":
            return pc.sum(values, min_count=0).as_py()
        return pc.min_max(values)[self.how].as_py()

    def combine(self, one: Any, other: Any) -> Any:
        """Combine the values of two disjoint sets of rows."""
        if self.how in {"count", "sum"}:
            return one + other
        if one is None or other is None:
            return other if one is None else one
        return max(one, other) if self.how == "max" else min(one, other)


Measures = Mapping[str, Measure]


class Part(msgspec.Struct, frozen=True):
    """One Parquet file of rows. ``sums`` are its row-hash sums (``row_sums``), None if unknown."""

    path: str
    rows: int
    sums: list[int] | None = None


class PartSlice(msgspec.Struct, frozen=True):
    """A range of rows of a part. ``source`` names the stage that wrote it."""

    path: str
    source: str
    first: int
    rows: int


class Written(msgspec.Struct, frozen=True):
    """The result of a write: parts, order-independent row-hash sums, and values by measure.

    ``largest`` holds the FIRST_ROWS rows with the largest ``size``.
    """

    parts: list[Part]
    sums: list[int]
    measured: dict[str, Any]
    largest: list[dict[str, Any]]

    @property
    def rows(self) -> int:
        """The number of rows written."""
        return sum(part.rows for part in self.parts)

    def plus(self, other: Written, measures: Measures) -> Written:
        """Combine the results of two disjoint sets of rows."""
        return Written(
            [*self.parts, *other.parts],
            add_sums(self.sums, other.sums),
            {
                name: measure.combine(self.measured[name], other.measured[name])
                for name, measure in measures.items()
            },
            sorted((*self.largest, *other.largest), key=_size_and_path, reverse=True)[:FIRST_ROWS],
        )


@dataclass(frozen=True, slots=True)
class Target:
    """Where and how rows are written: directory, schema, measures, and a filter ``keep``.

    Rows that ``keep`` rejects are measured but neither written nor hashed.
    """

    directory: str
    schema: pa.Schema
    measures: Measures
    keep: pc.Expression | None = None

    def empty(self) -> Written:
        """The result for no rows: the identity of ``Written.plus``."""
        return Written([], [0, 0], evaluate_measures(self.schema.empty_table(), self.measures), [])

    def written(self, rows: Iterable[pa.RecordBatch]) -> Written:
        """Write the rows in parts of about PART_ROWS rows."""
        done, parts = self.empty(), _Parts(self.directory, self.schema)
        with closing(parts), ThreadPoolExecutor(1) as writer:
            for table in regrouped(rows):
                # Writing runs in a thread beside hashing and measuring the same rows.
                kept = table if self.keep is None else table.filter(self.keep)
                writing = writer.submit(parts.append, kept)
                sums, numbers = row_sums(kept), evaluate_measures(table, self.measures)
                share = Written([], sums, numbers, largest(kept))
                done = done.plus(share, self.measures)
                writing.result()
                parts.count(kept.num_rows, sums)
        return msgspec.structs.replace(done, parts=parts.closed)


@contextmanager
def as_storage_error(directory: Path | str) -> Generator[None, None, None]:
    """Raise OSErrors of a write (disk full, read-only) as StorageError."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            str(directory),
            f"the workspace cannot be written ({error.strerror or one_line(error)})",
            "make room, or allow writing",
        ) from error


def slice_batches(part: PartSlice, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Read the rows of a slice. Row groups outside it are skipped."""
    with pq.ParquetFile(part.path) as file:
        at = 0
        for group in range(file.metadata.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            first = max(part.first - at, 0)
            wanted = min(part.first + part.rows - at, rows) - first
            if wanted > 0:
                read = file.read_row_group(group, columns=columns).slice(first, wanted)
                yield from read.combine_chunks().to_batches()
            at += rows


def evaluate_measures(rows: pa.Table, measures: Measures) -> dict[str, Any]:
    """Evaluate the measures over some rows. All filters are computed in one pass."""
    filters = {name: each.where for name, each in measures.items() if each.where is not None}
    masks = pa.table({})
    if filters:
        options = acero.ProjectNodeOptions(list(filters.values()), list(filters))
        source = acero.Declaration("table_source", acero.TableSourceNodeOptions(rows))
        masks = acero.Declaration("project", options, [source]).to_table(use_threads=False)
    holds = {name: masks[name] if name in filters else None for name in measures}
    return {name: each.of(rows, holds[name]) for name, each in measures.items()}


def regrouped(
    rows: Iterable[pa.RecordBatch], *, most_rows: int = BATCH_ROWS, most_bytes: int | None = None
) -> Iterator[pa.Table]:
    """Regroup batches into non-empty tables of about ``most_rows`` rows or ``most_bytes``."""
    held: list[pa.RecordBatch] = []
    count = size = 0
    for batch in rows:
        if batch.num_rows:
            held.append(batch)
            count += batch.num_rows
            size += 0 if most_bytes is None else batch.nbytes
        if count >= most_rows or (most_bytes is not None and size >= most_bytes):
            yield pa.Table.from_batches(held).combine_chunks()
            held, count, size = [], 0, 0
    if held:
        yield pa.Table.from_batches(held).combine_chunks()


def largest(rows: pa.Table) -> list[dict[str, Any]]:
    """The FIRST_ROWS rows with the largest ``size``, largest first, then by path."""
    by = [("size", "descending"), ("path", "descending")]
    first = pc.select_k_unstable(rows, min(FIRST_ROWS, rows.num_rows), by)
    return rows.take(first).to_pylist()


def row_sums(table: pa.Table) -> list[int]:
    """Two sums of 64-bit row hashes, independent of the order and the grouping of rows."""
    rows = row_hashes(table)
    return [int(hashes.sum(dtype=np.uint64)) for hashes in (rows, _mixed(rows + _MIX))]


def add_sums(one: list[int], other: list[int]) -> list[int]:
    """Add the row-hash sums of two disjoint sets of rows."""
    return [(a + b) & _MASK for a, b in zip(one, other, strict=True)]


def columns_of(part: Part) -> tuple[str, ...] | None:
    """Column names of a part; None if it cannot be read."""
    try:
        return tuple(pq.read_schema(part.path).names)
    except (OSError, pa.ArrowException):
        return None


def refuse_changed(part: Part, *, table: str) -> None:
    """Raise StalePlanError if a part of a plan has changed. Holds one row group in memory."""
    try:
        with pq.ParquetFile(part.path) as file:
            groups = (file.read_row_group(at) for at in range(file.metadata.num_row_groups))
            rows, sums = 0, [0, 0]
            for group in groups:
                rows, sums = rows + group.num_rows, add_sums(sums, row_sums(group))
    except (OSError, pa.ArrowException) as error:
        found = f"{part.path} of the plan cannot be read ({one_line(error)})"
        raise StalePlanError(table, found, "plan again") from error
    if rows != part.rows or (part.sums is not None and sums != part.sums):
        found = f"{part.path} of the plan has changed since it was planned"
        raise StalePlanError(table, found, "plan again")


def row_hashes(table: pa.Table) -> Numbers:
    """A 64-bit hash of each row, the same on every machine."""
    rows = np.zeros(table.num_rows, np.uint64)
    for name, column in zip(table.column_names, table.columns, strict=True):
        if rows.size:
            # Multiplying and mixing per column makes the hash depend on the order of columns.
            hashes = _hashes(pa.concat_arrays(column.chunks), repeating=_is_repeating(name))
            rows = _mixed((rows ^ hashes) * _MIX)
    return rows


def text_hashes(texts: pa.Array) -> Numbers:
    """A 64-bit hash of each string."""
    values = texts.to_numpy(zero_copy_only=False)
    return pd.util.hash_array(values, categorize=False)  # pyright: ignore[reportAttributeAccessIssue]


class _Parts:
    """The parts that one task is writing."""

    def __init__(self, directory: str, schema: pa.Schema) -> None:
        self.closed: list[Part] = []
        self._directory, self._schema = Path(directory), schema
        self._writer: pq.ParquetWriter | None = None
        self._rows, self._sums, self._path = 0, [0, 0], ""

    def append(self, table: pa.Table) -> None:
        if not table.num_rows:
            return
        with as_storage_error(self._directory):
            if self._writer is None:
                self._writer = self._opened()
            self._writer.write_table(table)

    def count(self, rows: int, sums: list[int]) -> None:
        """Add the rows just appended to the part's totals."""
        self._rows, self._sums = self._rows + rows, add_sums(self._sums, sums)
        if self._rows >= PART_ROWS:
            self.close()

    def close(self) -> None:
        if self._writer is not None:
            with as_storage_error(self._directory):
                self._writer.close()
            self.closed.append(Part(self._path, self._rows, self._sums))
        self._writer, self._rows, self._sums = None, 0, [0, 0]

    def _opened(self) -> pq.ParquetWriter:
        self._directory.mkdir(parents=True, exist_ok=True)
        self._path = str(self._directory / f"part-{uuid.uuid4()}.parquet")
        repeating = [name for name in self._schema.names if _is_repeating(name)]
        return pq.ParquetWriter(
            self._path,
            self._schema,
            use_dictionary=repeating,  # pyright: ignore[reportArgumentType]
        )


def _size_and_path(row: dict[str, Any]) -> tuple[int, str]:
    return -1 if row["size"] is None else row["size"], row["path"] or ""


def _is_repeating(name: str) -> bool:
    """Whether to dictionary-encode a column: not paths, which rarely repeat."""
    return not name.endswith("path")


def _hashes(column: pa.Array, *, repeating: bool) -> Numbers:
    """A hash per value; strings by pandas; null has a hash of its own."""
    if not pa.types.is_string(column.type):
        numbers = pc.cast(column, pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        found = _mixed(numbers.astype(np.uint64) * _MIX)
    elif repeating:
        known = column.fill_null("").dictionary_encode()
        found = text_hashes(known.dictionary)[known.indices.to_numpy()]
    else:
        found = text_hashes(column.fill_null(""))
    return np.where(column.is_null().to_numpy(zero_copy_only=False), _NULL, found)


def _mixed(numbers: Numbers) -> Numbers:
    """Mix the bits of each number: the finaliser of splitmix64."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
