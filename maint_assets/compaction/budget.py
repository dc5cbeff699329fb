"""How much of a plan one run executes: whole bins up to a number of bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from maint_assets.compaction.bins import COMPACTION_ARROW

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def within_budget(files: Iterable[pa.RecordBatch], *, max_bytes: int) -> Iterator[pa.RecordBatch]:
    """The files, those of bins beyond so many bytes without a bin: ``postponed``.

    Files of one bin lie together. Bins that still fit are taken after one that does not.
    """
    left, bin_, fits = max_bytes, None, False
    for batch in files:
        names, sizes = batch["bin"].to_pylist(), batch["size"].to_numpy()
        keep = np.ones(len(names), bool)
        first = [at for at, name in enumerate(names) if at == 0 or name != names[at - 1]]
        for start, end in zip(first, [*first[1:], len(names)], strict=True):
            if names[start] is None:
                continue
            load = int(sizes[start:end].sum())
            if names[start] != bin_:
                bin_, fits = names[start], load <= left
            left -= load if fits else 0
            keep[start:end] = fits
        yield _postponed(batch, pa.array(keep))


def _postponed(batch: pa.RecordBatch, keep: pa.Array) -> pa.RecordBatch:
    nothing = pa.scalar(None, pa.string())
    columns = {name: batch[name] for name in COMPACTION_ARROW.names}
    columns["bin"] = pc.if_else(keep, batch["bin"], nothing)
    columns["reason"] = pc.if_else(keep, batch["reason"], "postponed")
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=COMPACTION_ARROW)
