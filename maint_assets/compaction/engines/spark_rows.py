"""The live rows of bins as Spark reads them, in the columns of new files.

Spark reads the data files through symbolic links in a directory per bin, named by bin and position
in it. So no name of a data file is mistaken for a glob pattern, a hidden file or a partition, and
``_metadata.file_name`` identifies the input. Objects of a store are copied to there instead, so
that Spark needs no connector for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql import types as T

from maint_assets.compaction.columns.spark_schema import spark_schema, spark_type
from maint_assets.compaction.reading.data_files import footer_of
from maint_assets.compaction.reading.deleted_rows import deleted_rows
from maint_assets.compaction.reading.hazards import names_calendar
from maint_assets.compaction.reading.locations import data_file_of
from maint_assets.datasets.columns import arrow_schema, batch_of, column
from maint_assets.datasets.rows import task_groups, units
from maint_assets.delta.actions import Add, DeletionVector
from maint_assets.storage import read

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from maint_assets.compaction.columns.physical import FileSchema
    from maint_assets.compaction.reading.locations import StoredFile
    from maint_assets.compaction.writing.target import Rewriting
    from maint_assets.storage.location import Location

_RESERVED = "__maint_assets_"
BIN, POSITION, FILE, ROW = (f"{_RESERVED}{name}" for name in ("bin", "at", "file", "row"))
_FIRST_ID, _VERSION, _VALUES = (f"{_RESERVED}{name}" for name in ("id", "version", "values"))

_FILES = T.StructType([
    column(FILE, "string", "name of the link"),
    column(BIN, "string", "id of the bin"),
    column(POSITION, "bigint", "position of the file in its bin"),
    column(_FIRST_ID, "bigint", "base row id", nullable=True),
    column(_VERSION, "bigint", "default row commit version", nullable=True),
    column(_VALUES, "string", "partition values by physical name, JSON"),
])
_FILES_ARROW = arrow_schema(_FILES)

_DELETED = T.StructType([column(FILE, "string"), column(ROW, "bigint")])
_DELETED_ARROW = arrow_schema(_DELETED)

_VECTOR_ROWS = 65_536

MOST_TASKS = 200
"""The most tasks of a job over bins or files."""

# If a file's footer does not name its calendar, its dates before 1582 and timestamps before 1900
# are ambiguous, and reading them fails. For all other files the option changes nothing.
_CALENDARS = {"known": "CORRECTED", "unknown": "EXCEPTION"}


class SparkBin(msgspec.Struct, frozen=True):
    """A bin that Spark rewrites: its adds, and the number of live rows of each."""

    bin: str
    adds: list[Add]
    rows: list[int]

    def links(self) -> list[tuple[str, Add]]:
        """The name of the link to each file."""
        return [(f"{self.bin}-{at}.parquet", add) for at, add in enumerate(self.adds)]


class _Vector(msgspec.Struct, frozen=True):
    """A file with a deletion vector, by the name of its link."""

    link: str
    vector: DeletionVector


class SparkInputs:
    """The data files of bins, linked from a scratch directory."""

    def __init__(
        self, session: SparkSession, bins: Sequence[SparkBin], how: Rewriting, *, scratch: str
    ) -> None:
        """Link the files, on executors. Raises StorageError for one that cannot be opened."""
        self._session, self._how = session, how
        self._directory, location = f"{scratch}/in", how.location

        def link(some: list[SparkBin]) -> Iterator[pa.RecordBatch]:
            for each in some:
                yield batch_of(_linked(each, location, f"{scratch}/in"), _FILES_ARROW)

        groups = task_groups(bins, MOST_TASKS, weight=lambda each: len(each.adds))
        made = units(session, groups, link, kind=SparkBin).as_frame(_FILES)
        self._files = session.createDataFrame(made.collect(), _FILES)

    def rows(self, bins: Sequence[SparkBin]) -> DataFrame:
        """The live rows of bins: columns of new files, BIN, POSITION and ROW (physical row index).

        The job fails for old dates or timestamps of an unknown calendar (``_CALENDARS``).
        """
        found = [
            self._read(directories, mode)
            for calendar, mode in _CALENDARS.items()
            if (directories := self._linked_to(bins, calendar))
        ]
        every = found[0] if len(found) == 1 else found[0].union(found[1])
        vectors = [
            _Vector(link, add.deletion_vector)
            for each in bins
            for link, add in each.links()
            if add.deletion_vector is not None
        ]
        if vectors:
            every = every.join(self._deleted(vectors), [FILE, ROW], "left_anti")
        known = every.join(F.broadcast(self._files), FILE)
        return known.select(*_columns(self._how.files), BIN, POSITION, ROW)

    def _linked_to(self, bins: Sequence[SparkBin], calendar: str) -> list[str]:
        every = (Path(self._directory, calendar, each.bin) for each in bins)
        return [uri(str(directory)) for directory in every if directory.exists()]

    def _read(self, directories: list[str], mode: str) -> DataFrame:
        files = (
            self._session.read
            .schema(_read_schema(self._how.files))
            .option("datetimeRebaseMode", mode)
            .option("int96RebaseMode", mode)
            # Else a flipped bit would be copied, and get a valid checksum in the new file.
            .option("parquet.page.verify-checksum.enabled", "true")
            # Neither partition columns nor glob patterns from directory names.
            .option("recursiveFileLookup", "true")
            .option("__globPaths__", "false")
            .parquet(*directories)
        )
        source = files.metadataColumn("_metadata")
        return files.select("*", source["file_name"].alias(FILE), source["row_index"].alias(ROW))

    def _deleted(self, vectors: list[_Vector]) -> DataFrame:
        """The rows that deletion vectors mark as deleted, by link and row index."""
        location = self._how.location

        def read(some: list[_Vector]) -> Iterator[pa.RecordBatch]:
            for each in some:
                yield from _deleted_of(each, location)

        groups = task_groups(vectors, MOST_TASKS, weight=lambda each: each.vector.cardinality)
        return units(self._session, groups, read, kind=_Vector).as_frame(_DELETED)


def reserved_name(files: FileSchema) -> str | None:
    """A column of the table whose name clashes with our helper columns; None if there is none."""
    names = (name for name in files.arrow.names if name.lower().startswith(_RESERVED))
    return next(names, None)


def uri(path: str) -> str:
    """The URI of a local path for Spark, whatever its default file system is.

    Not percent-encoded: Hadoop does not decode it.
    """
    return f"file://{path}"


def _linked(each: SparkBin, location: Location, directory: str) -> Iterator[tuple[object, ...]]:
    """Create the links of a bin; yields a row of _FILES per file."""
    for at, (name, add) in enumerate(each.links()):
        with footer_of(location, add.path) as file:
            is_known = names_calendar(file.metadata.metadata or {})
        link = Path(directory, "known" if is_known else "unknown", each.bin, name)
        link.parent.mkdir(parents=True, exist_ok=True)
        _link(link, data_file_of(location, add.path))
        values = msgspec.json.encode(add.partition_values).decode()
        yield name, each.bin, at, add.base_row_id, add.default_row_commit_version, values


def _link(link: Path, file: StoredFile) -> None:
    """Link a file, or copy an object; a retry of the task finds what the first attempt made."""
    link.unlink(missing_ok=True)
    if file.location.is_local:
        link.symlink_to(file.local_path)
        return
    partial = link.with_name(f"_{link.name}.part")  # hidden from Spark
    read.copy(file.location, file.path, str(partial))
    partial.rename(link)


def _deleted_of(each: _Vector, location: Location) -> Iterator[pa.RecordBatch]:
    rows = deleted_rows(location, each.vector).astype(np.int64)
    for first in range(0, len(rows), _VECTOR_ROWS):
        some = pa.array(rows[first : first + _VECTOR_ROWS])
        link = pa.repeat(pa.scalar(each.link), len(some))
        yield pa.RecordBatch.from_arrays([link, some], schema=_DELETED_ARROW)


def _read_schema(files: FileSchema) -> T.StructType:
    """The columns to read from data files; Spark reads a column that a file lacks as null."""
    schema = spark_schema(files.data)
    for name in files.row_tracking or ():
        schema.add(name, T.LongType())
    return schema


def _columns(files: FileSchema) -> Iterable[Column]:
    """The columns of new files, in the order of ``files.arrow``."""
    yield from (_column(field.physical_name) for field in files.data)
    values = F.from_json(F.col(_VALUES), "map<string, string>")
    for field in files.partitions:
        text = F.nullif(F.try_element_at(values, F.lit(field.physical_name)), F.lit(""))
        (schema,) = spark_schema([field]).fields
        value = text.cast(spark_type(field.type))
        yield value.alias(field.physical_name, metadata=schema.metadata)
    if files.row_tracking is not None:
        row_id, version = files.row_tracking
        # A row without a materialised id has the default one (PROTOCOL, "Row IDs").
        default_id = F.col(_FIRST_ID) + F.col(ROW)
        yield F.coalesce(_column(row_id), default_id).alias(row_id)
        yield F.coalesce(_column(version), F.col(_VERSION)).alias(version)


def _column(name: str) -> Column:
    """A column by its exact name, which may contain dots and backticks."""
    return F.col(f"`{name.replace('`', '``')}`")
