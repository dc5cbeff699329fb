"""The paths that VACUUM must keep, each with the reason: all files that a retained version needs.

The protected set follows PROTOCOL.md, "Action Reconciliation" (tombstones), "Deletion Vectors" and
"Add CDC File". Where the log is ambiguous, every reading of it protects.
"""

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
    possible_paths,
    resolved_directory,
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
        "the checkpoint lacks; spelling: the path as the log writes it, not decoded; linked: the "
        "path with its symbolic links resolved",
    ),
    column("size", "bigint", "bytes of a data file, from the log", nullable=True),
    column("deletion_ms", "bigint", "deletionTimestamp of a tombstone, ms", nullable=True),
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
    """The retention: files removed, and change data written, at or after ``cutoff_ms`` stay.

    ``checkpoint_ms`` is the time of the checkpoint, None without one. It is the upper bound for the
    time of a tombstone that is only in the checkpoint and has no deletionTimestamp.
    """

    cutoff_ms: int
    checkpoint_ms: int | None = None


def valid_files(snapshot: Rows, *, table: str, retained: Retained) -> Rows:
    """Paths inside the table named by a live file, a retained tombstone or retained change data.

    Rows of VALID_FILES_SCHEMA, for a snapshot's rows. The time of a tombstone is its
    deletionTimestamp or the time of its commit, whichever is later; one exactly at the cutoff
    stays. Deletion vectors of every storage type are kept with their file. Change data is kept by
    the time of its commit. A file that was added by a commit before the checkpoint and that the
    checkpoint lacks stays too: one of the two is wrong. A path may have several reasons, each in
    a row of its own.
    """
    return snapshot.then(partial(named, root=TableRoot.of(table), retained=retained))


def named(
    snapshot: Iterable[pa.RecordBatch], *, root: TableRoot, retained: Retained
) -> Iterator[pa.RecordBatch]:
    """Batches of VALID_FILES_SCHEMA for batches of a snapshot."""
    for batch in snapshot:
        kept = batch.filter(protects(batch, retained))
        inside = kept.filter(kept["inside"])
        yield _rows(inside, inside["path"], _FILE_REASONS)
        vectors = kept.filter(are_inside(kept["dv_path"]))
        yield _rows(vectors, vectors["dv_path"], _VECTOR_REASONS)
        yield from _undecoded(kept, root)
        yield from _behind_links(inside, "path", root)
        yield from _behind_links(vectors, "dv_path", root)


def protects(snapshot: pa.RecordBatch, retained: Retained) -> pa.Array:
    """Mask of the rows whose files must stay.

    True for adds, live or lost, and for removes and change data at or after the cutoff.
    """
    action, removed_ms = snapshot["action"], snapshot["deletion_ms"]
    by_commit = _at_or_after(snapshot["commit_ms"], retained.cutoff_ms)
    young = pc.or_(by_commit, _at_or_after(removed_ms, retained.cutoff_ms))
    if (retained.checkpoint_ms or 0) >= retained.cutoff_ms:
        # deletionTimestamp is optional, and its commit may be gone from the log: such a tombstone
        # may be as young as the checkpoint.
        dated = pc.greater_equal(pc.fill_null(removed_ms, 0), LEAST_MS)
        undated = pc.and_(pc.is_null(snapshot["commit_ms"]), pc.invert(dated))
        young = pc.or_(young, undated)
    removed = pc.and_(pc.equal(action, "remove"), young)
    made = pc.and_(pc.equal(action, "cdc"), by_commit)
    live = pc.or_(pc.equal(action, "add"), pc.equal(action, "lost"))
    return pc.or_(live, pc.or_(removed, made))


def _at_or_after(times_ms: pa.Array, cutoff_ms: int) -> pa.Array:
    """Mask of the times at or after the cutoff; False for a null."""
    return pc.fill_null(pc.greater_equal(times_ms, cutoff_ms), fill_value=False)


def _rows(kept: pa.RecordBatch, paths: pa.Array, reasons: Mapping[str, str]) -> pa.RecordBatch:
    """Paths of rows of the snapshot, with the reason that ``reasons`` has for the row's action."""
    actions = pa.array(list(reasons))
    reason = pa.array(list(reasons.values())).take(pc.index_in(kept["action"], actions))
    size = pa.nulls(len(kept), pa.int64()) if reasons is _VECTOR_REASONS else kept["size"]
    arrays = [paths, reason, size, kept["deletion_ms"]]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


def _undecoded(kept: pa.RecordBatch, root: TableRoot) -> Iterator[pa.RecordBatch]:
    """Paths as the log spells them, without decoding.

    A path in the log is a URI (PROTOCOL.md, "Add File and Remove File"), but some writers do not
    encode a ``%``: both the decoded and the literal path stay.
    """
    escaped = kept.filter(pc.match_substring(kept["log_path"], "%"))
    pairs = zip(escaped["log_path"].to_pylist(), escaped["path"].to_pylist(), strict=True)
    found = [
        (row, name)
        for row, (raw, path) in enumerate(pairs)
        for name in possible_paths(raw, root)
        if name != path
    ]
    if found:
        rows, paths = zip(*found, strict=True)
        spelled = pa.array(paths, pa.string())
        yield _rows(escaped.take(pa.array(rows)), spelled, _SPELLED)


def _behind_links(kept: pa.RecordBatch, name: str, root: TableRoot) -> Iterator[pa.RecordBatch]:
    """Paths with their symbolic links resolved: a listing reports a file at its real path."""
    if not root.is_local:
        return
    parent = directories_of(kept[name])
    linked = [
        directory
        for directory in pc.unique(parent).to_pylist()
        if directory and resolved_directory(directory, root) is not None
    ]
    if linked:
        rows = kept.filter(pc.is_in(parent, pa.array(linked)))
        resolved = [behind_links(path, root) for path in rows[name].to_pylist()]
        yield _rows(rows, pa.array(resolved, pa.string()), _LINKED)
