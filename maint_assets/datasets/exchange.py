"""A hash shuffle through Arrow files, so that no row passes through the JVM.

Each task of the first job writes one file per bucket; each task of the second job reads one bucket.
Only files named by a task that finished are read, so the leftovers of a failed attempt are ignored.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import types as T

from maint_assets.datasets.columns import arrow_schema, batch_of, column
from maint_assets.datasets.parts import PartSlice, as_storage_error, regrouped, row_hashes
from maint_assets.datasets.rows import task_groups, units

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from maint_assets.datasets.parts import ArrowFunction
    from maint_assets.datasets.rows import Rows

_FILES = T.StructType([column("bucket", "bigint"), column("path", "string")])
_FILES_ARROW = arrow_schema(_FILES)


BUCKET_ROWS = 500_000
"""Rows per bucket, about. Up to this many rows in all run in one task, without a shuffle."""


MOST_BUCKETS = 512
"""The most buckets, since a task keeps one file per bucket open."""


class _Bucket(msgspec.Struct, frozen=True):
    """The files of one bucket."""

    paths: list[str]


def path_rows(
    spark: SparkSession,
    read: Sequence[PartSlice],
    function: Callable[[list[PartSlice]], Iterator[pa.RecordBatch]],
    *,
    parallelism: int,
    scratch: str,
) -> Rows:
    """Apply ``function`` to slices of parts, then bring all rows of one ``path`` into one task.

    Up to BUCKET_ROWS input rows run in a single task; more are shuffled through ``scratch``.
    """
    buckets = -(-sum(part.rows for part in read) // BUCKET_ROWS)
    groups = task_groups(read, 1 if buckets <= 1 else parallelism, weight=lambda part: part.rows)
    made = units(spark, groups, function, kind=PartSlice)
    if buckets <= 1:
        return made
    return exchanged(
        spark, [made], by=["path"], buckets=in_waves(buckets, parallelism), scratch=scratch
    )


def exchanged(
    spark: SparkSession, rows: Iterable[Rows], *, by: Sequence[str], buckets: int, scratch: str
) -> Rows:
    """Shuffle rows by the columns ``by`` into at most ``buckets`` tasks.

    The first job runs immediately; its files stay in ``scratch`` until the caller removes it.
    """
    found: dict[int, list[str]] = defaultdict(list)
    divide = _divided(scratch, list(by), buckets)
    for some in rows:
        for row in some.then(divide).as_frame(_FILES).collect():
            found[row["bucket"]].append(row["path"])

    def read(some: list[_Bucket]) -> Iterator[pa.RecordBatch]:
        for bucket in some:
            for path in bucket.paths:
                with pa.OSFile(path) as file, pa.ipc.open_stream(file) as stream:
                    yield from stream

    return units(spark, [[_Bucket(paths)] for paths in found.values()], read, kind=_Bucket)


def in_waves(buckets: int, parallelism: int) -> int:
    """Round up to a multiple of the parallelism, so that no core idles; at most MOST_BUCKETS."""
    return min(-(-buckets // parallelism) * parallelism, MOST_BUCKETS)


def _divided(scratch: str, by: list[str], buckets: int) -> ArrowFunction:
    """Return the function that writes rows to bucket files and yields one row per file."""

    def divide(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = _Files(scratch)
        try:
            for table in regrouped(rows):
                # The hash does not depend on the task, so equal keys of all tasks meet.
                bucket = (row_hashes(table.select(by)) % np.uint64(buckets)).astype(np.int64)
                order = np.argsort(bucket, kind="stable")
                ends = np.searchsorted(bucket[order], np.arange(buckets + 1))
                in_order = table.take(order)
                for number, (first, end) in enumerate(pairwise(ends.tolist())):
                    files.write(number, in_order.slice(first, end - first))
        finally:
            files.close()
        yield batch_of(files.paths.items(), _FILES_ARROW)

    return divide


class _Files:
    """The bucket files of one task, opened on first use."""

    def __init__(self, directory: str) -> None:
        self.paths: dict[int, str] = {}
        self._directory = Path(directory)
        self._writers: dict[int, pa.ipc.RecordBatchStreamWriter] = {}

    def write(self, bucket: int, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        with as_storage_error(self._directory):
            if bucket not in self._writers:
                self._open(bucket, rows.schema)
            self._writers[bucket].write_table(rows)

    def _open(self, bucket: int, schema: pa.Schema) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        path = str(self._directory / f"{bucket}-{uuid.uuid4()}.arrows")
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        self._writers[bucket] = pa.ipc.new_stream(path, schema, options=options)
        self.paths[bucket] = path

    def close(self) -> None:
        with as_storage_error(self._directory):
            for writer in self._writers.values():
                writer.close()
