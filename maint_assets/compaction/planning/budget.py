"""The budget of a run: whole bins up to a number of bytes, the rest is postponed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from maint_assets.compaction.planning.schema import COMPACTION_ARROW
from maint_assets.datasets.columns import runs
from maint_assets.delta.actions import Add

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


class _Bin(NamedTuple):
    """A bin: the lowest ``added`` of its files, its id, its bytes and its add actions."""

    added: int
    name: str
    size: int
    adds: tuple[pa.Array, ...]


def within_budget(
    files: Iterable[pa.RecordBatch],
    *,
    max_bytes: int,
    is_promising: Callable[[Sequence[Add]], bool],
) -> Iterator[pa.RecordBatch]:
    """The files, with the bins that exceed ``max_bytes`` removed (reason ``postponed``).

    Bins are taken from the oldest on; one that does not fit is skipped. The first is taken even if
    it does not fit (it is a single file then), or no run would ever rewrite it. Bins that are not
    promising come last: a bin that is refused in every run must not use up the budget of others.
    """
    held = list(files)
    last: list[_Bin] = []
    taken: list[str] = []
    for each in sorted(_bins(held), key=lambda each: each[:2]):
        if taken and each.size > max_bytes:
            continue
        if is_promising(_adds(each)):
            taken.append(each.name)
            max_bytes -= each.size
        else:
            last.append(each)
    for each in last:
        if each.size <= max_bytes:
            taken.append(each.name)
            max_bytes -= each.size
    for batch in held:
        kept = pc.is_in(batch["bin"], pa.array(taken, pa.string()))
        yield _postponed(batch, pc.or_(kept, pc.is_null(batch["bin"])))


def _bins(held: Iterable[pa.RecordBatch]) -> Iterable[_Bin]:
    """The bins of all files. The files of a bin are adjacent, perhaps over two batches."""
    found: dict[str, _Bin] = {}
    for batch in held:
        planned = batch.filter(pc.is_valid(batch["bin"]))
        for start, end in runs(planned["bin"]):
            files = planned.slice(start, end - start)
            name = files["bin"][0].as_py()
            added, size = pc.min(files["added"]).as_py(), pc.sum(files["size"]).as_py()
            former = found.get(name, _Bin(added, name, 0, ()))
            adds = (*former.adds, files["add"])
            found[name] = _Bin(min(former.added, added), name, former.size + size, adds)
    return found.values()


def _adds(each: _Bin) -> list[Add]:
    texts = (text for some in each.adds for text in some.to_pylist())
    return [msgspec.json.decode(text, type=Add) for text in texts]


def _postponed(batch: pa.RecordBatch, keep: pa.Array) -> pa.RecordBatch:
    nothing = pa.scalar(None, pa.string())
    columns = {name: batch[name] for name in COMPACTION_ARROW.names}
    columns["bin"] = pc.if_else(keep, batch["bin"], nothing)
    columns["reason"] = pc.if_else(keep, batch["reason"], "postponed")
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=COMPACTION_ARROW)
