"""VACUUM USING INVENTORY: the listing is read from a given inventory instead of the storage.

The rules of a listing hold here too: names are hidden at any depth (Delta Spark tests the whole
relative path, and so deletes ``a/_hidden/x``), other Delta tables are left alone, and nothing
outside of the root is listed. An inventory may be out of date: the deletion checks each file.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.errors import PySparkException

from maint_assets.datasets.columns import arrow_schema, batch_of
from maint_assets.datasets.parts import Measure
from maint_assets.datasets.rows import Rows, task_groups, units
from maint_assets.delta.paths import TableRoot, is_outside, relative_name
from maint_assets.delta.timestamps import LEAST_MS
from maint_assets.errors import InventoryError, of_text, one_line
from maint_assets.snapshot.head import table_head
from maint_assets.snapshot.log import LOG
from maint_assets.snapshot.replay import snapshot
from maint_assets.snapshot.resolved_paths import are_outside, through_links
from maint_assets.storage.location import Location
from maint_assets.vacuum.listing import LISTING_MEASURES, LISTING_SCHEMA
from maint_assets.vacuum.walk import Entered

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from pyspark.sql import SparkSession

    from maint_assets.vacuum.walk import Walk

NAMES = {
    "path": ("path",),
    "size": ("size", "length"),
    "isDir": ("isdir",),
    "modificationTime": ("modificationtime",),
}
"""The columns of an inventory and their accepted names in lower case; Delta's is ``length``."""

_OUTSIDE = are_outside(pc.field("path"))

INSIDE = ~_OUTSIDE
"""The rows of an inventory that belong to the listing; all others are only counted."""

INVENTORY_MEASURES = LISTING_MEASURES | {
    "hidden": Measure("count", where=INSIDE & pc.field("hidden") & ~pc.field("nested_table")),
    "outside": Measure("count", where=_OUTSIDE),
    "outside_example": Measure("min", "path", where=_OUTSIDE),
}

_Entry = tuple[Any, ...]
_ARROW = arrow_schema(LISTING_SCHEMA)
_TYPES = {
    "path": pa.string(),
    "size": pa.int64(),
    "isDir": pa.bool_(),
    "modificationTime": pa.int64(),
}
_MOST_BYTES = 2**50
_SECONDS, _MOST_MS = 1_000_000_000, 100_000_000_000_000
"""Bounds that detect another unit than ms: read as ms, today's seconds are a time in 1970, and
today's microseconds a time after the year 5138."""

_MOST_CHARACTERS = 4_096
"""The longest path that a file system accepts (PATH_MAX of Linux)."""

_REMEDY = "it needs path (string), size or length (bytes), isDir and modificationTime (ms)"


class File(msgspec.Struct, frozen=True):
    """One Parquet file of an inventory."""

    path: str
    size: int


def inventory(
    spark: SparkSession, source: str, walk: Walk, *, parallelism: int, scratch: str
) -> list[Rows]:
    """The entries of an inventory as rows of LISTING_SCHEMA.

    ``source`` is a Parquet file, a directory of Parquet files, a Delta table, or the name of a
    Spark table. Columns may be in any order, and other columns are ignored. Raises InventoryError.
    """
    if not _is_path(source):
        return [_of_spark_table(spark, source, walk)]
    location = Location.of(source)
    if Path(location.path, LOG).is_dir():
        return _of_delta_table(spark, location, walk, parallelism=parallelism, scratch=scratch)
    found = [path for path in _parquet_files(Path(location.path)) if path.is_file()]
    if not found:
        raise InventoryError(walk.table, f"the inventory {source} holds no Parquet file", _REMEDY)
    files = [File(str(path), path.stat().st_size) for path in found]
    groups = task_groups(files, parallelism, weight=lambda file: file.size)

    def entries(group: list[File]) -> Iterator[pa.RecordBatch]:
        listed = _ListedRows(walk)
        for file in group:
            yield from _entries(file.path, listed)

    return [units(spark, groups, entries, kind=File)]


@contextmanager
def unreadable(source: str, *, table: str) -> Generator[None, None, None]:
    """Raise InventoryError in place of Spark's error when Spark cannot read the inventory's table.

    Errors of files named by a path, our own errors and cancelled jobs pass unchanged.
    """
    try:
        yield
    except PySparkException as error:
        if _is_path(source) or of_text(str(error)) is not None or _is_cancelled(error):
            raise
        why = error.getCondition() or one_line(error)
        found = f"the inventory {source} cannot be read by Spark ({why})"
        raise InventoryError(table, found, "repair the table or view") from error


def refuse_elsewhere(source: str, *, table: str, inside: int, outside: int, example: str) -> None:
    """Raise InventoryError when all paths of an inventory are outside of the table."""
    if outside and not inside:
        raise InventoryError(
            table,
            f"none of the {outside} paths of the inventory {source} is inside the table, "
            f"{example} among them",
            "give paths below the table's location, as file: URIs, or relative to the table root",
        )


def _is_cancelled(error: PySparkException) -> bool:
    return "CANCELLED" in (error.getCondition() or "")


def _is_path(source: str) -> bool:
    return "/" in source or ":" in source or Path(source).exists()


def _parquet_files(source: Path) -> list[Path]:
    """Parquet files at or below a path, hidden ones (Spark's ``_temporary``) left out."""
    if source.is_file():
        return [source]
    return [
        path
        for path in sorted(source.rglob("*.parquet"))
        if not any(part.startswith(("_", ".")) for part in path.relative_to(source).parts)
    ]


def _of_spark_table(spark: SparkSession, name: str, walk: Walk) -> Rows:
    try:
        is_there = spark.catalog.tableExists(name)
    except PySparkException as error:
        found = f"the inventory {name!r} is no table name ({one_line(error) or 'not valid'})"
        raise InventoryError(walk.table, found, "give a path or the name of a table") from error
    if not is_there:
        raise InventoryError(
            walk.table, f"the inventory {name} does not exist", "give a path or the name of a table"
        )
    frame = spark.table(name)
    columns = _columns(frame.columns, walk.table)
    selected = frame.select(*(frame[found].alias(wanted) for wanted, found in columns.items()))

    def entries(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        listed = _ListedRows(walk)
        for batch in batches:
            yield _listed(pa.Table.from_batches([batch]), listed)

    return Rows(selected, entries)


def _of_delta_table(
    spark: SparkSession, location: Location, walk: Walk, *, parallelism: int, scratch: str
) -> list[Rows]:
    """The rows of a Delta table without partitions, column mapping or deletion vectors.

    Its live files are read as Parquet, without a Delta reader: Spark may have none.
    """
    head = table_head(location)
    odd = {"columnMapping", "deletionVectors"} & {*(head.protocol.reader_features or ())}
    if odd or head.metadata.partition_columns or head.protocol.min_reader_version == 2:  # noqa: PLR2004
        raise InventoryError(
            walk.table,
            f"the inventory {location.uri} has partitions, column mapping or deletion vectors",
            "write it as a plain Delta table, or as Parquet",
        )

    def entries(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        listed = _ListedRows(walk)
        for batch in batches:
            for path in batch["path"].filter(pc.equal(batch["action"], "add")).to_pylist():
                file = path if is_outside(path) else f"{location.path}/{path}"
                yield from _entries(file.removeprefix("file://"), listed)

    return [
        rows.then(entries)
        for rows in snapshot(spark, head, parallelism=parallelism, scratch=scratch)
    ]


def _entries(path: str, listed: _ListedRows) -> Iterator[pa.RecordBatch]:
    """The entries of one Parquet file, as batches of LISTING_SCHEMA."""
    try:
        with pq.ParquetFile(path) as file:
            columns = _columns(file.schema_arrow.names, listed.table)
            for batch in file.iter_batches(columns=list(columns.values())):
                table = pa.Table.from_batches([batch]).select(list(columns.values()))
                yield _listed(table.rename_columns(list(columns)), listed)
    except FileNotFoundError as error:
        raise InventoryError(
            listed.table, f"inventory file {path} no longer exists", "write the inventory again"
        ) from error
    except (OSError, pa.ArrowException) as error:
        raise InventoryError(
            listed.table, f"inventory {path} cannot be read ({one_line(error)})", _REMEDY
        ) from error


def _columns(names: Iterable[str], table: str) -> dict[str, str]:
    """The names that the needed columns have in the inventory, by their names in NAMES."""
    every = list(names)
    known = {name.lower(): name for name in reversed(every)}
    found = {
        wanted: next((known[name] for name in spelled if name in known), None)
        for wanted, spelled in NAMES.items()
    }
    missing = [wanted for wanted, name in found.items() if name is None]
    if missing:
        raise InventoryError(table, f"the inventory lacks the column {missing[0]}", _REMEDY)
    twice = [name for name in found.values() if every.count(name or "") > 1]
    if twice:
        raise InventoryError(table, f"the inventory has the column {twice[0]} twice", _REMEDY)
    return {wanted: name for wanted, name in found.items() if name is not None}


def _refuse_odd(sizes: pa.ChunkedArray, listed: _ListedRows) -> None:
    """Raise InventoryError for sizes that no file has: their sum would be meaningless."""
    found = pc.min_max(sizes)
    least, most = found["min"].as_py(), found["max"].as_py()
    if least is not None and (least < 0 or most > _MOST_BYTES):
        odd = least if least < 0 else most
        raise InventoryError(listed.table, f"the inventory has a file of {odd} bytes", _REMEDY)


def _refuse_other_unit(times: pa.ChunkedArray, listed: _ListedRows) -> None:
    """Raise InventoryError for times in seconds or microseconds.

    Read as ms, seconds would make every file old enough to delete, and microseconds none.
    """
    is_s = pc.and_(pc.greater_equal(times, _SECONDS), pc.less(times, LEAST_MS))
    odd = times.filter(pc.or_(is_s, pc.greater(times, _MOST_MS)))
    if len(odd):
        found = f"modificationTime {odd[0]} of the inventory is not in ms"
        raise InventoryError(listed.table, found, _REMEDY)


def _listed(rows: pa.Table, listed: _ListedRows) -> pa.RecordBatch:
    """Rows of an inventory that have a path and a time, as rows of LISTING_SCHEMA."""
    # A timestamp would be cast to a number in its own unit, which may not be ms.
    if pa.types.is_timestamp(rows["modificationTime"].type):
        raise InventoryError(
            listed.table, "modificationTime of the inventory is not a number", _REMEDY
        )
    try:
        columns = {name: pc.cast(rows[name], kind) for name, kind in _TYPES.items()}
    except pa.ArrowException as error:
        raise InventoryError(
            listed.table, f"the inventory has wrong column types ({one_line(error)})", _REMEDY
        ) from error
    _refuse_odd(columns["size"], listed)
    _refuse_other_unit(columns["modificationTime"], listed)
    entries = zip(*(column.to_pylist() for column in columns.values()), strict=True)
    return batch_of((row for entry in entries for row in listed.rows(entry)), _ARROW)


class _ListedRows:
    """Convert entries of an inventory to rows of a listing; knowledge of directories is cached."""

    def __init__(self, walk: Walk) -> None:
        self.table = walk.table
        self._walk, self._root, self._entered = walk, TableRoot.of(walk.table), Entered(walk)

    def rows(self, entry: _Entry) -> Iterator[tuple[Any, ...]]:
        """The row of an entry; no row where a listing would not enter the directory.

        A path outside of the table gives a row with the whole path, which is only counted.
        """
        raw, size, is_dir, modified_ms = entry
        if raw is None or modified_ms is None or "\0" in raw or len(raw) > _MOST_CHARACTERS:
            return
        path = through_links(relative_name(raw, self._root), self._root)
        if is_outside(path):
            yield path, "", 0, 0, False, True, False
        if not path or is_outside(path) or not self._entered.reaches(path):
            return
        directory, _, name = path.rpartition("/")
        if is_dir:
            nested = self._entered.is_table(path)
            hidden = nested or self._walk.hides_directory(name) or path in self._walk.of_log
            yield path, directory, 0, modified_ms, True, hidden, nested
        else:
            hidden = self._walk.hides_file(name) or path in self._walk.of_log
            yield path, directory, size or 0, modified_ms, False, hidden, False
