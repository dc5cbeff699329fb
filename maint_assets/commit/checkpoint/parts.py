"""The files of a new checkpoint: written to scratch by tasks, merged, and counted for checks."""

from __future__ import annotations

import uuid
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from maint_assets.datasets.leaves import bounded_leaves
from maint_assets.datasets.parts import as_storage_error, row_hashes
from maint_assets.datasets.rows import encode_result, units

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import SparkSession

    from maint_assets.datasets.rows import Rows
    from maint_assets.snapshot.checkpoint_shape import CheckpointShape

PART_ROWS = 50_000
"""Actions per sidecar, as in delta-spark."""

_BATCH_ROWS = 16_384
_MASK = (1 << 64) - 1


class Counts(msgspec.Struct, frozen=True):
    """Counts of a checkpoint file. ``paths`` is the sum of the hashes of all paths, modulo 2**64.

    Equal counts of what was written and what is read back show that no action was lost.
    """

    rows: int = 0
    adds: int = 0
    removes: int = 0
    live_bytes: int = 0
    paths: int = 0
    protocols: int = 0
    metadata: int = 0

    def __add__(self, other: Counts) -> Counts:
        both = zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True)
        return Counts(*((one + two) & _MASK for one, two in both))


class StatePart(msgspec.Struct, frozen=True):
    """One scratch file of adds and removes, with the counts of what was written."""

    path: str
    counts: Counts


def write_parts(rows: Iterable[Rows], shape: CheckpointShape, *, directory: str) -> list[StatePart]:
    """Write file actions (rows of FULL_ARROW) in the given shape, in the tasks that compute them.

    Each part has at most PART_ROWS rows and becomes one sidecar of a V2 checkpoint.
    """
    write = partial(_parts, schema=shape.schema, directory=directory, most=PART_ROWS)
    return [part for some in rows for part in some.then(shape.rows, write).values(StatePart)]


def merge_parts(
    spark: SparkSession,
    parts: Iterable[StatePart],
    others: list[dict[str, Any]],
    *,
    shape: CheckpointShape,
    directory: str,
) -> Path:
    """Merge all parts and the non-file actions into one local file, in one task."""
    target, schema = str(Path(directory) / f"{uuid.uuid4()}.parquet"), shape.classic_schema

    def join(some: list[StatePart]) -> Iterator[pa.RecordBatch]:
        with as_storage_error(directory):
            Path(directory).mkdir(parents=True, exist_ok=True)
            with _writer(target, schema) as writer:
                writer.write_table(pa.Table.from_pylist(others, schema))
                for batch in _batches(part.path for part in some):
                    writer.write_batch(_widened(batch, schema))
        yield encode_result(target)

    (made,) = units(spark, [list(parts)], join, kind=StatePart).values(str)
    return Path(made)


def read_counts(path: Path) -> Counts:
    """Read a checkpoint file back and count what it contains, in bounded memory."""
    with pq.ParquetFile(str(path)) as file:
        names = {"add": ("path", "size"), "remove": ("path",), "protocol": (), "metaData": ()}
        there = [name for name in names if name in file.schema_arrow.names]
        leaves = [
            f"{name}.{leaf}"
            for name in there
            for leaf in names[name] or [next(iter(file.schema_arrow.field(name).type)).name]
        ]
        total = Counts()
        for batch in file.iter_batches(columns=leaves, batch_size=_BATCH_ROWS):
            total += _counted(batch)
    return total


def _parts(
    rows: Iterable[pa.RecordBatch], *, schema: pa.Schema, directory: str, most: int
) -> Iterator[pa.RecordBatch]:
    """Write rows in parts of at most ``most`` rows; yields one row per part."""
    part: _Part | None = None
    with as_storage_error(directory):
        Path(directory).mkdir(parents=True, exist_ok=True)
    for batch in _sliced(rows, min(most, _BATCH_ROWS)):
        if part is not None and part.counts.rows + batch.num_rows > most:
            yield part.closed()
            part = None
        part = part or _Part(str(Path(directory) / f"{uuid.uuid4()}.parquet"), schema)
        with as_storage_error(directory):
            part.append(batch)
    if part is not None:
        yield part.closed()


def _sliced(rows: Iterable[pa.RecordBatch], most: int) -> Iterator[pa.RecordBatch]:
    for batch in rows:
        yield from (batch.slice(at, most) for at in range(0, batch.num_rows, most))


class _Part:
    """A part that is being written."""

    def __init__(self, path: str, schema: pa.Schema) -> None:
        self.counts = Counts()
        self._path, self._writer = path, _writer(path, schema)

    def append(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)
        self.counts += _counted(batch)

    def closed(self) -> pa.RecordBatch:
        with as_storage_error(self._path):
            self._writer.close()
        return encode_result(StatePart(self._path, self.counts))


def _writer(path: str, schema: pa.Schema) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        path,
        schema,
        compression="snappy",
        store_schema=False,
        # Footer statistics serve readers that filter on typed partition values and statistics.
        write_statistics=bounded_leaves(schema),  # pyright: ignore[reportArgumentType]
    )


def _batches(paths: Iterable[str]) -> Iterator[pa.RecordBatch]:
    for path in paths:
        with pq.ParquetFile(path) as file:
            yield from file.iter_batches(batch_size=_BATCH_ROWS)


def _widened(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    arrays = [
        batch[field.name] if field.name in batch.schema.names else pa.nulls(len(batch), field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _counted(batch: pa.RecordBatch) -> Counts:
    adds, removes = _values(batch, "add"), _values(batch, "remove")
    paths = [pc.struct_field(each, "path") for each in (adds, removes) if len(each)]
    sizes = pc.sum(pc.struct_field(adds, "size")).as_py() if len(adds) else 0
    return Counts(
        rows=batch.num_rows,
        adds=len(adds),
        removes=len(removes),
        live_bytes=sizes or 0,
        paths=sum(_path_sum(each) for each in paths) & _MASK,
        protocols=len(_values(batch, "protocol")),
        metadata=len(_values(batch, "metaData")),
    )


def _values(batch: pa.RecordBatch, name: str) -> pa.Array:
    return batch[name].drop_null() if name in batch.schema.names else pa.nulls(0)


def _path_sum(paths: pa.Array) -> int:
    return int(row_hashes(pa.table({"path": paths})).sum(dtype=np.uint64))
