"""The listing of the table root: its files and directories, found on executors in parallel.

First the entries of every directory are counted, then the work is cut into slices of similar size,
so that one directory with most of the files is no bottleneck, as it is for Delta Spark, which lists
a flat table in one task.
"""

from __future__ import annotations

import stat
import zlib
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql import types as T

from maint_assets.datasets.columns import arrow_schema, column
from maint_assets.datasets.parts import Measure
from maint_assets.datasets.rows import Rows, task_groups, units
from maint_assets.storage import read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from maint_assets.datasets.parts import ArrowFunction
    from maint_assets.vacuum.walk import Walk

LISTING_SCHEMA = T.StructType([
    column("path", "string", "relative to the table root, decoded"),
    column("parent", "string", "directory of the path, empty for the root"),
    column("size", "bigint", "bytes, 0 for directories, -1 for links"),
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
"""With up to this many entries, one task lists the whole tree."""

SLICE_ENTRIES = 25_000
"""A directory with more entries than this is divided into slices, each listed by a task."""

LINK_SIZE = -1
"""The size of a symbolic link, which is no file of its own."""

_BATCH_ROWS = 8_192
_DIRECTORIES = T.StructType([column("directory", "string"), column("entries", "bigint")])
_ARROW = arrow_schema(LISTING_SCHEMA)
_KIND = stat.S_IFMT(0xFFFF)


def listing(spark: SparkSession, walk: Walk, *, parallelism: int) -> Rows:
    """All entries below the table root, as rows of LISTING_SCHEMA.

    A hidden directory is one row, and is not entered; so is the root of another Delta table.
    Symbolic links, special files and names that are not UTF-8 are hidden rows. Directories deleted
    during the listing are left out.
    """
    first = Rows(_root(spark), _children(walk)).as_frame(_DIRECTORIES).repartition(parallelism * 2)
    counted = Rows(first, _counted(walk)).as_frame(_DIRECTORIES)
    slices = counted.transform(_sliced, parallelism).repartition(parallelism * 2)
    return Rows(slices, _slice_rows(walk))


def small_listing(spark: SparkSession, walk: Walk, *, tasks: int = 1) -> Rows:
    """The rows of ``listing`` for a small table: trees are listed without counting them first.

    A task stops after SMALL_ENTRIES rows. A result with more rows is incomplete: use ``listing``.
    """
    tops = [_Top("", deep=True)] if tasks == 1 else _tops(walk)
    groups = task_groups(tops, tasks, weight=lambda _: 1)
    return units(spark, groups, _tree_rows(walk, limit=SMALL_ENTRIES), kind=_Top)


def _root(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(pa.table({"directory": [""]}))


def _sliced(counted: DataFrame, parallelism: int) -> DataFrame:
    """Slices of directories: a large one is divided by a hash of the entry's name."""
    wanted = F.ceil(F.col("entries") / SLICE_ENTRIES)
    slices = F.greatest(F.least(wanted, F.lit(parallelism * 2)), F.lit(1)).cast("long")
    return counted.select(
        "directory",
        F.explode(F.sequence(F.lit(0).cast("long"), slices - 1)).alias("slice"),
        slices.alias("slices"),
    )


def _children(walk: Walk) -> ArrowFunction:
    """The root with the number of its entries, and its directories, not yet counted (-1)."""

    def children(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            entries, names = read.count(walk.location, "")
            below = [(f"{name}/", -1) for name in names if walk.enters("", name)]
            yield _directories([("", entries), *below])

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
        entries, names = read.count(walk.location, directory)
        pending += [f"{directory}{name}/" for name in names if walk.enters(directory, name)]
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


class _Top(msgspec.Struct, frozen=True):
    """A directory to list: with all levels below it if ``deep``, else its own entries only."""

    directory: str
    deep: bool


def _tops(walk: Walk) -> list[_Top]:
    """The root and each tree below it; one tree if the root has more than _BATCH_ROWS entries."""
    entries, names = read.count(walk.location, "")
    if entries > _BATCH_ROWS:
        return [_Top("", deep=True)]
    below = (_Top(f"{name}/", deep=True) for name in names if walk.enters("", name))
    return [_Top("", deep=False), *below]


def _tree_rows(walk: Walk, limit: int) -> Callable[[list[_Top]], Iterator[pa.RecordBatch]]:
    """A function that lists trees and stops at the first batch that exceeds ``limit`` rows."""

    def rows(tops: list[_Top]) -> Iterator[pa.RecordBatch]:
        listed = 0
        for batch in _batched(walk, (each for top in tops for each in _tree(walk, top))):
            yield batch
            listed += batch.num_rows
            if listed > limit:
                return

    return rows


def _tree(walk: Walk, top: _Top) -> Iterator[tuple[str, read.Entries]]:
    pending = [top.directory]
    while pending:
        directory = pending.pop()
        for entries in read.directory(walk.location, directory):
            yield directory, entries
            if top.deep:
                below = (name for name in entries.directories() if walk.enters(directory, name))
                pending += [f"{directory}{name}/" for name in below]


def _slice_rows(walk: Walk) -> ArrowFunction:
    """A function that lists the entries of slices, without entering directories."""

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from _batched(
                walk, (each for row in batch.to_pylist() for each in _slice(walk, row))
            )

    return rows


def _slice(walk: Walk, row: dict[str, Any]) -> Iterator[tuple[str, read.Entries]]:
    wanted = None if row["slices"] == 1 else partial(_is_in, row=row)
    for entries in read.directory(walk.location, row["directory"], wanted=wanted):
        yield row["directory"], entries


def _batched(walk: Walk, found: Iterable[tuple[str, read.Entries]]) -> Iterator[pa.RecordBatch]:
    """Rows of the entries of directories, in batches of at least _BATCH_ROWS but the last."""
    pending: list[tuple[str, read.Entries]] = []
    rows = 0
    for directory, entries in found:
        pending.append((directory, entries))
        rows += len(entries.names)
        if rows >= _BATCH_ROWS:
            yield _rows(walk, pending)
            pending, rows = [], 0
    yield _rows(walk, pending)


def _rows(walk: Walk, listed: list[tuple[str, read.Entries]]) -> pa.RecordBatch:
    """Entries of directories as a batch of LISTING_SCHEMA."""
    columns = zip(*(entries for _, entries in listed), strict=True) if listed else [()] * 4
    names, modes, sizes, modified_ms = (list(chain.from_iterable(each)) for each in columns)
    directories = [directory for directory, entries in listed for _ in entries.names]
    spelled, plain = _in_utf8(names)
    kind = pc.bit_wise_and(pa.array(modes, pa.int64()), _KIND)
    is_dir = pc.equal(kind, stat.S_IFDIR)
    plain = pc.and_(plain, pc.or_(is_dir, pc.equal(kind, stat.S_IFREG)))
    above = pa.array(directories, pa.string())
    path = pc.binary_join_element_wise(above, spelled, "")
    # A regular expression on the batch spares most names the Python calls.
    odd = _may_hide(spelled, walk)
    hidden = _where(walk.hides_directory, spelled, pc.and_(odd, is_dir))
    hidden = pc.or_(hidden, _where(walk.hides_file, spelled, pc.and_not(odd, is_dir)))
    if walk.of_log:
        hidden = pc.or_(hidden, pc.is_in(path, pa.array(walk.of_log, pa.string())))
    closed = pc.or_(pc.invert(plain), hidden)
    nested = _where(walk.is_table, path, pc.and_(is_dir, pc.invert(closed)))
    size = pc.if_else(is_dir, 0, pa.array(sizes, pa.int64()))
    size = pc.if_else(pc.equal(kind, stat.S_IFLNK), LINK_SIZE, size)
    parent = pc.utf8_rtrim(above, characters="/")
    times = pa.array(modified_ms, pa.int64())
    arrays = [path, parent, size, times, is_dir, pc.or_(closed, nested), nested]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


def _in_utf8(names: list[str]) -> tuple[pa.Array, pa.Array]:
    """The names with bytes that are not UTF-8 escaped, and a mask of the names without any."""
    try:
        return pa.array(names, pa.string()), pa.repeat(pa.scalar(value=True), len(names))
    except UnicodeEncodeError:
        escaped = [name.encode("utf-8", "backslashreplace").decode() for name in names]
        return pa.array(escaped, pa.string()), pa.array(map(read.is_utf8, names), pa.bool_())


def _may_hide(names: pa.Array, walk: Walk) -> pa.Array:
    """Mask of the names that may be hidden; all others are visible."""
    odd = pc.match_substring_regex(names, r"^(?:[_.]|[0-9]{20}\.)")
    return pc.or_(odd, pc.equal(names, "metadata")) if walk.iceberg else odd


def _where(predicate: Callable[[str], bool], texts: pa.Array, mask: pa.Array) -> pa.Array:
    """Mask of the texts for which ``predicate`` holds, evaluated only where ``mask`` holds."""
    answers = pa.array([predicate(text) for text in texts.filter(mask).to_pylist()], pa.bool_())
    return pc.replace_with_mask(mask, mask, answers)


def _is_in(name: str, row: dict[str, int]) -> bool:
    return zlib.crc32(name.encode("utf-8", "surrogateescape")) % row["slices"] == row["slice"]
