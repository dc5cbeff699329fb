"""Rewrite tasks: which bins of a plan one task rewrites, small ones together, a large one alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow.compute as pc
from pyspark.sql import types as T

from maint_assets.datasets.columns import arrow_schema, batch_of, column, runs
from maint_assets.datasets.parts import PartSlice, refuse_changed, slice_batches
from maint_assets.datasets.rows import task_groups, units

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from maint_assets.datasets.parts import Part

TASK_BYTES = 64 * 1024 * 1024
"""Bytes up to which a task takes further bins: a smaller task is not worth its overhead."""

TASKS_PER_SLOT, LEAST_BYTES = 8, 16 * 1024 * 1024
"""Tasks of a small plan for each slot, and the least bytes of one.

Tasks that run at once then end at about the same time.
"""

TASK_FILES = 5_000
"""Most files of a task with several bins."""

MOST_FILES = 20_000
"""Files removed by one commit, about: the driver holds the text of its actions."""

_SCHEMA = T.StructType([
    column("path", "string"),
    column("first", "bigint"),
    column("rows", "bigint"),
    column("bytes", "bigint"),
    column("bins", "bigint"),
    column("live_bytes", "bigint"),
    column("live_rows", "bigint"),
    column("bin", "string"),
    column("ordered", "boolean"),
])
_ARROW = arrow_schema(_SCHEMA)
_READ = ["bin", "size", "live_bytes", "rows", "deleted", "ordered"]


class RewriteTask(msgspec.Struct, frozen=True):
    """Contiguous whole bins of a plan that one task rewrites: their place, sizes, and first bin.

    All bins are ``ordered`` or none is.
    """

    part: PartSlice
    bytes: int
    bins: int
    live_bytes: int
    live_rows: int
    bin: str
    ordered: bool

    @property
    def is_large_and_ordered(self) -> bool:
        """Whether it is an ordered bin that is too large for one task."""
        return self.ordered and self.bins == 1 and self.bytes > TASK_BYTES


def rewrite_tasks(
    spark: SparkSession,
    parts: Iterable[Part],
    *,
    plan_bytes: int,
    max_bytes: int,
    parallelism: int,
    table: str,
) -> list[RewriteTask]:
    """The rewrite tasks of a plan in its order; those of several bins have at most ``max_bytes``.

    ``plan_bytes`` is the approximate size of the plan. Raises StalePlanError, naming the table,
    if a part of the plan has changed.
    """
    most = min(task_bytes(plan_bytes, parallelism), max_bytes)
    every = {part.path: part for part in parts}

    def cut(some: list[PartSlice]) -> Iterator[pa.RecordBatch]:
        for part in some:
            refuse_changed(every[part.path], table=table)
            yield batch_of(_tasks_of(part, most), _ARROW)

    whole = [PartSlice(part.path, "", 0, part.rows) for part in every.values()]
    if not whole:
        return []
    tasks = task_groups(whole, parallelism, weight=lambda part: part.rows)
    found = units(spark, tasks, cut, kind=PartSlice).as_frame(_SCHEMA).collect()
    made = [
        RewriteTask(
            PartSlice(row["path"], "", row["first"], row["rows"]),
            *(row[name] for name in ("bytes", "bins", "live_bytes", "live_rows", "bin", "ordered")),
        )
        for row in found
    ]
    order = {part.path: at for at, part in enumerate(whole)}
    return sorted(made, key=lambda task: (order[task.part.path], task.part.first))


def task_bytes(plan_bytes: int, parallelism: int) -> int:
    """The bytes up to which a task of a plan takes further bins."""
    return min(TASK_BYTES, max(plan_bytes // (TASKS_PER_SLOT * parallelism), LEAST_BYTES))


def commit_batches(found: Iterable[RewriteTask], *, max_bytes: int) -> Iterator[list[RewriteTask]]:
    """The rewrite tasks of each commit, in order: up to ``max_bytes`` and MOST_FILES files."""
    batch: list[RewriteTask] = []
    for task in found:
        size = sum(each.bytes for each in batch) + task.bytes
        files = sum(each.part.rows for each in batch) + task.part.rows
        if batch and (size > max_bytes or files > MOST_FILES):
            yield batch
            batch = []
        batch.append(task)
    if batch:
        yield batch


def _tasks_of(part: PartSlice, most: int) -> Iterator[tuple[Any, ...]]:
    """The rewrite tasks of a part (_SCHEMA); its rows of one bin are contiguous."""
    held: _Held | None = None
    for files in _runs_of(part):
        if held is not None and not held.takes(files, most):
            yield held.row(part.path)
            held = None
        if held is None:
            held = _Held(files)
        else:
            held.take(files)
    if held is not None:
        yield held.row(part.path)


class _Files(NamedTuple):
    """Contiguous rows of one bin: position of the first, and their sizes."""

    first: int
    bin: str
    ordered: bool
    files: int
    bytes: int
    live_bytes: int
    live_rows: int


def _runs_of(part: PartSlice) -> Iterator[_Files]:
    at = part.first
    for batch in slice_batches(part, _READ):
        rows = pc.max_element_wise(pc.subtract(pc.fill_null(batch["rows"], 0), batch["deleted"]), 0)
        columns = [each.to_numpy() for each in (batch["size"], batch["live_bytes"], rows)]
        for start, end in runs(batch["bin"]):
            sums = [int(values[start:end].sum()) for values in columns]
            name, is_ordered = (batch[each][start].as_py() for each in ("bin", "ordered"))
            yield _Files(at, name, is_ordered, end - start, *sums)
            at += end - start


class _Held:
    """A rewrite task under construction."""

    def __init__(self, first: _Files) -> None:
        self._first = self._last = first
        self._sums = list(first[3:])
        self._bins = 1

    def takes(self, files: _Files, most: int) -> bool:
        """Whether files fit into this group; those of a bin already in it always do."""
        if files.bin == self._last.bin:
            return True
        count, size = self._sums[:2]
        full = size + files.bytes > most or count + files.files > TASK_FILES
        return not full and files.ordered == self._last.ordered

    def take(self, files: _Files) -> None:
        self._bins += files.bin != self._last.bin
        self._sums = [one + other for one, other in zip(self._sums, files[3:], strict=True)]
        self._last = files

    def row(self, path: str) -> tuple[Any, ...]:
        first, (files, size, live_bytes, live_rows) = self._first, self._sums
        counts = first.first, files, size, self._bins, live_bytes, live_rows
        return path, *counts, first.bin, first.ordered
