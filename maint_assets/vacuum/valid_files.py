"""Which paths must stay: whatever a retained version needs, and why (vacuum.md 5 and 16)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from maint_assets.datasets.columns import arrow_schema, column
from maint_assets.datasets.parts import Measure
from maint_assets.delta.paths import TableRoot
from maint_assets.delta.timestamps import LEAST_MS
from maint_assets.snapshot.resolved_paths import (
    are_inside,
    behind_links,
    directories_of,
    led_directory,
    names,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from maint_assets.datasets.rows import Rows

VALID_FILES_SCHEMA = T.StructType([
    column("path", "string", "relative to the table root, decoded"),
    column(
        "reason",
        "string",
        "active, tombstone, active_dv, tombstone_dv, change_data; lost, lost_dv: of an add that "
        "the checkpoint does not hold; spelling: as the log writes the path; linked: where a link "
        "in the path leads",
    ),
    column("size", "bigint", "bytes of a data file, by the log", nullable=True),
    column("deletion_ms", "bigint", "time of the remove of a tombstone, ms", nullable=True),
])

REASONS = (
    "active", "tombstone", "active_dv", "tombstone_dv", "change_data", "lost", "lost_dv",
    "spelling", "linked",
)  # fmt: skip

VALID_FILES_MEASURES = {
    "bytes": Measure("sum", "size"),
    **{f"reason_{name}": Measure("count", where=pc.field("reason") == name) for name in REASONS},
}

_ARROW = arrow_schema(VALID_FILES_SCHEMA)
_FILE_REASONS = {"add": "active", "remove": "tombstone", "cdc": "change_data", "lost": "lost"}
_VECTOR_REASONS = {"add": "active_dv", "remove": "tombstone_dv", "lost": "lost_dv"}
_SPELLED = dict.fromkeys(_FILE_REASONS, "spelling")
_LINKED = dict.fromkeys(_FILE_REASONS, "linked")


@dataclass(frozen=True, slots=True)
class Retained:
    """What is retained: all that was removed or made not before ``cutoff_ms``.

    ``checkpoint_ms`` is when the checkpoint was made, None without one: where it alone tells of a
    remove, and not when that was, it was then at the latest.
    """

    cutoff_ms: int
    checkpoint_ms: int | None = None


def valid_files(snapshot: Rows, *, table: str, retained: Retained) -> Rows:
    """Paths inside the table that a live file, a retained tombstone or change data names.

    A tombstone is as young as its own time or its commit's says, whichever is later; one exactly
    at the cutoff stays. Deletion vectors of every storage type count with their file. Change data
    is retained with its commit. A file that the checkpoint should hold, by the commits before it,
    stays: one of them is wrong. One path may have several reasons.
    """
    return snapshot.then(partial(named, root=TableRoot.of(table), retained=retained))


def named(
    snapshot: Iterable[pa.RecordBatch], *, root: TableRoot, retained: Retained
) -> Iterator[pa.RecordBatch]:
    """The valid files of some rows of a snapshot: VALID_FILES_SCHEMA."""
    for batch in snapshot:
        kept = batch.filter(protects(batch, retained))
        inside = kept.filter(kept["inside"])
        yield _rows(inside, inside["path"], _FILE_REASONS)
        vectors = kept.filter(are_inside(kept["dv_path"]))
        yield _rows(vectors, vectors["dv_path"], _VECTOR_REASONS)
        yield from _spelled_otherwise(kept, root)
        yield from _behind_links(inside, "path", root)
        yield from _behind_links(vectors, "dv_path", root)


def protects(snapshot: pa.RecordBatch, retained: Retained) -> pa.Array:
    """Whether each row keeps its files: live or lost, or removed or made not before the cutoff."""
    action, removed_ms = snapshot["action"], snapshot["deletion_ms"]
    by_commit = _from(snapshot["commit_ms"], retained.cutoff_ms)
    young = pc.or_(by_commit, _from(removed_ms, retained.cutoff_ms))
    if (retained.checkpoint_ms or 0) >= retained.cutoff_ms:
        told = pc.greater_equal(pc.fill_null(removed_ms, 0), LEAST_MS)
        nobody = pc.and_(pc.is_null(snapshot["commit_ms"]), pc.invert(told))
        young = pc.or_(young, nobody)
    removed = pc.and_(pc.equal(action, "remove"), young)
    made = pc.and_(pc.equal(action, "cdc"), by_commit)
    live = pc.or_(pc.equal(action, "add"), pc.equal(action, "lost"))
    return pc.or_(live, pc.or_(removed, made))


def _from(times_ms: pa.Array, cutoff_ms: int) -> pa.Array:
    """Whether each time is not before the cutoff; not where there is none."""
    return pc.fill_null(pc.greater_equal(times_ms, cutoff_ms), fill_value=False)


def _rows(kept: pa.RecordBatch, paths: pa.Array, reasons: Mapping[str, str]) -> pa.RecordBatch:
    """Paths of rows of the snapshot, each with the reason by its action."""
    actions = pa.array(list(reasons))
    reason = pa.array(list(reasons.values())).take(pc.index_in(kept["action"], actions))
    size = pa.nulls(len(kept), pa.int64()) if reasons is _VECTOR_REASONS else kept["size"]
    arrays = [paths, reason, size, kept["deletion_ms"]]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


def _spelled_otherwise(kept: pa.RecordBatch, root: TableRoot) -> Iterator[pa.RecordBatch]:
    """The names of a writer that does not encode: what the log says, taken literally."""
    escaped = kept.filter(pc.match_substring(kept["log_path"], "%"))
    pairs = zip(escaped["log_path"].to_pylist(), escaped["path"].to_pylist(), strict=True)
    found = [
        (at, name)
        for at, (raw, path) in enumerate(pairs)
        for name in names(raw, root)
        if name != path
    ]
    if found:
        rows, paths = zip(*found, strict=True)
        spelled = pa.array(paths, pa.string())
        yield _rows(escaped.take(pa.array(rows)), spelled, _SPELLED)


def _behind_links(kept: pa.RecordBatch, name: str, root: TableRoot) -> Iterator[pa.RecordBatch]:
    """The same files where a walk finds them, of directories that links lead to."""
    if not root.is_local:
        return
    within = directories_of(kept[name])
    linked = [
        directory
        for directory in pc.unique(within).to_pylist()
        if directory and led_directory(directory, root) is not None
    ]
    if linked:
        rows = kept.filter(pc.is_in(within, pa.array(linked)))
        led = [behind_links(path, root) for path in rows[name].to_pylist()]
        yield _rows(rows, pa.array(led, pa.string()), _LINKED)
