"""How much of a plan one run executes: whole bins up to a number of bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from maint_assets.compaction.bins import COMPACTION_ARROW

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def within_budget(files: Iterable[pa.RecordBatch], *, max_bytes: int) -> Iterator[pa.RecordBatch]:
    """The files, those of bins beyond so many bytes without a bin: ``postponed``.

    Bins are taken from the oldest on, whatever their order; one that does not fit is passed over.
    """
    held = list(files)
    bins: dict[str, tuple[int, int]] = {}
    for batch in held:
        columns = (batch[name].to_pylist() for name in ("bin", "added", "size"))
        for name, added, size in zip(*columns, strict=True):
            if name is not None:
                first, load = bins.get(name, (added, 0))
                bins[name] = min(first, added), load + size
    taken: list[str] = []
    for name, (_, load) in sorted(bins.items(), key=lambda each: (each[1][0], each[0])):
        if load <= max_bytes:
            taken.append(name)
            max_bytes -= load
    for batch in held:
        kept = pc.is_in(batch["bin"], pa.array(taken, pa.string()))
        yield _postponed(batch, pc.or_(kept, pc.is_null(batch["bin"])))


def _postponed(batch: pa.RecordBatch, keep: pa.Array) -> pa.RecordBatch:
    nothing = pa.scalar(None, pa.string())
    columns = {name: batch[name] for name in COMPACTION_ARROW.names}
    columns["bin"] = pc.if_else(keep, batch["bin"], nothing)
    columns["reason"] = pc.if_else(keep, batch["reason"], "postponed")
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=COMPACTION_ARROW)
