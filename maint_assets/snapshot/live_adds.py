"""The live files of a version as whole add actions, and its tombstones where they are wanted.

Reconciliation is that of ``replay``: the commits after the checkpoint give the newest action of
each key, the checkpoint is streamed without the keys that they name.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from maint_assets.snapshot.full_actions import full_actions_of
from maint_assets.snapshot.full_schemas import FULL_ARROW, LIVE_ADDS_ARROW
from maint_assets.snapshot.log_units import checkpoint_units, commit_units, total_bytes
from maint_assets.snapshot.replay import BUCKET_BYTES, SMALL_LOG_BYTES, key_texts, shares
from maint_assets.snapshot.schemas import LogUnit
from maint_assets.storage.exchange import exchanged, in_waves
from maint_assets.storage.rows import packed, units

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import SparkSession

    from maint_assets.snapshot.head import TableHead
    from maint_assets.storage.rows import Rows

_KEY = ["log_key", "dv_id"]
_EXPANSION = 8
"""What Parquet grows by in memory, about."""


def live_adds(
    spark: SparkSession, head: TableHead, *, parallelism: int, scratch: str
) -> list[Rows]:
    """The live files at the head's version, one row each: LIVE_ADDS_ARROW.

    Executors raise CorruptLogError and LogGapError. What a large log makes on the way lies in
    ``scratch``.
    """
    every = _newest(spark, head, removes=False, parallelism=parallelism, scratch=scratch)
    return [rows.then(_live) for rows in every]


def file_state(
    spark: SparkSession, head: TableHead, *, kept_after_ms: int, parallelism: int, scratch: str
) -> list[Rows]:
    """The file actions of a checkpoint of the head's version: FULL_ARROW.

    They are its live adds, and its tombstones with a deletion timestamp after ``kept_after_ms``.
    """
    every = _newest(spark, head, removes=True, parallelism=parallelism, scratch=scratch)
    return [rows.then(partial(_unexpired, kept_after_ms=kept_after_ms)) for rows in every]


def newest_full_actions(actions: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The newest action of each key."""
    every = pa.Table.from_batches(actions, FULL_ARROW)
    if not every.num_rows:
        return
    order = pc.sort_indices(every["ord"])
    row = pa.array(range(every.num_rows), pa.int64())
    keys = every.select(_KEY).take(order).append_column("row", row)
    last = keys.group_by(_KEY, use_threads=False).aggregate([("row", "max")])
    newest = every.take(order.take(last["row_max"]))
    yield from newest.combine_chunks().to_batches()


def _newest(
    spark: SparkSession, head: TableHead, *, removes: bool, parallelism: int, scratch: str
) -> list[Rows]:
    """The newest action of each key, of those that only older tombstones have none if not asked."""
    table, checkpoint = head.location.path, _only(checkpoint_units(head), removes=removes)
    tail = [unit for unit in commit_units(head) if unit.version > _base(head)]
    if total_bytes(tail) > BUCKET_BYTES:
        return [_met(spark, table, [*tail, *checkpoint], parallelism=parallelism, scratch=scratch)]

    def winners(read: list[LogUnit]) -> Iterator[pa.RecordBatch]:
        yield from newest_full_actions(full_actions_of(table, read))

    def streamed(read: list[LogUnit]) -> Iterator[pa.RecordBatch]:
        named = [msgspec.structs.replace(unit, keys=True) for unit in tail]
        yield from _without(full_actions_of(table, read), full_actions_of(table, named))

    def both(_: list[LogUnit]) -> Iterator[pa.RecordBatch]:
        newer = list(winners(tail))
        yield from newer
        yield from _without(full_actions_of(table, checkpoint), newer)

    if total_bytes([*tail, *checkpoint]) <= SMALL_LOG_BYTES:
        return [units(spark, [[*tail, *checkpoint]], both, kind=LogUnit)]
    cut = [share for unit in checkpoint for share in shares(unit, parallelism)]
    packages = packed(cut, parallelism, weight=lambda unit: unit.size // unit.shares)
    from_checkpoint = units(spark, packages, streamed, kind=LogUnit)
    if not tail:
        return [from_checkpoint]
    from_tail = units(spark, [tail], winners, kind=LogUnit)
    return [from_tail, from_checkpoint] if checkpoint else [from_tail]


def _met(
    spark: SparkSession, table: str, read: list[LogUnit], *, parallelism: int, scratch: str
) -> Rows:
    """The newest actions of files of the log, reconciled in buckets of keys."""

    def actions(some: list[LogUnit]) -> Iterator[pa.RecordBatch]:
        yield from full_actions_of(table, some)

    packages = packed(read, parallelism, weight=lambda unit: unit.size)
    every = units(spark, packages, actions, kind=LogUnit)
    buckets = in_waves(-(-sum(map(_weight, read)) // BUCKET_BYTES), parallelism)
    met = exchanged(spark, [every], by=_KEY, buckets=buckets, scratch=scratch)
    return met.then(newest_full_actions)


def _without(
    actions: Iterable[pa.RecordBatch], newer: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The actions of which no newer one has the key."""
    named = pa.Table.from_batches(newer, FULL_ARROW).select(_KEY)
    keys = pc.unique(key_texts(named))
    for batch in actions:
        yield batch.filter(pc.invert(pc.is_in(key_texts(batch), value_set=keys)))


def _live(actions: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in actions:
        yield batch.filter(pc.is_valid(batch["add"])).select(LIVE_ADDS_ARROW.names)


def _unexpired(
    actions: Iterable[pa.RecordBatch], *, kept_after_ms: int
) -> Iterator[pa.RecordBatch]:
    """Adds, and removes whose deletion timestamp, 0 without one, is after a time."""
    for batch in actions:
        at_ms = pc.fill_null(pc.struct_field(batch["remove"], "deletionTimestamp"), 0)
        kept = pc.or_(pc.is_valid(batch["add"]), pc.greater(at_ms, kept_after_ms))
        yield batch.filter(kept)


def _only(read: Iterable[LogUnit], *, removes: bool) -> list[LogUnit]:
    return [msgspec.structs.replace(unit, removes=removes) for unit in read]


def _weight(unit: LogUnit) -> int:
    return unit.size * _EXPANSION if unit.path.endswith(".parquet") else unit.size


def _base(head: TableHead) -> int:
    checkpoint = head.segment.checkpoint
    return -1 if checkpoint is None else checkpoint.version
