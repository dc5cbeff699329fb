"""Where checkpoints are opened and compared: on executors, or in this process for small logs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import pyarrow.compute as pc

from maint_assets.datasets.exchange import exchanged, in_waves
from maint_assets.datasets.rows import packed, told, units
from maint_assets.log_cleanup.anchor import Opened, opened
from maint_assets.log_cleanup.compared_rows import Reading, compared_rows
from maint_assets.log_cleanup.comparison import Differences, differences
from maint_assets.log_cleanup.log_directory import CHECKPOINT_KINDS
from maint_assets.snapshot.log import Checkpoint
from maint_assets.snapshot.replay import BUCKET_BYTES, SMALL_LOG_BYTES, shares

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from maint_assets.log_cleanup.comparison import Comparison
    from maint_assets.log_cleanup.hashes import Table
    from maint_assets.log_cleanup.log_directory import LogDirectory
    from maint_assets.storage.location import Location

_EXPANSION = 8
"""Approximate ratio of memory to Parquet size."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Executors, and a directory that they share for rows on their way."""

    spark: SparkSession
    parallelism: int
    scratch: str


class _Unopened(msgspec.Struct, frozen=True):
    """A checkpoint to open."""

    checkpoint: Checkpoint


def is_small(log: LogDirectory) -> bool:
    """Whether one process may compare checkpoints of a log."""
    kinds = ("commit", "sidecar", *CHECKPOINT_KINDS)
    return pc.sum(log.of(*kinds)["size"], min_count=0).as_py() <= SMALL_LOG_BYTES


def opened_each(
    location: Location, checkpoints: Collection[Checkpoint], cluster: Cluster | None
) -> list[Opened]:
    """What opening each complete checkpoint found, in their order; one task each."""
    if cluster is None or not checkpoints:
        return [opened(location, each) for each in checkpoints]

    def opens(some: list[_Unopened]) -> Iterator[pa.RecordBatch]:
        for each in some:
            yield told(opened(location, each.checkpoint))

    packages = [[_Unopened(each)] for each in checkpoints]
    found = units(cluster.spark, packages, opens, kind=_Unopened).values(Opened)
    by_checkpoint = {each.checkpoint: each for each in found}
    return [by_checkpoint[each] for each in checkpoints]


def compared(
    table: Table,
    read: Sequence[Reading],
    comparisons: Sequence[Comparison],
    *,
    cluster: Cluster | None,
) -> Differences:
    """The difference of each comparison between what log files hold.

    On a cluster rows are exchanged by file, and only counts come back.
    """
    if cluster is None:
        return differences(compared_rows(table, read), comparisons)
    spark, tasks = cluster.spark, cluster.parallelism
    buckets = in_waves(-(-sum(map(_weight, read)) // BUCKET_BYTES), tasks)
    packages = packed(_shared(read, tasks), tasks, weight=_weight) if buckets else [[*read]]
    met = units(spark, packages, partial(compared_rows, table), kind=Reading)
    if buckets:
        met = exchanged(spark, [met], by=["place"], buckets=buckets, scratch=cluster.scratch)
    counted = met.then(partial(_counted, comparisons)).values(Differences)
    return Differences.total(counted, len(comparisons))


def _counted(
    comparisons: Sequence[Comparison], rows: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    yield told(differences(rows, comparisons))


def _shared(read: Iterable[Reading], parallelism: int) -> list[Reading]:
    """Files divided among tasks as they are worth; the first share has what is not of files."""
    return [
        msgspec.structs.replace(each, unit=unit, others=each.others and not unit.share)
        for each in read
        for unit in shares(each.unit, parallelism)
    ]


def _weight(each: Reading) -> int:
    """About the bytes that a share of a file takes in memory."""
    held = each.unit.size // each.unit.shares
    return held * _EXPANSION if each.unit.path.endswith(".parquet") else held
