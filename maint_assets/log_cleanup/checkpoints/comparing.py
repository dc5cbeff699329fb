"""Open and compare checkpoints: on executors, or in this process for small logs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import pyarrow.compute as pc

from maint_assets.datasets.exchange import exchanged, in_waves
from maint_assets.datasets.rows import encode_result, task_groups, units
from maint_assets.log_cleanup.checkpoints.anchor import Opened, open_checkpoint
from maint_assets.log_cleanup.checkpoints.compared_rows import Reading, compared_rows
from maint_assets.log_cleanup.checkpoints.comparison import Differences, differences
from maint_assets.log_cleanup.log_directory import CHECKPOINT_KINDS
from maint_assets.snapshot.log import Checkpoint
from maint_assets.snapshot.replay import BUCKET_BYTES, SMALL_LOG_BYTES, file_shares

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from maint_assets.log_cleanup.checkpoints.comparison import Comparison
    from maint_assets.log_cleanup.checkpoints.hashes import Table
    from maint_assets.log_cleanup.log_directory import LogDirectory
    from maint_assets.storage.location import Location

_EXPANSION = 8
"""Approximate ratio of the size in memory to the size as Parquet."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Executors, and ``scratch``: a directory that they share, for exchanged rows."""

    spark: SparkSession
    parallelism: int
    scratch: str


class _Unopened(msgspec.Struct, frozen=True):
    """A checkpoint to open."""

    checkpoint: Checkpoint


def is_small(log: LogDirectory) -> bool:
    """Whether commits, checkpoints and sidecars of a log are small enough for one process."""
    kinds = ("commit", "sidecar", *CHECKPOINT_KINDS)
    return pc.sum(log.of(*kinds)["size"], min_count=0).as_py() <= SMALL_LOG_BYTES


def open_all(
    location: Location, checkpoints: Collection[Checkpoint], cluster: Cluster | None
) -> list[Opened]:
    """Open complete checkpoints, one task each; the results are in the given order."""
    if cluster is None or not checkpoints:
        return [open_checkpoint(location, each) for each in checkpoints]

    def opens(group: list[_Unopened]) -> Iterator[pa.RecordBatch]:
        for each in group:
            yield encode_result(open_checkpoint(location, each.checkpoint))

    groups = [[_Unopened(each)] for each in checkpoints]
    found = units(cluster.spark, groups, opens, kind=_Unopened).values(Opened)
    by_checkpoint = {each.checkpoint: each for each in found}
    return [by_checkpoint[each] for each in checkpoints]


def comparison_results(
    table: Table,
    read: Sequence[Reading],
    comparisons: Sequence[Comparison],
    *,
    cluster: Cluster | None,
) -> Differences:
    """Read the log files in ``read`` and return the difference of each comparison.

    On a cluster, rows are exchanged by the path of the data file, and only counts come back.
    """
    if cluster is None:
        return differences(compared_rows(table, read), comparisons)
    spark, tasks = cluster.spark, cluster.parallelism
    buckets = in_waves(-(-sum(map(_weight, read)) // BUCKET_BYTES), tasks)
    groups = task_groups(_shared(read, tasks), tasks, weight=_weight) if buckets else [[*read]]
    rows = units(spark, groups, partial(compared_rows, table), kind=Reading)
    if buckets:
        rows = exchanged(spark, [rows], by=["place"], buckets=buckets, scratch=cluster.scratch)
    counted = rows.then(partial(_counted, comparisons)).values(Differences)
    return Differences.total(counted, len(comparisons))


def _counted(
    comparisons: Sequence[Comparison], rows: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    yield encode_result(differences(rows, comparisons))


def _shared(read: Iterable[Reading], parallelism: int) -> list[Reading]:
    """Large files divided into shares; only the first share yields the actions not of files."""
    return [
        msgspec.structs.replace(each, unit=unit, others=each.others and not unit.share)
        for each in read
        for unit in file_shares(each.unit, parallelism)
    ]


def _weight(each: Reading) -> int:
    """Approximate bytes of a share of a log file in memory."""
    held = each.unit.size // each.unit.shares
    return held * _EXPANSION if each.unit.path.endswith(".parquet") else held
