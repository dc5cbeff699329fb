"""What lies under the table root by another's account: VACUUM USING INVENTORY (vacuum.md 7.2).

The rules of a listing hold here too: hidden names at any depth (W6), other Delta tables left alone,
nothing outside the root. Whether a row is still true is for the deletion to see.
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
from maint_assets.datasets.rows import Rows, packed, units
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
"""The columns of an inventory, and how they may be spelled; Delta's own is ``length``."""

_OUTSIDE = are_outside(pc.field("path"))

INSIDE = ~_OUTSIDE
"""The rows of an inventory that are rows of a listing: all others are only counted."""

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
"""No file is of 1970 to 1973, or of the year 5138: such a time is in seconds or microseconds."""

_MOST_CHARACTERS = 4_096
"""No file system takes a longer path, nor one with a NUL."""

_REMEDY = "it needs path (string), size or length (bytes), isDir and modificationTime (ms)"


class File(msgspec.Struct, frozen=True):
    """One Parquet file of an inventory."""

    path: str
    size: int


def inventory(
    spark: SparkSession, source: str, walk: Walk, *, parallelism: int, scratch: str
) -> list[Rows]:
    """The entries of an inventory as rows of a listing: LISTING_SCHEMA.

    ``source`` is a Parquet file, a directory of them, a Delta table, or the name of a Spark
    table; columns in any order, other columns allowed. Raises InventoryError.
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
    packages = packed(files, parallelism, weight=lambda file: file.size)

    def entries(some: list[File]) -> Iterator[pa.RecordBatch]:
        place = _Place(walk)
        for file in some:
            yield from _entries(file.path, place)

    return [units(spark, packages, entries, kind=File)]


@contextmanager
def unreadable(source: str, *, table: str) -> Generator[None, None, None]:
    """InventoryError for a Spark table of which Spark cannot read a row."""
    try:
        yield
    except PySparkException as error:
        if _is_path(source) or of_text(str(error)) is not None or _is_cancelled(error):
            raise
        why = error.getCondition() or one_line(error)
        found = f"the inventory {source} cannot be read by Spark ({why})"
        raise InventoryError(table, found, "mend the table or view") from error


def refuse_elsewhere(source: str, *, table: str, inside: int, outside: int, example: str) -> None:
    """InventoryError for an inventory that tells of other places than the table."""
    if outside and not inside:
        raise InventoryError(
            table,
            f"none of the {outside} paths of the inventory {source} lies in the table, "
            f"{example} among them",
            "give paths as the table's own location is given, file: URIs, or relative ones",
        )


def _is_cancelled(error: PySparkException) -> bool:
    return "CANCELLED" in (error.getCondition() or "")


def _is_path(source: str) -> bool:
    return "/" in source or ":" in source or Path(source).exists()


def _parquet_files(place: Path) -> list[Path]:
    """Parquet files at or below a place, hidden ones (Spark's ``_SUCCESS``) left out."""
    if place.is_file():
        return [place]
    return [
        path
        for path in sorted(place.rglob("*.parquet"))
        if not any(part.startswith(("_", ".")) for part in path.relative_to(place).parts)
    ]


def _of_spark_table(spark: SparkSession, name: str, walk: Walk) -> Rows:
    try:
        is_there = spark.catalog.tableExists(name)
    except PySparkException as error:
        found = f"the inventory {name!r} is no name of a table ({one_line(error) or 'not valid'})"
        raise InventoryError(walk.table, found, "name a path or a table") from error
    if not is_there:
        raise InventoryError(walk.table, f"there is no inventory {name}", "name a path or a table")
    frame = spark.table(name)
    columns = _columns(frame.columns, walk.table)
    selected = frame.select(*(frame[found].alias(wanted) for wanted, found in columns.items()))

    def entries(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        place = _Place(walk)
        for batch in batches:
            yield _listed(pa.Table.from_batches([batch]), place)

    return Rows(selected, entries)


def _of_delta_table(
    spark: SparkSession, location: Location, walk: Walk, *, parallelism: int, scratch: str
) -> list[Rows]:
    """The rows of a Delta table, read by ourselves: plain tables only."""
    head = table_head(location)
    odd = {"columnMapping", "deletionVectors"} & {*(head.protocol.reader_features or ())}
    if odd or head.metadata.partition_columns or head.protocol.min_reader_version == 2:  # noqa: PLR2004
        raise InventoryError(
            walk.table,
            f"the inventory {location.uri} has partitions, column mapping or deletion vectors",
            "write it as a plain Delta table, or as Parquet",
        )

    def entries(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        place = _Place(walk)
        for batch in batches:
            for path in batch["path"].filter(pc.equal(batch["action"], "add")).to_pylist():
                file = path if is_outside(path) else f"{location.path}/{path}"
                yield from _entries(file.removeprefix("file://"), place)

    return [
        rows.then(entries)
        for rows in snapshot(spark, head, parallelism=parallelism, scratch=scratch)
    ]


def _entries(path: str, place: _Place) -> Iterator[pa.RecordBatch]:
    """The entries that one Parquet file names."""
    try:
        with pq.ParquetFile(path) as file:
            columns = _columns(file.schema_arrow.names, place.table)
            for batch in file.iter_batches(columns=list(columns.values())):
                table = pa.Table.from_batches([batch]).select(list(columns.values()))
                yield _listed(table.rename_columns(list(columns)), place)
    except FileNotFoundError as error:
        raise InventoryError(
            place.table, f"inventory file {path} is gone", "write it anew"
        ) from error
    except (OSError, pa.ArrowException) as error:
        raise InventoryError(
            place.table, f"inventory {path} cannot be read ({one_line(error)})", _REMEDY
        ) from error


def _columns(names: Iterable[str], table: str) -> dict[str, str]:
    """The inventory's own name of each column that is needed."""
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


def _refuse_odd(sizes: pa.ChunkedArray, place: _Place) -> None:
    """InventoryError for sizes that no file has: their sum would mean nothing."""
    found = pc.min_max(sizes)
    least, most = found["min"].as_py(), found["max"].as_py()
    if least is not None and (least < 0 or most > _MOST_BYTES):
        odd = least if least < 0 else most
        raise InventoryError(place.table, f"the inventory has a file of {odd} bytes", _REMEDY)


def _refuse_other_unit(times: pa.ChunkedArray, place: _Place) -> None:
    """InventoryError for times in seconds or microseconds: files would look too old, or too new."""
    is_s = pc.and_(pc.greater_equal(times, _SECONDS), pc.less(times, LEAST_MS))
    odd = times.filter(pc.or_(is_s, pc.greater(times, _MOST_MS)))
    if len(odd):
        found = f"modificationTime {odd[0]} of the inventory is not in ms"
        raise InventoryError(place.table, found, _REMEDY)


def _listed(rows: pa.Table, place: _Place) -> pa.RecordBatch:
    """Rows of an inventory as rows of a listing; those without a path or a time say nothing."""
    if pa.types.is_timestamp(rows["modificationTime"].type):
        raise InventoryError(place.table, "modificationTime of the inventory is no number", _REMEDY)
    try:
        columns = {name: pc.cast(rows[name], kind) for name, kind in _TYPES.items()}
    except pa.ArrowException as error:
        raise InventoryError(
            place.table, f"the inventory has other types ({one_line(error)})", _REMEDY
        ) from error
    _refuse_odd(columns["size"], place)
    _refuse_other_unit(columns["modificationTime"], place)
    entries = zip(*(column.to_pylist() for column in columns.values()), strict=True)
    return batch_of((row for entry in entries for row in place.rows(entry)), _ARROW)


class _Place:
    """Where paths of an inventory lie in a table; what is known of directories is kept."""

    def __init__(self, walk: Walk) -> None:
        self.table = walk.table
        self._walk, self._root, self._entered = walk, TableRoot.of(walk.table), Entered(walk)

    def rows(self, entry: _Entry) -> Iterator[tuple[Any, ...]]:
        """The listing's row of an entry, none where a listing would not have come.

        One outside of the table keeps its whole path: it is counted, and not listed.
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
            hidden = nested or self._walk.hides_directory(name)
            yield path, directory, 0, modified_ms, True, hidden, nested
        else:
            yield path, directory, size or 0, modified_ms, False, self._walk.hides_file(name), False
