"""Which paths must stay: whatever a retained version needs, and why (vacuum.md 5 and 16)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from maint_assets.delta.paths import TableRoot
from maint_assets.snapshot.places import are_inside, names
from maint_assets.storage.columns import arrow_schema, column
from maint_assets.storage.parts import Measure

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from maint_assets.storage.rows import Rows

VALID_FILES_SCHEMA = T.StructType([
    column("path", "string", "relative to the table root, decoded"),
    column(
        "reason",
        "string",
        "active, tombstone, active_dv, tombstone_dv, or spelling: as the log writes the path",
    ),
    column("size", "bigint", "bytes of a data file, by the log", nullable=True),
    column("deletion_ms", "bigint", "time of the remove of a tombstone, ms", nullable=True),
])

REASONS = ("active", "tombstone", "active_dv", "tombstone_dv", "spelling")

VALID_FILES_MEASURES = {
    "bytes": Measure("sum", "size"),
    **{f"reason_{name}": Measure("count", where=pc.field("reason") == name) for name in REASONS},
}

_ARROW = arrow_schema(VALID_FILES_SCHEMA)


def valid_files(snapshot: Rows, *, table: str, cutoff_ms: int) -> Rows:
    """Paths inside the table that a live file or a tombstone not older than the cutoff names.

    A tombstone exactly at ``cutoff_ms`` stays; one without a time counts as 0. Deletion vectors
    of every storage type count with their file. One path may have several reasons.
    """
    return snapshot.then(partial(named, root=TableRoot.of(table), cutoff_ms=cutoff_ms))


def named(
    snapshot: Iterable[pa.RecordBatch], *, root: TableRoot, cutoff_ms: int
) -> Iterator[pa.RecordBatch]:
    """The valid files of some rows of a snapshot: VALID_FILES_SCHEMA."""
    for batch in snapshot:
        kept = batch.filter(protects(batch, cutoff_ms))
        inside = kept.filter(kept["inside"])
        yield _rows(inside, inside["path"], ("active", "tombstone"))
        vectors = kept.filter(are_inside(kept["dv_path"]))
        yield _rows(vectors, vectors["dv_path"], ("active_dv", "tombstone_dv"))
        yield from _spelled_otherwise(kept, root)


def protects(snapshot: pa.RecordBatch, cutoff_ms: int) -> pa.Array:
    """Whether each row keeps its files: live, or removed not before the cutoff."""
    action = snapshot["action"]
    recent = pc.fill_null(pc.greater_equal(snapshot["deletion_ms"], cutoff_ms), fill_value=False)
    return pc.or_(pc.equal(action, "add"), pc.and_(pc.equal(action, "remove"), recent))


def _rows(kept: pa.RecordBatch, paths: pa.Array, reasons: tuple[str, str]) -> pa.RecordBatch:
    """Paths of rows of the snapshot, with the reasons of a live file and of a tombstone."""
    reason = pc.if_else(pc.equal(kept["action"], "add"), *reasons)
    size = pa.nulls(len(kept), pa.int64()) if reasons[0].endswith("_dv") else kept["size"]
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
        yield _rows(escaped.take(pa.array(rows)), spelled, ("spelling", "spelling"))
