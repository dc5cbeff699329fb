"""The live files of a version as complete add actions, and optionally its tombstones.

Reconciled as in ``replay``: commits after the checkpoint give the newest action per key, and the
checkpoint is streamed without those keys.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from maint_assets.datasets.exchange import exchanged, in_waves
from maint_assets.datasets.rows import task_groups, units
from maint_assets.delta.names import commit_name
from maint_assets.errors import CorruptLogError
from maint_assets.snapshot.log_units import checkpoint_units, commit_units, total_bytes
from maint_assets.snapshot.replay import BUCKET_BYTES, SMALL_LOG_BYTES, file_shares, key_texts
from maint_assets.snapshot.schemas import LogUnit
from maint_assets.snapshot.whole.actions import full_actions_of
from maint_assets.snapshot.whole.schemas import FULL_ARROW, LIVE_ADDS_ARROW

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import SparkSession

    from maint_assets.datasets.rows import Rows
    from maint_assets.snapshot.head import TableHead
    from maint_assets.storage.location import Location

    Refusal = Callable[[pa.Table], None]

_KEY = ["log_key", "dv_id"]
_DISPUTED = "disputed"
_KEYS_ARROW = pa.schema([FULL_ARROW.field(name) for name in (*_KEY, "ord")])
_EXPANSION = 8
"""Approximate ratio of memory to Parquet size."""


def live_adds(
    spark: SparkSession, head: TableHead, *, parallelism: int, scratch: str
) -> list[Rows]:
    """The live files of a version, one row each: LIVE_ADDS_ARROW.

    Executors raise CorruptLogError and LogGapError. Large logs are shuffled through ``scratch``.
    """
    every = _newest(spark, head, removes=False, parallelism=parallelism, scratch=scratch)
    return [rows.then(_live) for rows in every]


def file_state(
    spark: SparkSession,
    head: TableHead,
    *,
    kept_after_ms: int | None,
    parallelism: int,
    scratch: str,
) -> list[Rows]:
    """The file actions for a checkpoint of the head's version: FULL_ARROW.

    These are the live adds, and the tombstones with a deletion timestamp after ``kept_after_ms``,
    or all tombstones if that is None. Executors raise CorruptLogError also if the commit or
    checkpoint with the newest action of a file has two of them, which the protocol does not allow:
    readers disagree on whether the file is live.
    """
    refuse = partial(_refuse_duplicates, table=head.table, base=_base(head))
    newest = _newest(
        spark, head, removes=True, refuse=refuse, parallelism=parallelism, scratch=scratch
    )
    every = [rows.then(_actions) for rows in newest]
    if kept_after_ms is None:
        return every
    return [rows.then(partial(_unexpired, kept_after_ms=kept_after_ms)) for rows in every]


def newest_full_actions(
    actions: Iterable[pa.RecordBatch], *, refuse: Refusal | None = None
) -> Iterator[pa.RecordBatch]:
    """The newest action of each key: FULL_ARROW and ``disputed`` (LIVE_ADDS_ARROW).

    ``refuse`` is called with all actions, and may raise.
    """
    every = pa.Table.from_batches(actions, FULL_ARROW)
    if not every.num_rows:
        return
    if refuse is not None:
        refuse(every)
    order = pc.sort_indices(every["ord"])
    row = pa.array(range(every.num_rows), pa.int64())
    keys = every.select(_KEY).take(order).append_column("row", row)
    last = keys.group_by(_KEY, use_threads=False).aggregate([("row", "max")])
    newest = every.take(order.take(last["row_max"]))
    newest = newest.append_column(_DISPUTED, _is_disputed(newest, every))
    yield from newest.combine_chunks().to_batches()


def _is_disputed(newest: pa.Table, every: pa.Table) -> pa.Array:
    """Mask of the newest actions that are adds of a commit that removes the file as well."""
    # In ``ord`` an add comes one after a remove of the same version.
    removes = every.filter(pc.is_valid(every["remove"]))
    same_commit = _key_and_order(removes, pc.add(removes["ord"], 1))
    return pc.is_in(_key_and_order(newest, newest["ord"]), value_set=same_commit)


def _key_and_order(actions: pa.Table, order: pa.ChunkedArray) -> pa.Array:
    return pc.binary_join_element_wise(key_texts(actions), pc.cast(order, pa.string()), "@")


def _refuse_duplicates(actions: pa.Table, *, table: str, base: int) -> None:
    """Raise CorruptLogError if the newest log file of a key both adds and removes the file.

    Also if the checkpoint, of version ``base``, holds a key twice. The rows have _KEY and ``ord``,
    and must be all rows of their keys.
    """
    keys = key_texts(actions).dictionary_encode().indices.to_numpy()
    order = actions["ord"].to_numpy()
    newest = np.full(keys.max(initial=-1) + 1, -1)
    np.maximum.at(newest, keys, order)
    # ``ord >> 1`` is the version, ``ord & 1`` is 1 for an add.
    at = np.flatnonzero(order >> 1 == newest[keys] >> 1)
    adds, removes = (
        np.bincount(keys[at[order[at] & 1 == kind]], minlength=newest.size) for kind in (1, 0)
    )
    is_duplicate = (adds > 0) & (removes > 0) | (newest >> 1 == base) & (adds + removes > 1)
    wrong = at[is_duplicate[keys[at]]]
    if not wrong.size:
        return
    first, version = int(wrong[0]), int(order[wrong[0]]) >> 1
    file = f"checkpoint {version}" if version == base else commit_name(version)
    has_both = adds[keys[first]] and removes[keys[first]]
    does = "both adds and removes" if has_both else "holds twice"
    raise CorruptLogError(
        table,
        f"{file} {does} {actions['log_key'][first].as_py()}: readers disagree on whether the file "
        "is live, and a checkpoint would settle it arbitrarily",
        "add or remove that file in a new commit",
    )


def _newest(
    spark: SparkSession,
    head: TableHead,
    *,
    removes: bool,
    parallelism: int,
    scratch: str,
    refuse: Refusal | None = None,
) -> list[Rows]:
    """The newest action per key: FULL_ARROW; rows from commits also have ``disputed``.

    Without ``removes``, tombstones of the checkpoint are not read.
    """
    location, checkpoint = head.location, _only(checkpoint_units(head), removes=removes)
    tail = [unit for unit in commit_units(head) if unit.version > _base(head)]
    newest = partial(newest_full_actions, refuse=refuse)
    if total_bytes(tail) > BUCKET_BYTES:
        read = [*tail, *checkpoint]
        shuffled = _shuffled(spark, location, read, parallelism=parallelism, scratch=scratch)
        return [shuffled.then(newest)]

    def winners(read: list[LogUnit]) -> Iterator[pa.RecordBatch]:
        yield from newest(full_actions_of(location, read))

    def streamed(read: list[LogUnit]) -> Iterator[pa.RecordBatch]:
        named = [msgspec.structs.replace(unit, keys=True) for unit in tail]
        yield from _without(full_actions_of(location, read), full_actions_of(location, named))

    def both(_: list[LogUnit]) -> Iterator[pa.RecordBatch]:
        newer = list(winners(tail))
        yield from newer
        yield from _without(full_actions_of(location, checkpoint), newer)

    if total_bytes([*tail, *checkpoint]) <= SMALL_LOG_BYTES:
        every = [*tail, *checkpoint]
        return [units(spark, [every], both if refuse is None else winners, kind=LogUnit)]
    cut = [share for unit in checkpoint for share in file_shares(unit, parallelism)]
    groups = task_groups(cut, parallelism, weight=lambda unit: unit.size // unit.shares)
    # Shares of a checkpoint are read apart, so its keys alone are shuffled to find duplicates.
    if refuse is not None and checkpoint:
        named = [[msgspec.structs.replace(each, keys=True) for each in some] for some in groups]
        keys = units(spark, named, streamed, kind=LogUnit).then(_keys)
        buckets = in_waves(-(-total_bytes(checkpoint) // BUCKET_BYTES), parallelism)
        shuffled = exchanged(spark, [keys], by=_KEY, buckets=buckets, scratch=scratch)
        shuffled.then(partial(_checked, refuse=refuse)).values(str)
    from_checkpoint = units(spark, groups, streamed, kind=LogUnit)
    if not tail:
        return [from_checkpoint]
    from_tail = units(spark, [tail], winners, kind=LogUnit)
    return [from_tail, from_checkpoint] if checkpoint else [from_tail]


def _keys(actions: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in actions:
        yield batch.select(_KEYS_ARROW.names)


def _checked(actions: Iterable[pa.RecordBatch], *, refuse: Refusal) -> Iterator[pa.RecordBatch]:
    refuse(pa.Table.from_batches(actions, _KEYS_ARROW))
    yield from ()


def _shuffled(
    spark: SparkSession, location: Location, read: list[LogUnit], *, parallelism: int, scratch: str
) -> Rows:
    """Actions of log files, shuffled into buckets of keys."""

    def actions(some: list[LogUnit]) -> Iterator[pa.RecordBatch]:
        yield from full_actions_of(location, some)

    groups = task_groups(read, parallelism, weight=lambda unit: unit.size)
    every = units(spark, groups, actions, kind=LogUnit)
    buckets = in_waves(-(-sum(map(_weight, read)) // BUCKET_BYTES), parallelism)
    return exchanged(spark, [every], by=_KEY, buckets=buckets, scratch=scratch)


def _without(
    actions: Iterable[pa.RecordBatch], newer: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Drop actions whose key has a newer action."""
    schema = pa.schema([FULL_ARROW.field(name) for name in _KEY])
    named = pa.Table.from_batches((batch.select(_KEY) for batch in newer), schema)
    keys = pc.unique(key_texts(named))
    for batch in actions:
        yield batch.filter(pc.invert(pc.is_in(key_texts(batch), value_set=keys)))


def _live(actions: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The adds: LIVE_ADDS_ARROW. Adds of a checkpoint are not disputed."""
    for batch in actions:
        adds = batch.filter(pc.is_valid(batch["add"]))
        if _DISPUTED not in adds.schema.names:
            adds = adds.append_column(_DISPUTED, pa.repeat(pa.scalar(value=False), len(adds)))
        yield adds.select(LIVE_ADDS_ARROW.names)


def _actions(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in rows:
        yield batch.select(FULL_ARROW.names)


def _unexpired(
    actions: Iterable[pa.RecordBatch], *, kept_after_ms: int
) -> Iterator[pa.RecordBatch]:
    """Keep adds, and removes with a deletion timestamp (0 if missing) after a time."""
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
