"""Which files of a partition are ordered together: as a cube, so that a row is seldom rewritten.

What is not ordered yet becomes a cube. A cube joins in only where what is rewritten anyway is as
large: so a cube that was rewritten is at least twice as large as before, and a row goes through
few rewrites however often something is appended. Nothing new: nothing to do (optimize.md 4.2, 4.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from maint_assets.datasets.columns import runs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from maint_assets.compaction.plan import Selection

    Indexes = NDArray[np.int64]

CUBE_BYTES = 64 * 1024 * 1024 * 1024
"""A cube is not made larger, nor rewritten when it has half of it."""

CUBE_FILES = 20_000
"""Files of a cube before it is ordered: one commit removes them all."""


class CubeBins(NamedTuple):
    """The bin of each file, -1 for one that stays; which files are ordered, which again."""

    numbers: Indexes
    ordered: NDArray[np.bool_]
    merged: NDArray[np.bool_]


class _Sizes(NamedTuple):
    """The bytes of each file, and how large a cube may get."""

    live: Indexes
    capacity: int

    def of(self, files: Indexes) -> int:
        return int(self.live[files].sum())

    def small(self, cubes: list[Indexes]) -> list[Indexes]:
        """The cubes that may be rewritten, the smallest first."""
        found = [cube for cube in cubes if self.of(cube) < self.capacity // 2]
        return sorted(found, key=lambda cube: (self.of(cube), int(cube[0])))


_NOTHING = np.zeros(0, np.int64)


def cube_bins(files: pa.Table, selection: Selection) -> CubeBins:
    """The bins of files (COMPACTION_SCHEMA, partition by partition, in the order of their coming).

    Unordered ones, and the cubes that are worth it, are ordered; a file of a cube that has many
    deleted rows is rewritten alone, its rows in their order.
    """
    count = files.num_rows
    found = CubeBins(np.full(count, -1), np.zeros(count, np.bool_), np.zeros(count, np.bool_))
    sizes = files["live_bytes"].to_numpy()
    reasons = np.array(files["reason"].to_pylist(), object)
    cubes = files["cube"].combine_chunks()
    capacity = min(CUBE_BYTES, selection.max_bytes or CUBE_BYTES)
    made = 0
    for start, end in runs(files["partition"].combine_chunks()):
        here = np.arange(start, end)
        for at in here[reasons[start:end] == "deleted_rows"]:
            found.numbers[at], made = made, made + 1
        unordered = here[reasons[start:end] == "unordered"]
        of_cubes = here[reasons[start:end] == "ordered"]
        parts = [of_cubes[each] for each in _cubes(cubes.take(pa.array(of_cubes)))]
        choose = _every_piece if selection.full else _joining
        merged = choose(unordered, parts, _Sizes(sizes, capacity))
        found.merged[merged] = True
        for one in _packed(np.union1d(unordered, merged), _Sizes(sizes, capacity)):
            found.numbers[one], found.ordered[one], made = made, True, made + 1
    return found


def _cubes(names: pa.Array) -> Iterator[Indexes]:
    """The places of each name."""
    numbers = pc.fill_null(names, "").dictionary_encode().indices.to_numpy()
    order = np.argsort(numbers, kind="stable")
    inner = np.flatnonzero(np.diff(numbers[order])) + 1
    return (each for each in np.split(order, inner) if len(each))


def _every_piece(unordered: Indexes, cubes: list[Indexes], sizes: _Sizes) -> Indexes:
    """The files of all cubes that are not whole, unless there is but one and nothing to join it."""
    small = sizes.small(cubes)
    return np.concatenate(small) if small and len(small) + bool(len(unordered)) > 1 else _NOTHING


def _joining(unordered: Indexes, cubes: list[Indexes], sizes: _Sizes) -> Indexes:
    """The files of cubes that are not larger than what is ordered anyway."""
    load, files, joined = sizes.of(unordered), len(unordered), [_NOTHING]
    for cube in sizes.small(cubes):
        size = sizes.of(cube)
        if size > load or load + size > sizes.capacity or files + len(cube) > CUBE_FILES:
            break
        joined.append(cube)
        load, files = load + size, files + len(cube)
    return np.concatenate(joined)


def _packed(files: Indexes, sizes: _Sizes) -> Iterator[Indexes]:
    """The files in their order, in bins of at most so many bytes."""
    held: list[int] = []
    load = 0
    for at in files.tolist():
        size = int(sizes.live[at])
        if held and (load + size > sizes.capacity or len(held) >= CUBE_FILES):
            yield np.array(held)
            held, load = [], 0
        held.append(at)
        load += size
    if held:
        yield np.array(held)
