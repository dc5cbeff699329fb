"""Log replay: the state of a version as rows (PROTOCOL, "Action Reconciliation").

The newest action per key (path, deletion vector id) wins. The adds of a large checkpoint are
streamed and only compared with the keys of newer commits; all other actions are shuffled by key.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from maint_assets.datasets.exchange import exchanged, in_waves
from maint_assets.datasets.rows import task_groups, units
from maint_assets.snapshot.file_actions import actions_of
from maint_assets.snapshot.log_units import checkpoint_units, commit_units, total_bytes
from maint_assets.snapshot.schemas import ACTION_ARROW, SNAPSHOT_ARROW, LogUnit, is_add

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import SparkSession
    from typing_extensions import Self

    from maint_assets.datasets.rows import Rows
    from maint_assets.snapshot.head import TableHead
    from maint_assets.storage.location import Location

SMALL_LOG_BYTES = 16 * 1024 * 1024
"""Up to this many bytes of checkpoint and newer commits, one task does the whole replay."""

SHARE_BYTES = 16 * 1024 * 1024
"""Bytes of a checkpoint file per reading task."""

BUCKET_BYTES = 64 * 1024 * 1024
"""Bytes of log per bucket of keys."""

_KEY = ["what", "log_key", "dv_id"]


def snapshot(spark: SparkSession, head: TableHead, *, parallelism: int, scratch: str) -> list[Rows]:
    """Live files, tombstones, change data and commits of a version: SNAPSHOT_SCHEMA.

    Tombstones of any age come from the checkpoint and from all readable commits, including those
    before the checkpoint. So do "lost" files: added by such a commit, never removed, and missing
    from the checkpoint. Executors raise CorruptLogError and LogGapError. Large logs are shuffled
    through ``scratch``.
    """
    location, log = head.location, _Log.of(head)
    newest = partial(_newest, spark, location, scratch=scratch)
    shaped = partial(snapshot_rows, base=log.base)
    # In the other way each task holds the keys of all newer commits: not of a very long tail.
    if log.is_small or total_bytes(log.tail) > BUCKET_BYTES:
        every = [*log.checkpoint, *log.history, *log.tail]
        return [newest(every, tasks=1 if log.is_small else parallelism).then(shaped)]
    # Most adds of a checkpoint are still live, and need no shuffle: only their keys take part.
    keys = [msgspec.structs.replace(unit, removes=False, keys=True) for unit in log.checkpoint]
    others = [*log.history, *log.tail, *_removes(log.checkpoint), *keys]
    winners = newest(others, tasks=parallelism).then(
        partial(without_checkpoint_adds, base=log.base), shaped
    )
    if not log.checkpoint:
        return [winners]

    def streamed(read: list[LogUnit]) -> Iterator[pa.RecordBatch]:
        newer = _table(actions_of(location, log.tail))
        keys = key_texts(newer.filter(pc.equal(newer["what"], "file")))
        for batch in actions_of(location, read):
            yield batch.filter(pc.invert(pc.is_in(key_texts(batch), value_set=keys)))

    without_removes = [msgspec.structs.replace(unit, removes=False) for unit in log.checkpoint]
    adds = [share for unit in without_removes for share in file_shares(unit, parallelism)]
    groups = task_groups(adds, parallelism, weight=lambda unit: unit.size // unit.shares)
    return [winners, units(spark, groups, streamed, kind=LogUnit).then(shaped)]


def newest_actions(actions: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The newest action per key; a tombstone with the newest known commit that removed the file.

    Checkpoints do not record that commit, but older commit files may still exist. A tombstone has
    the latest of all deletion times of its key, which keeps the file longest.
    """
    every = _table(actions)
    if not every.num_rows:
        return
    every = every.take(pc.sort_indices(every["ord"]))
    row = pa.array(np.arange(every.num_rows))
    by_known_commit = pc.if_else(pc.is_valid(every["version"]), row, None)
    by_unknown_ms = pc.if_else(pc.is_valid(every["version"]), None, every["deletion_ms"])
    grouped = (
        every
        .select(_KEY)
        .append_column("row", row)
        .append_column("by_known_commit", by_known_commit)
        .append_column("deletion_ms", every["deletion_ms"])
        .append_column("by_unknown_ms", by_unknown_ms)
        .group_by(_KEY, use_threads=False)
        .aggregate([
            (name, "max") for name in ("row", "by_known_commit", "deletion_ms", "by_unknown_ms")
        ])
    )
    newest, by = every.take(grouped["row_max"]), every.take(grouped["by_known_commit_max"])
    # A later deletion time in the checkpoint comes from a commit that is no longer in the log.
    same = pc.greater_equal(by["deletion_ms"], grouped["by_unknown_ms_max"])
    same = pc.or_(pc.fill_null(same, fill_value=True), pc.not_equal(newest["what"], "file"))
    newest = _with(newest, "deletion_ms", grouped["deletion_ms_max"])
    newest = _with(newest, "commit_ms", by["commit_ms"])
    for name in ("version", "operation"):
        newest = _with(newest, name, pc.if_else(same, by[name], None))
    yield from newest.combine_chunks().to_batches()


def file_shares(unit: LogUnit, parallelism: int) -> list[LogUnit]:
    """Divide a Parquet file into shares for several tasks; JSON files are not divided."""
    divides = unit.path.endswith(".parquet")
    count = min(parallelism, 1 + unit.size // SHARE_BYTES) if divides else 1
    return [msgspec.structs.replace(unit, share=at, shares=count) for at in range(count)]


def key_texts(actions: pa.Table | pa.RecordBatch) -> pa.Array:
    """Replay key of each action as one string, joined by NUL, which no path contains."""
    keys = pc.binary_join_element_wise(actions["log_key"], actions["dv_id"], "\0")
    return keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys


def without_checkpoint_adds(
    actions: Iterable[pa.RecordBatch], base: int
) -> Iterator[pa.RecordBatch]:
    """Drop the adds that come from the checkpoint of version ``base``."""
    for batch in actions:
        yield batch.filter(pc.not_equal(batch["ord"], 2 * base + 1))


def snapshot_rows(actions: Iterable[pa.RecordBatch], base: int) -> Iterator[pa.RecordBatch]:
    """Convert actions to SNAPSHOT_ARROW. ``base``: version of the checkpoint, -1 without one."""
    nothing = pa.scalar(None, pa.int64())
    for batch in actions:
        of_add = is_add(batch)
        is_lost = pc.less(batch["ord"], 2 * base + 1)
        file = pc.if_else(of_add, pc.if_else(is_lost, "lost", "add"), "remove")
        columns = {name: batch[name] for name in SNAPSHOT_ARROW.names if name in batch.schema.names}
        columns["action"] = pc.if_else(pc.equal(batch["what"], "file"), file, batch["what"])
        columns["modified_ms"] = pc.if_else(of_add, batch["modified_ms"], nothing)
        for name in ("version", "commit_ms", "deletion_ms"):
            columns[name] = pc.if_else(of_add, nothing, batch[name])
        columns["operation"] = pc.if_else(of_add, pa.scalar(None, pa.string()), batch["operation"])
        yield pa.RecordBatch.from_arrays(
            [columns[name] for name in SNAPSHOT_ARROW.names], schema=SNAPSHOT_ARROW
        )


@dataclass(frozen=True, slots=True)
class _Log:
    """Log files of a version: commits up to the checkpoint's version ``base``, newer ones, itself.

    Adds of ``history`` are read only from commits after its last gap: a missing commit may have
    removed them.
    """

    base: int
    history: list[LogUnit]
    tail: list[LogUnit]
    checkpoint: list[LogUnit]

    @classmethod
    def of(cls, head: TableHead) -> Self:
        commits, checkpoint = commit_units(head), head.segment.checkpoint
        base = -1 if checkpoint is None else checkpoint.version
        covered = [
            msgspec.structs.replace(unit, covered=True)
            for unit in reversed(commits)
            if unit.version <= base
        ]
        history = [
            unit if unit.version == base - at else msgspec.structs.replace(unit, adds=False)
            for at, unit in enumerate(covered)
        ]
        return cls(
            base,
            history[::-1],
            [unit for unit in commits if unit.version > base],
            checkpoint_units(head),
        )

    @property
    def is_small(self) -> bool:
        """Whether the log is small enough for one task."""
        needed, history = total_bytes([*self.tail, *self.checkpoint]), total_bytes(self.history)
        return needed <= SMALL_LOG_BYTES and history <= 4 * SMALL_LOG_BYTES


def _newest(
    spark: SparkSession, location: Location, read: list[LogUnit], *, tasks: int, scratch: str
) -> Rows:
    """Reconcile actions of log files, in one task or in buckets of keys."""
    buckets = 1 if tasks == 1 else -(-total_bytes(read) // BUCKET_BYTES)

    def actions(some: list[LogUnit]) -> Iterator[pa.RecordBatch]:
        yield from actions_of(location, some)

    if buckets <= 1:
        return units(spark, [read], actions, kind=LogUnit).then(newest_actions)
    groups = task_groups(read, tasks, weight=lambda unit: unit.size)
    every = units(spark, groups, actions, kind=LogUnit)
    buckets = in_waves(buckets, tasks)
    shuffled = exchanged(spark, [every], by=_KEY, buckets=buckets, scratch=scratch)
    return shuffled.then(newest_actions)


def _removes(read: Iterable[LogUnit]) -> list[LogUnit]:
    return [msgspec.structs.replace(unit, adds=False) for unit in read]


def _table(actions: Iterable[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(actions, ACTION_ARROW).combine_chunks()


def _with(rows: pa.Table, name: str, values: pa.ChunkedArray) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index(name), name, values)
