"""Which files of a partition are ordered together, as one cube, with few rewrites of each row.

Files that are not ordered yet become a new cube. An older cube is merged into it only if it is no
larger than what is rewritten anyway: each merge at least doubles the cube of a row, so a row is
rewritten a logarithmic number of times, however often data is appended. A partition without
unordered files is left as it is.
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
"""The most bytes of a cube. A cube of at least half of it is sealed: it is not rewritten."""

CUBE_FILES = 20_000
"""The most input files of a cube: one commit removes them all."""


class CubeBins(NamedTuple):
    """The bin of each file, -1 if it stays; masks of files to order, and to order once more."""

    numbers: Indexes
    ordered: NDArray[np.bool_]
    merged: NDArray[np.bool_]


class _Sizes(NamedTuple):
    """Bytes of each file, of live rows and in all, and the most of both in a cube."""

    live: Indexes
    stored: Indexes
    capacity: int
    budget: int

    def of(self, files: Indexes) -> int:
        return int(self.live[files].sum())

    def read(self, files: Indexes) -> int:
        return int(self.stored[files].sum())

    def small(self, cubes: list[Indexes]) -> list[Indexes]:
        """The cubes that are not sealed, the smallest first."""
        found = [cube for cube in cubes if self.of(cube) < self.capacity // 2]
        return sorted(found, key=lambda cube: (self.of(cube), int(cube[0])))


_NOTHING = np.zeros(0, np.int64)


def cube_bins(files: pa.Table, selection: Selection) -> CubeBins:
    """Assign files to bins: unordered files, and the older cubes that are worth merging.

    ``files`` are rows of COMPACTION_SCHEMA, grouped by partition, in the order in which they were
    added. A file of a cube with many deleted rows is rewritten alone, and keeps the order of its
    rows.
    """
    count = files.num_rows
    found = CubeBins(np.full(count, -1), np.zeros(count, np.bool_), np.zeros(count, np.bool_))
    live, stored = files["live_bytes"].to_numpy(), files["size"].to_numpy()
    capacity = min(CUBE_BYTES, selection.max_bytes or CUBE_BYTES)
    sizes = _Sizes(live, stored, capacity, selection.max_bytes or int(stored.sum()))
    reasons = np.array(files["reason"].to_pylist(), object)
    cubes = files["cube"].combine_chunks()
    made = 0
    for start, end in runs(files["partition"].combine_chunks()):
        here = np.arange(start, end)
        for at in here[reasons[start:end] == "deleted_rows"]:
            found.numbers[at], made = made, made + 1
        unordered = here[reasons[start:end] == "unordered"]
        of_cubes = here[reasons[start:end] == "ordered"]
        parts = [of_cubes[each] for each in _cubes(cubes.take(pa.array(of_cubes)))]
        choose = _every_piece if selection.full else _joining
        merged = choose(unordered, parts, sizes)
        found.merged[merged] = True
        for one in _packed(np.union1d(unordered, merged), sizes):
            found.numbers[one], found.ordered[one], made = made, True, made + 1
    return found


def _cubes(names: pa.Array) -> Iterator[Indexes]:
    """The indexes of each distinct cube name."""
    numbers = pc.fill_null(names, "").dictionary_encode().indices.to_numpy()
    order = np.argsort(numbers, kind="stable")
    inner = np.flatnonzero(np.diff(numbers[order])) + 1
    return (each for each in np.split(order, inner) if len(each))


def _every_piece(unordered: Indexes, cubes: list[Indexes], sizes: _Sizes) -> Indexes:
    """The files of all cubes that are not sealed; none if only one cube would be rewritten."""
    small = sizes.small(cubes)
    return np.concatenate(small) if small and len(small) + bool(len(unordered)) > 1 else _NOTHING


def _joining(unordered: Indexes, cubes: list[Indexes], sizes: _Sizes) -> Indexes:
    """The files of the cubes that are no larger than what is ordered anyway."""
    load, read = sizes.of(unordered), sizes.read(unordered)
    files, joined = len(unordered), [_NOTHING]
    for cube in sizes.small(cubes):
        size, stored = sizes.of(cube), sizes.read(cube)
        if size > load or load + size > sizes.capacity or files + len(cube) > CUBE_FILES:
            break
        if read + stored > sizes.budget:
            break
        joined.append(cube)
        load, read, files = load + size, read + stored, files + len(cube)
    return np.concatenate(joined)


def _packed(files: Indexes, sizes: _Sizes) -> Iterator[Indexes]:
    """Consecutive files in bins of at most ``capacity``, ``budget`` and CUBE_FILES files."""
    held: list[int] = []
    load = read = 0
    for at in files.tolist():
        size, stored = int(sizes.live[at]), int(sizes.stored[at])
        is_full = load + size > sizes.capacity or read + stored > sizes.budget
        if held and (is_full or len(held) >= CUBE_FILES):
            yield np.array(held)
            held, load, read = [], 0, 0
        held.append(at)
        load, read = load + size, read + stored
    if held:
        yield np.array(held)
