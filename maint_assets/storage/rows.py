"""Rows that Spark's executors make: units of work, divided among tasks, and what tasks wrote.

A job of one task costs Spark about as much as the work of a small table. So a stage is one job,
its steps are chained inside one Python function, and only rows that have to meet others of their
key go through a shuffle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import msgspec
import pyarrow as pa
from pyspark.sql import types as T

from maint_assets.errors import MaintError
from maint_assets.storage.columns import arrow_schema, batch_of, column
from maint_assets.storage.parts import PartSlice, Written, slice_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from maint_assets.storage.parts import ArrowFunction, Part, Target

_VALUES = T.StructType([column("value", "string", "JSON")])
_VALUES_ARROW = arrow_schema(_VALUES)

Unit = TypeVar("Unit", bound=msgspec.Struct)
Value = TypeVar("Value")

TASK_ROWS = 100_000
"""Work over fewer rows is not worth another task."""


@dataclass(frozen=True)
class Rows:
    """Rows that a function makes of those of a frame, task by task, when they are asked for.

    ``tasks`` is how many tasks that are, None where only Spark knows.
    """

    frame: DataFrame
    function: ArrowFunction
    tasks: int | None = None

    def then(self, *functions: ArrowFunction) -> Rows:
        """The rows that more functions make of these, in the same tasks."""
        return Rows(self.frame, chained(self.function, *functions), self.tasks)

    def as_frame(self, schema: T.StructType) -> DataFrame:
        """The rows as a frame."""
        return self.frame.mapInArrow(marked(self.function), schema)

    def write(self, target: Target) -> Written:
        """What the tasks wrote together."""
        total = target.nothing()
        for written in self.then(_writes(target)).values(Written):
            total = total.plus(written, target.measures)
        return total

    def values(self, kind: type[Value]) -> list[Value]:
        """What the tasks tell (``told``), on the driver: as few as there are tasks or units."""
        texts = self.as_frame(_VALUES).collect()
        return [msgspec.json.decode(row["value"], type=kind) for row in texts]


def units(
    spark: SparkSession,
    packages: Sequence[Sequence[Unit]],
    function: Callable[[list[Unit]], Iterator[pa.RecordBatch]],
    *,
    kind: type[Unit],
) -> Rows:
    """The rows that a function makes of each package of units, one task a package.

    A range has exactly as many partitions as it is asked for, a frame of local rows only as many
    as there are cores: two packages of one task would meet in the functions that follow.
    """
    texts = [msgspec.json.encode(package) for package in packages]

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                yield from function(msgspec.json.decode(texts[number], type=list[kind]))

    tasks = max(len(texts), 1)
    return Rows(spark.range(0, len(texts), 1, tasks), rows, tasks)


def part_rows(
    spark: SparkSession, parts: Iterable[Part], *, parallelism: int, task_rows: int = 0
) -> Rows:
    """The rows of parts as they were written, in as many tasks as they are worth.

    One task is worth ``task_rows``, without that number TASK_ROWS.
    """

    def read(some: list[PartSlice]) -> Iterator[pa.RecordBatch]:
        for part in some:
            yield from slice_batches(part)

    cut = slices(parts, rows=task_rows)
    packages = packed(cut, parallelism, weight=lambda part: part.rows) or [[]]
    return units(spark, packages, read, kind=PartSlice)


def told(value: object) -> pa.RecordBatch:
    """A value that a task tells the driver: see ``Rows.values``."""
    return batch_of([(msgspec.json.encode(value).decode(),)], _VALUES_ARROW)


def packed(found: Iterable[Unit], tasks: int, *, weight: Callable[[Unit], int]) -> list[list[Unit]]:
    """The units in at most ``tasks`` packages of about the same weight; none is empty."""
    packages: list[list[Unit]] = [[] for _ in range(max(tasks, 1))]
    loads = [0] * len(packages)
    for unit in sorted(found, key=weight, reverse=True):
        lightest = loads.index(min(loads))
        packages[lightest].append(unit)
        loads[lightest] += weight(unit) + 1
    return [package for package in packages if package]


def slices(parts: Iterable[Part], source: str = "", *, rows: int = 0) -> list[PartSlice]:
    """Parts cut into slices of at most that many rows, without a number of TASK_ROWS."""
    most = rows or TASK_ROWS
    return [
        PartSlice(part.path, source, first, min(most, part.rows - first))
        for part in parts
        for first in range(0, part.rows, most)
    ]


def chained(*functions: ArrowFunction) -> ArrowFunction:
    """One function that hands the rows of each to the next, within one Python worker."""

    def chain(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for function in functions:
            rows = function(rows)
        yield from rows

    return chain


def marked(function: ArrowFunction) -> ArrowFunction:
    """The function, whose typed errors reach the driver as such: see ``errors.of_text``."""

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from function(batches)
        except MaintError as error:
            raise RuntimeError(error.marked()) from error

    return rows


def _writes(target: Target) -> ArrowFunction:
    """The function that writes rows, and yields one row that says what it wrote."""

    def write(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield told(target.written(rows))

    return write
