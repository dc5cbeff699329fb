"""What lies under the table root: files and directories, found on executors in parallel.

First every directory is counted, then the work is cut into slices of about the same number of
entries, so that one directory with most of the files is no bottleneck (vacuum.md W19).
"""

from __future__ import annotations

import itertools
import zlib
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql import types as T

from maint_assets.delta.names import is_hidden
from maint_assets.storage import read
from maint_assets.storage.columns import arrow_schema, batch_of, column
from maint_assets.storage.location import Location
from maint_assets.storage.parts import Measure
from maint_assets.storage.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from maint_assets.storage.parts import ArrowFunction

LISTING_SCHEMA = T.StructType([
    column("path", "string", "relative to the table root, decoded"),
    column("parent", "string", "directory of the path, empty for the root"),
    column("size", "bigint", "bytes, 0 for directories"),
    column("modified_ms", "bigint", "last modification, ms"),
    column("is_dir", "boolean"),
    column("hidden", "boolean", "never a candidate and never entered"),
    column("nested_table", "boolean", "root of another Delta table, not entered"),
])

_FILES = ~pc.field("is_dir") & ~pc.field("hidden")

LISTING_MEASURES = {
    "files": Measure("count", where=_FILES),
    "bytes": Measure("sum", "size", where=_FILES),
    "directories": Measure(
        "count", where=pc.field("is_dir") & (pc.field("nested_table") | ~pc.field("hidden"))
    ),
    "hidden": Measure("count", where=pc.field("hidden") & ~pc.field("nested_table")),
    "nested_tables": Measure("count", where=pc.field("nested_table")),
    "nested_example": Measure("min", "path", where=pc.field("nested_table")),
}

SMALL_ENTRIES = 200_000
"""Up to this many entries one task lists the whole tree."""

SLICE_ENTRIES = 25_000
"""A directory with more entries than this is listed by several tasks."""

_BATCH_ROWS = 8_192
_DIRECTORIES = T.StructType([column("directory", "string"), column("entries", "bigint")])
_ARROW = arrow_schema(LISTING_SCHEMA)


class Walk(msgspec.Struct, frozen=True):
    """What decides which entries a walk enters: table, partition columns, UniForm."""

    table: str
    partition_columns: list[str]
    iceberg: bool

    @property
    def location(self) -> Location:
        """The root of the walk."""
        return Location(self.table, self.table)

    def hides(self, entry: read.Entry) -> bool:
        """Whether an entry is never a candidate and never entered (vacuum.md 6)."""
        return not entry.plain or self.hides_name(entry.name)

    def hides_name(self, name: str) -> bool:
        """Whether a name is hidden."""
        return is_hidden(name, self.partition_columns, iceberg=self.iceberg)

    def enters(self, directory: str, entry: read.Entry) -> bool:
        """Whether a walk goes into an entry: a visible directory that is no table of its own."""
        return entry.is_dir and not self.hides(entry) and not self.is_table(directory, entry)

    def is_table(self, directory: str, entry: read.Entry) -> bool:
        """Whether a directory below the root holds a Delta log of its own."""
        return read.exists(self.location, f"{_join(directory, entry.name)}/_delta_log")


def listing(spark: SparkSession, walk: Walk, *, parallelism: int) -> Rows:
    """Every visible file and directory below the table root, hidden entries as closed rows.

    Directories that vanish meanwhile are left out. Local symlinks, special files and names
    that are not UTF-8 are hidden rows; another Delta table below the root is one row.
    """
    first = Rows(_root(spark), _children(walk)).as_frame(_DIRECTORIES).repartition(parallelism * 2)
    counted = Rows(first, _counted(walk)).as_frame(_DIRECTORIES)
    slices = counted.transform(_sliced, parallelism).repartition(parallelism * 2)
    return Rows(slices, _slice_rows(walk))


def small_listing(spark: SparkSession, walk: Walk) -> Rows:
    """The same rows from one task, which gives up beyond SMALL_ENTRIES: then it is no listing."""
    return Rows(_root(spark), _tree_rows(walk, limit=SMALL_ENTRIES))


def _root(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(pa.table({"directory": [""]}))


def _sliced(counted: DataFrame, parallelism: int) -> DataFrame:
    """Slices of directories: a large one in several, by a hash of the entry's name."""
    wanted = F.ceil(F.col("entries") / SLICE_ENTRIES)
    slices = F.greatest(F.least(wanted, F.lit(parallelism * 2)), F.lit(1)).cast("long")
    return counted.select(
        "directory",
        F.explode(F.sequence(F.lit(0).cast("long"), slices - 1)).alias("slice"),
        slices.alias("slices"),
    )


def _children(walk: Walk) -> ArrowFunction:
    """The root itself and, uncounted (-1), the directories directly in it."""

    def children(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            names = list(read.directory(walk.location, ""))
            below = [e.name for e in names if walk.enters("", e)]
            yield _directories([("", len(names)), *((name, -1) for name in below)])

    return children


def _counted(walk: Walk) -> ArrowFunction:
    """Every directory at or below the given ones with the number of its entries."""

    def counted(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                if row["entries"] >= 0:
                    yield _directories([(row["directory"], row["entries"])])
                else:
                    yield from _directory_batches(walk, row["directory"])

    return counted


def _directory_batches(walk: Walk, top: str) -> Iterator[pa.RecordBatch]:
    pending, found = [top], list[tuple[str, int]]()
    while pending:
        directory = pending.pop()
        entries = 0
        for entry in read.directory(walk.location, directory):
            entries += 1
            if walk.enters(directory, entry):
                pending.append(_join(directory, entry.name))
        found.append((directory, entries))
        if len(found) >= _BATCH_ROWS:
            yield _directories(found)
            found = []
    if found:
        yield _directories(found)


def _directories(rows: list[tuple[str, int]]) -> pa.RecordBatch:
    names, entries = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(names, pa.string()), pa.array(entries, pa.int64())], ["directory", "entries"]
    )


def _tree_rows(walk: Walk, limit: int) -> ArrowFunction:
    """Rows of everything below the root, in one task; of one more than the limit at most."""

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield from _batched(walk, _tree(walk), limit=limit)

    return rows


def _tree(walk: Walk) -> Iterator[tuple[str, read.Entry]]:
    pending = [""]
    while pending:
        directory = pending.pop()
        for entry in read.directory(walk.location, directory):
            yield directory, entry
            if walk.enters(directory, entry):
                pending.append(_join(directory, entry.name))


def _slice_rows(walk: Walk) -> ArrowFunction:
    """Rows of the entries of each slice, directories not entered."""

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                yield from _batched(walk, _slice(walk, row))

    return rows


def _slice(walk: Walk, row: dict[str, Any]) -> Iterator[tuple[str, read.Entry]]:
    for entry in read.directory(walk.location, row["directory"]):
        if row["slices"] == 1 or _is_in(entry.name, row):
            yield row["directory"], entry


def _batched(
    walk: Walk, entries: Iterable[tuple[str, read.Entry]], *, limit: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Rows of the entries that are still there; of one more than the limit at most."""
    there = ((*each, found) for each in entries if (found := each[1].size_and_mtime()) is not None)
    rows: list[tuple[Any, ...]] = []
    for directory, entry, found in itertools.islice(there, None if limit is None else limit + 1):
        hidden = walk.hides(entry)
        nested = entry.is_dir and not hidden and walk.is_table(directory, entry)
        path = _join(directory, entry.name)
        if not entry.plain:
            path = path.encode("utf-8", "backslashreplace").decode()
        rows.append((path, directory, *found, entry.is_dir, hidden or nested, nested))
        if len(rows) >= _BATCH_ROWS:
            yield batch_of(rows, _ARROW)
            rows = []
    yield batch_of(rows, _ARROW)


def _is_in(name: str, row: dict[str, int]) -> bool:
    return zlib.crc32(name.encode("utf-8", "surrogateescape")) % row["slices"] == row["slice"]


def _join(directory: str, name: str) -> str:
    return f"{directory}/{name}" if directory else name
