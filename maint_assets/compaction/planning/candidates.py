"""Candidates of a compaction: live files with the reason to rewrite or keep each.

Only the add action of a file is considered; the data files are not opened here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from maint_assets.compaction.ordering.order import COLUMNS_TAG, PROVIDER, Z_CUBE_TAG
from maint_assets.compaction.writing.add_actions import MOST_REWRITES, REWRITES_TAG
from maint_assets.delta.actions import Add
from maint_assets.delta.partitions import canonical_values
from maint_assets.delta.paths import TableRoot
from maint_assets.snapshot.resolved_paths import resolved_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from maint_assets.compaction.ordering.order import Ordering
    from maint_assets.compaction.plan import Selection
    from maint_assets.delta.schema import Field

from maint_assets.compaction.planning.schema import COMPACTION_ARROW, PLANNED_REASONS

_ROWS = r'^\s*\{\s*"numRecords"\s*:\s*(?P<rows>\d{1,18})\s*[,}]'
"""The start of the statistics of all known writers; others are decoded as JSON."""


@dataclass(frozen=True, slots=True)
class Criteria:
    """The criteria for candidates: table root, partition columns, selection.

    ``engine`` is the engine that the table's schema allows, ``ordering`` the order of new files.
    """

    root: TableRoot
    partitions: tuple[Field, ...]
    selection: Selection
    engine: str = "arrow"
    ordering: Ordering | None = None


def candidates(files: Iterable[pa.RecordBatch], criteria: Criteria) -> Iterator[pa.RecordBatch]:
    """Live files with the reason to rewrite or keep each: COMPACTION_SCHEMA, ``bin`` null."""
    for batch in files:
        if batch.num_rows:
            yield _classified(batch, criteria)


def _classified(batch: pa.RecordBatch, criteria: Criteria) -> pa.RecordBatch:
    add = batch["add"]
    path, _, _ = resolved_columns(add.field("path"), criteria.root)
    size = add.field("size")
    deleted = _deleted(add)
    rows = _rows(add.field("stats"))
    share = _share(deleted, rows)
    ordering = criteria.ordering
    cube = pa.nulls(len(batch), pa.string()) if ordering is None else _cube(add, ordering)
    reason = _reasons(add, share=share, rows=rows, cube=cube, criteria=criteria)
    reason = pc.if_else(batch["disputed"], "disputed", reason)
    live = pc.cast(
        pc.multiply(pc.cast(size, pa.float64()), pc.subtract(1.0, pc.fill_null(share, 0.0))),
        pa.int64(),
        safe=False,
    )
    wanted = pc.is_in(reason, pa.array(PLANNED_REASONS))
    # Later steps may still choose other files: a purge by a dropped column in the footer, an
    # ordering to merge an old Z-cube. So their add actions are needed as well.
    if criteria.selection.purge or ordering is not None:
        wanted = pa.repeat(pa.scalar(value=True), len(batch))
    columns = {
        "bin": pa.nulls(len(batch), pa.string()),
        "position": pa.nulls(len(batch), pa.int64()),
        "partition": _partitions(add.field("partitionValues"), criteria.partitions),
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
        "engine": pa.repeat(pa.scalar(criteria.engine), len(batch)),
        "added": pc.coalesce(
            add.field("defaultRowCommitVersion"), add.field("modificationTime"), 0
        ),
        "add": _texts(add, rows, wanted),
    }
    return pa.RecordBatch.from_arrays(
        [columns[name] for name in COMPACTION_ARROW.names], schema=COMPACTION_ARROW
    )


def _reasons(
    add: pa.StructArray, *, share: pa.Array, rows: pa.Array, cube: pa.Array, criteria: Criteria
) -> pa.Array:
    """The reason of each file: one of PLANNED_REASONS or LEFT_OUT_REASONS."""
    selection = criteria.selection
    has_vector = pc.is_valid(add.field("deletionVector"))
    unknown = pc.and_(has_vector, pc.is_null(rows))
    limit = 0.0 if selection.purge else selection.max_deleted_ratio
    many = pc.or_(unknown, pc.fill_null(pc.greater(share, limit), fill_value=False))
    if selection.purge:
        return pc.if_else(many, "deleted_rows", "whole")
    if criteria.ordering is not None:
        ordered, other = pc.is_valid(cube), _is_clustered_otherwise(add, criteria)
        return pc.case_when(
            pc.make_struct(pc.and_(ordered, many), ordered, other),
            "deleted_rows", "ordered", "clustered", "unordered",
        )  # fmt: skip
    small = pc.less(add.field("size"), selection.min_bytes)
    return pc.case_when(
        pc.make_struct(many, pc.is_null(rows), small), "deleted_rows", "no_stats", "small", "large"
    )


def _cube(add: pa.StructArray, ordering: Ordering) -> pa.Array:
    """Z-cube id of each file ordered by the same columns, null for others."""
    tags = add.field("tags")
    named = pc.fill_null(_tag(tags, ordering.columns_tag), "")
    is_same = pc.equal(named, ordering.columns_text)
    if ordering.clustering:
        is_ours = pc.equal(pc.fill_null(add.field("clusteringProvider"), ""), PROVIDER)
        is_same = pc.and_(is_same, is_ours)
    cube = pc.coalesce(_tag(tags, ordering.cube_tag), pa.scalar("", pa.string()))
    return pc.if_else(is_same, cube, pa.scalar(None, pa.string()))


def _is_clustered_otherwise(add: pa.StructArray, criteria: Criteria) -> pa.Array:
    """Mask of the files of a clustered table that stay as they are.

    They were clustered by another provider or by other columns; only ``full`` rewrites them.
    """
    provider = add.field("clusteringProvider")
    if criteria.ordering is None or not criteria.ordering.clustering or criteria.selection.full:
        return pa.repeat(pa.scalar(value=False), len(add))
    foreign = pc.not_equal(pc.fill_null(provider, PROVIDER), PROVIDER)
    columns = _tag(add.field("tags"), COLUMNS_TAG)
    other = pc.fill_null(pc.not_equal(columns, criteria.ordering.columns_text), fill_value=False)
    return pc.or_(foreign, pc.and_(pc.is_valid(provider), other))


def _has_z_order(add: pa.StructArray) -> pa.Array:
    return pc.is_valid(_tag(add.field("tags"), Z_CUBE_TAG))


def _rewrites(add: pa.StructArray) -> pa.Array:
    """Number of compactions of the rows so far, at most MOST_REWRITES."""
    tag = _tag(add.field("tags"), REWRITES_TAG)
    once = pc.if_else(pc.equal(tag, "1"), 1, MOST_REWRITES)
    return pc.cast(pc.fill_null(once, 0), pa.int64())


def _tag(tags: pa.MapArray, name: str) -> pa.Array:
    return pc.map_lookup(tags, pa.scalar(name), "first")


def _deleted(add: pa.StructArray) -> pa.Array:
    vector = add.field("deletionVector")
    return pc.fill_null(pc.if_else(pc.is_valid(vector), vector.field("cardinality"), 0), 0)


def _share(deleted: pa.Array, rows: pa.Array) -> pa.Array:
    """The share of deleted rows, from 0 to 1; null where the number of rows is unknown."""
    every = pc.max_element_wise(rows, 1, skip_nulls=False)
    share = pc.divide(pc.cast(deleted, pa.float64()), pc.cast(every, pa.float64()))
    above = pc.max_element_wise(share, 0.0, skip_nulls=False)
    return pc.min_element_wise(above, 1.0, skip_nulls=False)


def _rows(stats: pa.Array) -> pa.Array:
    found = pc.extract_regex(stats, _ROWS)
    rows = pc.cast(pc.struct_field(found, "rows"), pa.int64())
    odd = pc.and_(pc.is_null(rows), pc.is_valid(stats))
    if not pc.any(odd).as_py():
        return rows
    decoded = [Add("", 0, stats=text).num_records for text in stats.filter(odd).to_pylist()]
    return pc.replace_with_mask(rows, odd, pa.array(decoded, pa.int64()))


def _partitions(values: pa.MapArray, partitions: tuple[Field, ...]) -> pa.Array:
    """The canonical partition values as JSON; each combination is converted once."""
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
    """Add actions as JSON where ``wanted`` holds, else null; of statistics only numRecords."""
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
