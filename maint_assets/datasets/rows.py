"""Rows computed on Spark executors: units of work divided among tasks, mapped to Arrow batches.

Scheduling a Spark job costs about as much as the work on a small table. So each stage is one job,
its steps are chained in one Python function, and only rows that must be joined are shuffled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import msgspec
import pyarrow as pa
from pyspark.sql import types as T

from maint_assets.datasets.columns import arrow_schema, batch_of, column
from maint_assets.datasets.parts import PartSlice, Written, slice_batches
from maint_assets.errors import MaintError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from maint_assets.datasets.parts import ArrowFunction, Part, Target

_VALUES = T.StructType([column("value", "string", "JSON")])
_VALUES_ARROW = arrow_schema(_VALUES)

Unit = TypeVar("Unit", bound=msgspec.Struct)
Value = TypeVar("Value")

TASK_ROWS = 100_000
"""The fewest rows that justify another task."""


@dataclass(frozen=True)
class Rows:
    """A DataFrame and a function over its Arrow batches, evaluated lazily, task by task.

    ``tasks`` is the number of tasks, None if only Spark knows it.
    """

    frame: DataFrame
    function: ArrowFunction
    tasks: int | None = None

    def then(self, *functions: ArrowFunction) -> Rows:
        """Apply more functions to the rows, in the same tasks."""
        return Rows(self.frame, chained(self.function, *functions), self.tasks)

    def as_frame(self, schema: T.StructType) -> DataFrame:
        """The rows as a DataFrame, evaluated lazily by ``mapInArrow``."""
        return self.frame.mapInArrow(with_marked_errors(self.function), schema)

    def write(self, target: Target) -> Written:
        """Write the rows; return the combined result of all tasks."""
        total = target.empty()
        for written in self.then(_writes(target)).values(Written):
            total = total.plus(written, target.measures)
        return total

    def values(self, kind: type[Value]) -> list[Value]:
        """Collect what tasks return (see ``encode_result``): at most a few values per unit."""
        texts = self.as_frame(_VALUES).collect()
        return [msgspec.json.decode(row["value"], type=kind) for row in texts]


def units(
    spark: SparkSession,
    groups: Sequence[Sequence[Unit]],
    function: Callable[[list[Unit]], Iterator[pa.RecordBatch]],
    *,
    kind: type[Unit],
) -> Rows:
    """Apply ``function`` to each task group of units, one task per group.

    Built on ``spark.range``, which yields exactly the requested number of partitions. A DataFrame
    of local rows is limited to the number of cores, and would put two groups into one task.
    """
    texts = [msgspec.json.encode(group) for group in groups]

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                yield from function(msgspec.json.decode(texts[number], type=list[kind]))

    tasks = max(len(texts), 1)
    return Rows(spark.range(0, len(texts), 1, tasks), rows, tasks)


def part_rows(
    spark: SparkSession, parts: Iterable[Part], *, parallelism: int, task_rows: int = 0
) -> Rows:
    """Read parts in as many tasks as there are ``task_rows`` rows (default TASK_ROWS)."""

    def read(some: list[PartSlice]) -> Iterator[pa.RecordBatch]:
        for part in some:
            yield from slice_batches(part)

    cut = slices(parts, rows=task_rows)
    groups = task_groups(cut, parallelism, weight=lambda part: part.rows) or [[]]
    return units(spark, groups, read, kind=PartSlice)


def encode_result(value: object) -> pa.RecordBatch:
    """Encode a value that a task returns to the driver (``Rows.values``) as a batch of one row."""
    return batch_of([(msgspec.json.encode(value).decode(),)], _VALUES_ARROW)


def task_groups(
    found: Iterable[Unit], tasks: int, *, weight: Callable[[Unit], int]
) -> list[list[Unit]]:
    """Divide units into at most ``tasks`` non-empty task groups of similar total weight."""
    groups: list[list[Unit]] = [[] for _ in range(max(tasks, 1))]
    loads = [0] * len(groups)
    # Greedy: heaviest unit first, into the lightest group. The 1 spreads units of weight 0 too.
    for unit in sorted(found, key=weight, reverse=True):
        lightest = loads.index(min(loads))
        groups[lightest].append(unit)
        loads[lightest] += weight(unit) + 1
    return [group for group in groups if group]


def slices(parts: Iterable[Part], source: str = "", *, rows: int = 0) -> list[PartSlice]:
    """Cut parts into slices of at most ``rows`` rows (default TASK_ROWS)."""
    most = rows or TASK_ROWS
    return [
        PartSlice(part.path, source, first, min(most, part.rows - first))
        for part in parts
        for first in range(0, part.rows, most)
    ]


def chained(*functions: ArrowFunction) -> ArrowFunction:
    """Compose functions over batches, within one Python worker."""

    def chain(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for function in functions:
            rows = function(rows)
        yield from rows

    return chain


def with_marked_errors(function: ArrowFunction) -> ArrowFunction:
    """Wrap a function so that the driver can restore our typed errors (``errors.of_text``).

    Spark reports an executor's exception only as text.
    """

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from function(batches)
        except MaintError as error:
            raise RuntimeError(error.marked()) from error

    return rows


def _writes(target: Target) -> ArrowFunction:
    """Return the function that writes rows and yields the ``Written`` of its task as one row."""

    def write(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield encode_result(target.written(rows))

    return write
