"""The state of a version as rows: the checkpoint streamed once, the newest action of each key.

Reconciliation follows logs.md 7 and 16.3: keys are (path, deletion-vector id); hash aggregates
on fixed-width values; no window and no sort over all actions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from pyspark.sql import functions as F

from maint_assets.snapshot.file_actions import LogUnit, LogUnits, read_units
from maint_assets.snapshot.schemas import ACTION_SCHEMA, SNAPSHOT_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from maint_assets.snapshot.head import TableHead

SMALL_LOG_BYTES = 16 * 1024 * 1024
"""Up to this many bytes of log one task replays everything, without a shuffle."""

BROADCAST_TAIL_BYTES = 64 * 1024 * 1024
"""Up to this many bytes of commits after the checkpoint their keys go to every executor."""

_KEY = ("is_commit", "log_key", "dv_id", "path", "inside", "dv_path", "operation")


def snapshot(spark: SparkSession, head: TableHead, *, parallelism: int) -> DataFrame:
    """Live adds, known tombstones and commits at the head's version: SNAPSHOT_SCHEMA.

    Tombstones come from the checkpoint and from every readable commit, the ones before the
    checkpoint included, whatever their age. Executors raise marked CorruptLogError and
    LogGapError, see ``errors.of_text``.
    """
    commits = _commit_units(head)
    checkpoint = _checkpoint_units(head)
    base = -1 if head.segment.checkpoint is None else head.segment.checkpoint.version
    if sum(unit.size for unit in (*commits, *checkpoint)) <= SMALL_LOG_BYTES:
        everything = _read(spark, head, (*checkpoint, *commits), tasks=1)
        return everything.coalesce(1).transform(newest_actions, max(base, 0)).transform(state)
    tail = [unit for unit in commits if unit.version > base]
    removes = [msgspec.structs.replace(unit, adds=False) for unit in checkpoint]
    adds = [msgspec.structs.replace(unit, removes=False) for unit in checkpoint]
    winners = _read(spark, head, (*commits, *removes), tasks=parallelism).transform(
        newest_actions, base + 1
    )
    if not adds:
        return winners.transform(state)
    streamed = _read(spark, head, adds, tasks=parallelism)
    if tail:
        named = _read(spark, head, tail, tasks=parallelism).where("not is_commit")
        keys = named.select("log_key", "dv_id").distinct()
        if sum(unit.size for unit in tail) <= BROADCAST_TAIL_BYTES:
            keys = F.broadcast(keys)
        streamed = streamed.join(keys, on=["log_key", "dv_id"], how="left_anti")
    return winners.transform(state).unionByName(streamed.transform(state))


def newest_actions(actions: DataFrame, adds_from: int) -> DataFrame:
    """The newest action of each key; live adds of versions below ``adds_from`` are left out.

    The checkpoint alone says which of those are still live.
    """
    newest = actions.groupBy(*_KEY).agg(
        *(
            F.max(name).alias(name)
            for name in ("ord", "version", "size", "modified_ms", "deletion_ms", "commit_ms")
        )
    )
    superseded = (F.col("ord") % 2 == 1) & (F.col("ord") < 2 * adds_from)
    return newest.where(F.col("is_commit") | ~superseded)


def state(actions: DataFrame) -> DataFrame:
    """Actions in the shape of the snapshot."""
    is_add = F.col("ord") % 2 == 1
    action = F.when(F.col("is_commit"), "commit").when(is_add, "add").otherwise("remove")
    return actions.withColumns({
        "action": action,
        "log_path": F.when(~F.col("is_commit"), F.col("log_key")),
        "version": F.when(~is_add, F.col("version")),
        "modified_ms": F.when(is_add, F.col("modified_ms")),
        "deletion_ms": F.when(~is_add, F.col("deletion_ms")),
    }).select(*SNAPSHOT_SCHEMA.names)


def _commit_units(head: TableHead) -> tuple[LogUnit, ...]:
    segment, properties = head.segment, head.properties
    ict_from = None
    if properties.in_commit_timestamps:
        ict_from = properties.in_commit_timestamp_enablement_version or 0
    return tuple(
        LogUnit(
            path=entry.path,
            version=entry.file.version,
            size=entry.size,
            commit_ms=segment.commit_ms[entry.file.version],
            ict_from=ict_from,
        )
        for entry in (*segment.history, *segment.commits)
    )


def _checkpoint_units(head: TableHead) -> tuple[LogUnit, ...]:
    checkpoint = head.segment.checkpoint
    if checkpoint is None:
        return ()
    files = [(entry.path, entry.size) for entry in checkpoint.entries]
    files += [(sidecar.path, sidecar.size) for sidecar in head.sidecars]
    return tuple(LogUnit(path=path, version=checkpoint.version, size=size) for path, size in files)


def _read(
    spark: SparkSession, head: TableHead, units: Iterable[LogUnit], *, tasks: int
) -> DataFrame:
    packed = [
        LogUnits(table=head.location.path, units=list(part)) for part in _packed(units, tasks)
    ]
    rows = [(msgspec.json.encode(part).decode(),) for part in packed]
    return spark.createDataFrame(rows, "units string").mapInArrow(read_units, ACTION_SCHEMA)


def _packed(units: Iterable[LogUnit], tasks: int) -> Sequence[Sequence[LogUnit]]:
    """The units in at most ``tasks`` packages of about the same number of bytes."""
    packages: list[list[LogUnit]] = [[] for _ in range(max(tasks, 1))]
    loads = [0] * len(packages)
    for unit in sorted(units, key=lambda unit: -unit.size):
        lightest = loads.index(min(loads))
        packages[lightest].append(unit)
        loads[lightest] += unit.size + 4096
    return [package for package in packages if package]
