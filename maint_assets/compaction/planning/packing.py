"""Bin packing: the candidates of a partition that are rewritten together.

All files of a bin have the same partition values. They are packed in the order in which they were
added to the table, so that a bin holds rows written at about the same time.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from maint_assets.compaction.ordering.cubes import cube_bins
from maint_assets.compaction.writing.add_actions import MOST_REWRITES
from maint_assets.datasets.columns import runs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from maint_assets.compaction.plan import Selection

from maint_assets.compaction.planning.schema import COMPACTION_ARROW, PLANNED_REASONS

MOST_FILES = 5_000
"""The most files of a bin."""


def compaction_bins(
    files: Iterable[pa.RecordBatch], selection: Selection, *, ordering: bool = False
) -> Iterator[pa.RecordBatch]:
    """Assign the candidates to bins; both are rows of COMPACTION_SCHEMA.

    ``files`` must hold all files of a partition. Each returned batch holds whole bins. A file that
    has no other to be merged with stays. With ``ordering``, the bins are those of ``cube_bins``.
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
    budget: tuple[Sequence[int], int] | None = None,
) -> list[int]:
    """The bin number of each file, -1 for one that stays; next-fit in the given order.

    Sizes, ``target`` and ``whole`` are bytes of live rows. No bin has more than MOST_FILES files,
    which bounds the memory of a task and the length of a commit. ``budget`` holds the sizes of
    the files with their deleted rows, and the most bytes of them in a bin of several files.

    A file of at least ``whole`` bytes has a bin of its own; files before and after it may still
    share one. A bin of a single file is kept only if ``alone`` holds for the file. Files that are
    still small after MOST_REWRITES rewrites start no bins, as each rewrite may shrink them again:
    the newest of them fill up the last bin.
    """
    past = [0] * len(sizes) if rewrites is None else rewrites
    stored, most = budget or (sizes, sum(sizes))
    settled = [file for file, many in enumerate(past) if many >= MOST_REWRITES and not alone[file]]
    found, members = [-1] * len(sizes), dict[int, list[int]]()
    current, load, read, made = -1, 0, 0, 0
    for file in sorted(set(range(len(sizes))).difference(settled)):
        size = sizes[file]
        if size >= whole:
            members[made], made = [file], made + 1
            continue
        if (
            current < 0
            or load + size > target
            or read + stored[file] > most
            or len(members[current]) >= MOST_FILES
        ):
            current, load, read, made = made, 0, 0, made + 1
            members[current] = []
        members[current].append(file)
        load, read = load + size, read + stored[file]
    if current >= 0 and (len(members[current]) > 1 or not past[members[current][0]]):
        room = MOST_FILES - len(members[current])
        fitting = _fitting(settled[::-1], (sizes, stored), room_bytes=(target - load, most - read))
        members[current] += fitting[:room]
    kept = (bin_ for bin_ in members.values() if len(bin_) > 1 or alone[bin_[0]])
    for number, bin_ in enumerate(kept):
        for file in bin_:
            found[file] = number
    return found


def _fitting(
    files: Iterable[int], sizes: tuple[Sequence[int], Sequence[int]], *, room_bytes: tuple[int, int]
) -> list[int]:
    """The files that fit into ``room_bytes`` by both sizes, taken first-fit in the given order."""
    found: list[int] = []
    (live, stored), (room, most) = sizes, room_bytes
    for at in files:
        if live[at] <= room and stored[at] <= most:
            found.append(at)
            room, most = room - live[at], most - stored[at]
    return found


def _bin_numbers(held: pa.Table, selection: Selection) -> np.ndarray:
    """The bin number of each file, unique over all partitions; -1 for one that stays."""
    sizes = held["live_bytes"]
    if selection.purge:  # a file with ordered rows is rewritten alone, and stays part of its cube
        sizes = pc.if_else(held["clustered"], selection.min_bytes, sizes)
    sizes, rewrites = sizes.to_numpy(), held["rewrites"].to_numpy()
    stored, most = held["size"].to_numpy(), selection.max_bytes
    # A small file gains nothing by a rewrite alone; the other reasons hold for a single file.
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
                budget=None if most is None else (stored[start:end].tolist(), most),
            )
        )
        found[start:end] = np.where(numbers < 0, -1, numbers + made)
        made += int(numbers.max(initial=-1)) + 1
    return found


def _bin(files: pa.Table) -> pa.Table:
    files = _with(files, "bin", pa.repeat(pa.scalar(_bin_id(files)), files.num_rows))
    return _with(files, "position", pa.array(range(files.num_rows), pa.int64()))


def _bin_id(files: pa.Table) -> str:
    """Id of a bin, derived from its files only: equal in every plan that has this bin."""
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
