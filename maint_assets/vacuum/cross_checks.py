"""Independent checks of a plan and a table.

They share no rule with the planning of a VACUUM: a defect there cannot hide itself here.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from maint_assets.datasets.columns import arrow_schema, column
from maint_assets.datasets.exchange import path_rows
from maint_assets.datasets.parts import slice_batches
from maint_assets.datasets.rows import slices
from maint_assets.storage import read
from maint_assets.storage.location import Location

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from maint_assets.datasets.parts import Part, PartSlice
    from maint_assets.datasets.rows import Rows

CHECKS_PER_TASK = 25_000
"""Paths checked per task: an existence check is a call to the storage."""

_COUNT_SCHEMA = T.StructType([column("count", "bigint")])
_PATHS_SCHEMA = T.StructType([column("path", "string"), column("planned", "boolean")])
_PATHS_ARROW = arrow_schema(_PATHS_SCHEMA)


def valid_in_plan(
    spark: SparkSession,
    plan: list[Part],
    valid_files: list[Part],
    *,
    parallelism: int,
    scratch: str,
) -> DataFrame:
    """Number of planned paths that are valid files, a row per task (column ``count``).

    Any number but 0 is a defect of the plan: nothing of it may be deleted.
    """
    read = [*slices(plan, "diff"), *slices(valid_files, "valid_files")]
    paths = path_rows(spark, read, _paths, parallelism=parallelism, scratch=scratch)
    return paths.then(_in_both).as_frame(_COUNT_SCHEMA)


def missing_files(valid_files: Rows, *, location: Location) -> DataFrame:
    """Number of active paths missing from the storage, a row per task (column ``count``)."""
    return valid_files.then(partial(_missing, location=location)).as_frame(_COUNT_SCHEMA)


def are_missing(paths: pa.Array, *, location: Location) -> pa.Array:
    """Mask of the paths that are not files on the storage; links are followed, as readers do."""
    there = read.are_files(location, paths.to_pylist())
    return pa.array([not each for each in there], pa.bool_())


def _missing(rows: Iterable[pa.RecordBatch], location: Location) -> Iterator[pa.RecordBatch]:
    gone = 0
    for batch in rows:
        active = batch["path"].filter(pc.starts_with(batch["reason"], "active"))
        gone += are_missing(active, location=location).true_count
    yield _count(gone)


def _paths(read: list[PartSlice]) -> Iterator[pa.RecordBatch]:
    for part in read:
        for batch in slice_batches(part, ["path"]):
            planned = pa.repeat(pa.scalar(part.source == "diff"), len(batch))
            yield pa.RecordBatch.from_arrays([batch["path"], planned], schema=_PATHS_ARROW)


def _in_both(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    paths = pa.Table.from_batches(rows, _PATHS_ARROW)
    planned, valid = (
        paths.filter(pc.equal(paths["planned"], each))["path"] for each in (True, False)
    )
    yield _count(pc.sum(pc.is_in(planned, value_set=valid.combine_chunks()), min_count=0).as_py())


def _count(count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"count": pa.array([count], pa.int64())})
