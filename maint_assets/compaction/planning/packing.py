"""The plan of an OPTIMIZE: which live files are rewritten into one, and why (optimize.md 4, 16).

A bin holds files of one partition value. Files keep the order in which they came to the table, so
that a bin holds rows that were written at about the same time.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from maint_assets.compaction.ordering.cubes import cube_bins
from maint_assets.compaction.ordering.order import COLUMNS_TAG, PROVIDER, Z_CUBE_TAG
from maint_assets.compaction.writing.add_actions import MOST_REWRITES, REWRITES_TAG
from maint_assets.datasets.columns import arrow_schema, column, runs
from maint_assets.datasets.parts import Measure
from maint_assets.delta.actions import Add
from maint_assets.delta.partitions import canonical_values
from maint_assets.delta.paths import TableRoot
from maint_assets.snapshot.resolved_paths import placed
from maint_assets.snapshot.summary import size_counts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from maint_assets.compaction.ordering.order import Ordering
    from maint_assets.compaction.plan import Selection
    from maint_assets.delta.schema import Field

PLANNED_REASONS = (
    "small", "deleted_rows", "dropped_columns", "no_stats", "unordered", "merged"
)  # fmt: skip
LEFT_OUT_REASONS = (
    "large", "whole", "alone", "ordered", "clustered", "other_partition", "postponed", "disputed"
)  # fmt: skip

COMPACTION_SCHEMA = T.StructType([
    column("bin", "string", "id of the bin; null where the file stays", nullable=True),
    column("position", "bigint", "place of the file in its bin", nullable=True),
    column("partition", "string", "partition values by physical name, JSON"),
    column("path", "string", "decoded, relative to the table root; absolute where outside it"),
    column("dv_id", "string", "id of the deletion vector, empty for none"),
    column("size", "bigint", "bytes"),
    column("live_bytes", "bigint", "bytes without those of deleted rows, estimated"),
    column("rows", "bigint", "rows in the file, deleted ones included", nullable=True),
    column("deleted", "bigint", "rows deleted by the deletion vector"),
    column("clustered", "boolean", "whether its rows are in an order that is to be kept"),
    column("cube", "string", "what it was ordered with, as is asked now", nullable=True),
    column("ordered", "boolean", "whether the rows of its bin are ordered"),
    column("rewrites", "bigint", "compactions that its rows went through: 0, 1, 2 for more"),
    column("reason", "string", "why it is rewritten, or why it stays"),
    column("engine", "string", "what rewrites it, unless a look into it speaks against it"),
    column("added", "bigint", "order in which files came to the table"),
    column("add", "string", "the add action of the log, statistics left out", nullable=True),
])
"""A file of a bin; files of one bin lie together."""

COMPACTION_ARROW = arrow_schema(COMPACTION_SCHEMA)

MOST_FILES = 5_000
"""Files of a bin."""

_BIN = pc.field("bin")
PLANNED = pc.is_valid(_BIN)

BINS_MEASURES = {
    "bins": Measure("count", where=PLANNED & (pc.field("position") == 0)),
    "bytes": Measure("sum", "size", PLANNED),
    "rows": Measure("sum", "rows", PLANNED),
    "deleted": Measure("sum", "deleted", PLANNED),
    "considered": Measure("count"),
    **{
        f"left_{name}": Measure("count", where=pc.field("reason") == name)
        for name in LEFT_OUT_REASONS
    },
    **{
        f"left_bytes_{name}": Measure("sum", "size", pc.field("reason") == name)
        for name in LEFT_OUT_REASONS
    },
    **{
        f"reason_{name}": Measure("count", where=PLANNED & (pc.field("reason") == name))
        for name in PLANNED_REASONS
    },
    **size_counts("planned ", PLANNED),
}

_ROWS = r'^\s*\{\s*"numRecords"\s*:\s*(?P<rows>\d{1,18})\s*[,}]'
"""How every known writer begins its statistics; others are decoded whole."""


@dataclass(frozen=True, slots=True)
class Judge:
    """What tells candidates from files that stay: the table's root and columns, the selection.

    ``engine`` is what the table's files are rewritten by, as far as its schema tells;
    ``ordering`` how their rows are to be ordered.
    """

    root: TableRoot
    partitions: tuple[Field, ...]
    selection: Selection
    engine: str = "arrow"
    ordering: Ordering | None = None


def candidates(files: Iterable[pa.RecordBatch], judge: Judge) -> Iterator[pa.RecordBatch]:
    """Live files, each with the reason why it is rewritten or stays: COMPACTION_SCHEMA, no bin."""
    for batch in files:
        if batch.num_rows:
            yield _judged(batch, judge)


def compaction_bins(
    files: Iterable[pa.RecordBatch], selection: Selection, *, ordering: bool = False
) -> Iterator[pa.RecordBatch]:
    """The same files in bins, all files of a partition at hand: COMPACTION_SCHEMA.

    A batch holds whole bins. What nothing can be merged with stays. With an ``ordering`` bins are
    those of ``cube_bins``.
    """
    every = pa.Table.from_batches(files, COMPACTION_ARROW)
    order = [("partition", "ascending"), ("added", "ascending"), ("path", "ascending")]
    every = every.take(pc.sort_indices(every, order)).combine_chunks()
    if not every.num_rows:
        return
    if ordering:
        numbers, ordered, merged = cube_bins(every, selection)
        every = _with(every, "ordered", pa.array(ordered))
        reason = pc.if_else(pa.array(merged), "merged", every["reason"])
        held = _with(every, "reason", reason)
        yield from _batches(held.filter(pa.array(numbers < 0)))
    else:
        wanted = pc.is_in(every["reason"], pa.array(PLANNED_REASONS))
        yield from _batches(every.filter(pc.invert(wanted)))
        held = every.filter(wanted)
        numbers = _bin_numbers(held, selection)
        yield from _batches(_left_alone(held.filter(pa.array(numbers < 0))))
    kept = held.filter(pa.array(numbers >= 0))
    numbers = numbers[numbers >= 0]
    order = np.argsort(numbers, kind="stable")
    kept = kept.take(order)
    for start, end in runs(pa.array(numbers[order])):
        yield from _batches(_bin(kept.slice(start, end - start)))


def packed_bins(
    sizes: Sequence[int],
    *,
    target: int,
    alone: Sequence[bool],
    whole: int,
    rewrites: Sequence[int] | None = None,
) -> list[int]:
    """The bin of each file in its order, -1 for one that stays; next-fit up to the target.

    No bin has more than MOST_FILES files: the memory of a task and the length of a commit.

    A file of at least ``whole`` bytes has a bin for itself and does not part its neighbours. A
    bin of one file is kept only where the file is worth it ``alone``. Files that are small after
    MOST_REWRITES make no bins of their own, since each rewrite may shrink them again: the newest
    go into the last bin, where there is room.
    """
    past = [0] * len(sizes) if rewrites is None else rewrites
    settled = [at for at, many in enumerate(past) if many >= MOST_REWRITES and not alone[at]]
    found, members = [-1] * len(sizes), dict[int, list[int]]()
    current, load, made = -1, 0, 0
    for at in sorted(set(range(len(sizes))).difference(settled)):
        size = sizes[at]
        if size >= whole:
            members[made], made = [at], made + 1
            continue
        if current < 0 or load + size > target or len(members[current]) >= MOST_FILES:
            current, load, made = made, 0, made + 1
            members[current] = []
        members[current].append(at)
        load += size
    if current >= 0 and (len(members[current]) > 1 or not past[members[current][0]]):
        room = MOST_FILES - len(members[current])
        members[current] += _fitting(settled[::-1], sizes, room_bytes=target - load)[:room]
    kept = (one for one in members.values() if len(one) > 1 or alone[one[0]])
    for number, one in enumerate(kept):
        for at in one:
            found[at] = number
    return found


def _fitting(files: Iterable[int], sizes: Sequence[int], *, room_bytes: int) -> list[int]:
    """The files that fit into the room, one after the other."""
    found: list[int] = []
    for at in files:
        if sizes[at] <= room_bytes:
            found.append(at)
            room_bytes -= sizes[at]
    return found


def _bin_numbers(held: pa.Table, selection: Selection) -> np.ndarray:
    """The bin of each file, numbered over all partitions; -1 for one that stays."""
    sizes = held["live_bytes"]
    if selection.purge:  # a file with ordered rows is rewritten alone, and stays part of its cube
        sizes = pc.if_else(held["clustered"], selection.min_bytes, sizes)
    sizes, rewrites = sizes.to_numpy(), held["rewrites"].to_numpy()
    alone = pc.not_equal(held["reason"], "small").to_numpy(zero_copy_only=False)
    found, made = np.full(len(sizes), -1), 0
    for start, end in runs(held["partition"].combine_chunks()):
        numbers = np.array(
            packed_bins(
                sizes[start:end].tolist(),
                target=selection.target_bytes,
                alone=alone[start:end].tolist(),
                whole=selection.min_bytes,
                rewrites=rewrites[start:end].tolist(),
            )
        )
        found[start:end] = np.where(numbers < 0, -1, numbers + made)
        made += int(numbers.max(initial=-1)) + 1
    return found


def _judged(batch: pa.RecordBatch, judge: Judge) -> pa.RecordBatch:
    add = batch["add"]
    path, _, _ = placed(add.field("path"), judge.root)
    size = add.field("size")
    deleted = _deleted(add)
    rows = _rows(add.field("stats"))
    share = pc.divide(
        pc.cast(deleted, pa.float64()), pc.cast(pc.max_element_wise(rows, 1), pa.float64())
    )
    ordering = judge.ordering
    cube = pa.nulls(len(batch), pa.string()) if ordering is None else _cube(add, ordering)
    reason = _reasons(add, share=share, rows=rows, cube=cube, judge=judge)
    reason = pc.if_else(batch["disputed"], "disputed", reason)
    live = pc.cast(
        pc.multiply(pc.cast(size, pa.float64()), pc.subtract(1.0, pc.fill_null(share, 0.0))),
        pa.int64(),
        safe=False,
    )
    wanted = pc.is_in(reason, pa.array(PLANNED_REASONS))
    # A look into the file may yet find a dropped column, a new cube take in an old one.
    if judge.selection.purge or ordering is not None:
        wanted = pa.repeat(pa.scalar(value=True), len(batch))
    columns = {
        "bin": pa.nulls(len(batch), pa.string()),
        "position": pa.nulls(len(batch), pa.int64()),
        "partition": _partitions(add.field("partitionValues"), judge.partitions),
        "path": path,
        "dv_id": batch["dv_id"],
        "size": size,
        "live_bytes": live,
        "rows": rows,
        "deleted": deleted,
        "clustered": pc.or_(pc.is_valid(add.field("clusteringProvider")), _has_z_order(add)),
        "cube": cube,
        "ordered": pa.repeat(pa.scalar(value=False), len(batch)),
        "rewrites": _rewrites(add),
        "reason": reason,
        "engine": pa.repeat(pa.scalar(judge.engine), len(batch)),
        "added": pc.coalesce(
            add.field("defaultRowCommitVersion"), add.field("modificationTime"), 0
        ),
        "add": _texts(add, rows, wanted),
    }
    return pa.RecordBatch.from_arrays(
        [columns[name] for name in COMPACTION_ARROW.names], schema=COMPACTION_ARROW
    )


def _reasons(
    add: pa.StructArray, *, share: pa.Array, rows: pa.Array, cube: pa.Array, judge: Judge
) -> pa.Array:
    """Why each file is rewritten, or why it stays (optimize.md 4)."""
    selection = judge.selection
    has_vector = pc.is_valid(add.field("deletionVector"))
    unknown = pc.and_(has_vector, pc.is_null(rows))
    limit = 0.0 if selection.purge else selection.max_deleted_ratio
    many = pc.or_(unknown, pc.fill_null(pc.greater(share, limit), fill_value=False))
    if selection.purge:
        return pc.if_else(many, "deleted_rows", "whole")
    if judge.ordering is not None:
        ordered, other = pc.is_valid(cube), _is_clustered_otherwise(add, judge)
        return pc.case_when(
            pc.make_struct(pc.and_(ordered, many), ordered, other),
            "deleted_rows", "ordered", "clustered", "unordered",
        )  # fmt: skip
    small = pc.less(add.field("size"), selection.min_bytes)
    return pc.case_when(
        pc.make_struct(many, pc.is_null(rows), small), "deleted_rows", "no_stats", "small", "large"
    )


def _cube(add: pa.StructArray, ordering: Ordering) -> pa.Array:
    """What each file was ordered with by the same columns, null for others."""
    tags = add.field("tags")
    named = pc.fill_null(_tag(tags, ordering.columns_tag), "")
    is_same = pc.equal(named, ordering.columns_text)
    if ordering.clustering:
        is_ours = pc.equal(pc.fill_null(add.field("clusteringProvider"), ""), PROVIDER)
        is_same = pc.and_(is_same, is_ours)
    cube = pc.coalesce(_tag(tags, ordering.cube_tag), pa.scalar("", pa.string()))
    return pc.if_else(is_same, cube, pa.scalar(None, pa.string()))


def _is_clustered_otherwise(add: pa.StructArray, judge: Judge) -> pa.Array:
    """Whether a file of a clustered table is left as it is: by another engine, by other columns."""
    provider = add.field("clusteringProvider")
    if judge.ordering is None or not judge.ordering.clustering or judge.selection.full:
        return pa.repeat(pa.scalar(value=False), len(add))
    foreign = pc.not_equal(pc.fill_null(provider, PROVIDER), PROVIDER)
    columns = _tag(add.field("tags"), COLUMNS_TAG)
    other = pc.fill_null(pc.not_equal(columns, judge.ordering.columns_text), fill_value=False)
    return pc.or_(foreign, pc.and_(pc.is_valid(provider), other))


def _has_z_order(add: pa.StructArray) -> pa.Array:
    return pc.is_valid(_tag(add.field("tags"), Z_CUBE_TAG))


def _rewrites(add: pa.StructArray) -> pa.Array:
    """How many compactions the rows went through, MOST_REWRITES for more."""
    told = _tag(add.field("tags"), REWRITES_TAG)
    once = pc.if_else(pc.equal(told, "1"), 1, MOST_REWRITES)
    return pc.cast(pc.fill_null(once, 0), pa.int64())


def _tag(tags: pa.MapArray, name: str) -> pa.Array:
    return pc.map_lookup(tags, pa.scalar(name), "first")


def _deleted(add: pa.StructArray) -> pa.Array:
    vector = add.field("deletionVector")
    return pc.fill_null(pc.if_else(pc.is_valid(vector), vector.field("cardinality"), 0), 0)


def _rows(stats: pa.Array) -> pa.Array:
    found = pc.extract_regex(stats, _ROWS)
    rows = pc.cast(pc.struct_field(found, "rows"), pa.int64())
    odd = pc.and_(pc.is_null(rows), pc.is_valid(stats))
    if not pc.any(odd).as_py():
        return rows
    decoded = [Add("", 0, stats=text).num_records for text in stats.filter(odd).to_pylist()]
    return pc.replace_with_mask(rows, odd, pa.array(decoded, pa.int64()))


def _partitions(values: pa.MapArray, partitions: tuple[Field, ...]) -> pa.Array:
    """The canonical values as JSON; each combination is made once."""
    if not partitions:
        return pa.repeat(pa.scalar("{}"), len(values))
    known: dict[tuple[tuple[str, str | None], ...], str] = {}
    texts: list[str] = []
    for pairs in values.to_pylist():
        key = tuple(pairs or ())
        if key not in known:
            known[key] = json.dumps(canonical_values(dict(key), partitions), ensure_ascii=False)
        texts.append(known[key])
    return pa.array(texts, pa.string())


def _texts(add: pa.StructArray, rows: pa.Array, wanted: pa.Array) -> pa.Array:
    """The add actions that are wanted as JSON, null for others; of statistics only the rows."""
    texts = np.full(len(add), None, object)
    actions = add.filter(wanted).to_pylist(maps_as_pydicts="strict")
    found: list[str] = []
    for action, count in zip(actions, rows.filter(wanted).to_pylist(), strict=True):
        kept = {name: value for name, value in action.items() if value is not None}
        kept["stats"] = None if count is None else _stats(count)
        found.append(msgspec.json.encode(msgspec.convert(kept, Add)).decode())
    texts[wanted.to_numpy(zero_copy_only=False)] = found
    return pa.array(texts, pa.string())


def _stats(rows: int) -> str:
    return json.dumps({"numRecords": rows}, separators=(",", ":"))


def _bin(files: pa.Table) -> pa.Table:
    files = _with(files, "bin", pa.repeat(pa.scalar(_bin_id(files)), files.num_rows))
    return _with(files, "position", pa.array(range(files.num_rows), pa.int64()))


def _bin_id(files: pa.Table) -> str:
    """The same for the same files, whatever else is planned."""
    named = zip(files["path"].to_pylist(), files["dv_id"].to_pylist(), strict=True)
    text = "\n".join(f"{path}\0{dv_id}" for path, dv_id in sorted(named))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _left_alone(files: pa.Table) -> pa.Table:
    alone = pa.repeat(pa.scalar("alone"), files.num_rows)
    return _with(files, "reason", alone)


def _with(files: pa.Table, name: str, values: pa.Array) -> pa.Table:
    return files.set_column(files.schema.get_field_index(name), name, values)


def _batches(files: pa.Table) -> list[pa.RecordBatch]:
    return files.combine_chunks().to_batches()
