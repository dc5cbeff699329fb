"""Read data files for a rewrite: live rows, in the columns of new files."""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from maint_assets.compaction.reading.deleted_rows import deleted_rows
from maint_assets.compaction.reading.dictionaries import bounded, shared_dictionaries
from maint_assets.compaction.reading.file_plan import FileKind, Rows
from maint_assets.compaction.reading.locations import data_file_of
from maint_assets.compaction.reading.matching import MismatchError
from maint_assets.compaction.reading.row_width import RowWidth
from maint_assets.errors import CorruptLogError, StorageError, one_line
from maint_assets.storage import read
from maint_assets.storage.ahead import Ahead

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from maint_assets.compaction.columns.physical import FileSchema
    from maint_assets.compaction.reading.hazards import Hazard
    from maint_assets.delta.actions import Add
    from maint_assets.storage.location import Location

    Footers = Ahead[str, pq.ParquetFile]

_FOOTER_BYTES = 64 * 1024
_BUFFER_BYTES = 256 * 1024
"""Read buffer for a column chunk: a row group is never held whole."""

_MOST_CHUNKS = 20_000
"""Column chunks of the footers that are cached: about a kilobyte each."""

_REMEDY = "restore it from a backup or a replica, or leave it out of the rewrite"
_UNREAD = "the file itself may be sound: leave it out, or rewrite it by another engine"
_OTHER_ROWS = "it has {} rows where its footer says otherwise"


def footer_of(location: Location, path: str) -> pq.ParquetFile:
    """Open a file of the log to read its footer and no rows; the caller closes it.

    Raises StorageError.
    """
    with _as_storage_error(location, path):
        file = data_file_of(location, path)
        return parquet_file(read.footer(file.location, file.path))


def parquet_file(
    opened: read.OpenFile,
    *,
    dictionaries: Sequence[str] = (),
    footer: pq.FileMetaData | None = None,
) -> pq.ParquetFile:
    """Read an open file as Parquet, with page checksums verified.

    Columns in ``dictionaries`` are read as dictionaries. The footer is read unless given.
    """
    return pq.ParquetFile(
        opened.source,
        metadata=footer,
        read_dictionary=list(dictionaries),
        pre_buffer=False,
        buffer_size=_BUFFER_BYTES,
        page_checksum_verification=True,
        # Nanoseconds, the default, wrap around for years before 1678 and after 2262.
        coerce_int96_timestamp_unit="us",
    )


def footers_of(location: Location, adds: Iterable[Add]) -> Footers:
    """``footer_of`` for files in a known order, by path; of a store the next ones ahead."""
    footers: Footers = Ahead(partial(footer_of, location))
    if not location.is_local:
        footers.expect((add.path, _FOOTER_BYTES) for add in adds)
    return footers


def rows_of(
    location: Location, adds: Sequence[Add], target: FileSchema
) -> Iterator[pa.RecordBatch]:
    """The live rows of files, one after the other: ``DataFile.rows``."""
    files = DataFiles(location, target)
    files.expect(adds)
    for add in adds:
        with closing(files.open(add)) as file:
            yield from file.rows()


class DataFiles:
    """Open data files of a table one after the other, in the columns of ``target.arrow``.

    What is derived from a file's schema is reused for the next files with the same schema. If
    ``footers_only``, rows of the files cannot be read.
    """

    def __init__(
        self, location: Location, target: FileSchema, *, footers_only: bool = False
    ) -> None:
        self.location, self._target = location, target
        self._ahead = Ahead(partial(_opened, location, footers_only=footers_only))
        self._dictionaries: tuple[str, ...] = ()
        self._footers: dict[str, pq.FileMetaData] = {}
        self._chunks = 0
        self._last: FileKind | None = None
        self._width = RowWidth()

    def expect(self, adds: Sequence[Add]) -> None:
        """The files that are opened next, in this order: a store is asked for them ahead."""
        if not self.location.is_local:
            self._ahead.expect(((add.path, add.size), add.size) for add in adds)

    def keep_dictionaries(self, adds: Sequence[Add]) -> tuple[str, ...]:
        """Read the ``shared_dictionaries`` of all files as dictionary arrays from now on.

        Only these files may be opened afterwards; the footers of most are cached.
        """
        ahead = footers_of(self.location, adds)
        footers = (partial(self._with_footer, add, ahead) for add in adds)
        self._dictionaries = shared_dictionaries(footers, self._target)
        return self._dictionaries

    def open(self, add: Add) -> DataFile:
        """Open the file of an add; the caller closes it. Raises StorageError."""
        with _as_storage_error(self.location, add.path):
            opened = self._ahead.take((add.path, add.size))
            file = parquet_file(
                opened,
                dictionaries=self._dictionaries,
                footer=self._footers.pop(add.path, None),
            )
            try:
                if self._last is None or not self._last.is_of(file, add):
                    self._last = FileKind.of(
                        file, add, self._target, dictionaries=self._dictionaries
                    )
            except BaseException:
                file.close(force=True)
                raise
        return DataFile(self.location, add, self._last, file, self._width, opened.size)

    def _with_footer(self, add: Add, ahead: Footers) -> pq.ParquetFile:
        """The open file; its footer is cached until the next opening, if it is small."""
        file = ahead.take(add.path)
        footer = file.metadata
        self._chunks += footer.num_columns * footer.num_row_groups
        if self._chunks <= _MOST_CHUNKS:
            self._footers[add.path] = footer
        return file


def _opened(location: Location, named: tuple[str, int], *, footers_only: bool) -> read.OpenFile:
    path, size = named
    file = data_file_of(location, path)
    if footers_only:
        return read.footer(file.location, file.path)
    return read.opened(file.location, file.path, size=size)


@dataclass(frozen=True, slots=True)
class DataFile:
    """An open data file with its footer; ``size`` is the size of the file in bytes."""

    location: Location
    add: Add
    kind: FileKind
    file: pq.ParquetFile
    width: RowWidth
    size: int

    @property
    def hazard(self) -> Hazard | None:
        """Why Arrow must not rewrite it."""
        return self.kind.hazard

    @property
    def num_rows(self) -> int:
        """Rows by the footer."""
        return self.file.metadata.num_rows

    @property
    def live_rows(self) -> int:
        """Rows without those of its deletion vector, by the vector's cardinality in the log."""
        vector = self.add.deletion_vector
        return self.num_rows - (0 if vector is None else vector.cardinality)

    def rows(self) -> Iterator[pa.RecordBatch]:
        """The live rows in the columns of ``target.arrow``, in the order of the file.

        Columns in ``kind.dictionaries`` are dictionary arrays.

        Columns that the file lacks are null (column defaults are not applied to old rows). Raises
        StorageError for a file that does not fit the schema, CorruptLogError for a deletion
        vector that does not match its descriptor.
        """
        with _as_storage_error(self.location, self.add.path):
            plan = self.kind.plan(self.add)
            deleted = _deleted(self.location, self.add, self.num_rows)
            start = 0
            for batch in self.width.batches(self.file, plan.columns):
                rows = _live(batch, start, deleted)
                start += batch.num_rows
                if rows.batch.num_rows:
                    yield from bounded(plan.rewritten(rows))
            if start != self.num_rows:
                found = _OTHER_ROWS.format(start)
                raise _unfit(self.location, self.add.path, found, remedy=_REMEDY)

    def close(self) -> None:
        """Closes the file."""
        self.file.close(force=True)


def _deleted(location: Location, add: Add, num_rows: int) -> NDArray[np.uint64]:
    if add.deletion_vector is None:
        return np.array([], np.uint64)
    deleted = deleted_rows(location, add.deletion_vector)
    if len(deleted) and deleted[-1] >= num_rows:
        found = f"the deletion vector of {add.path} names row {deleted[-1]} of {num_rows}"
        raise CorruptLogError(location.uri, found, "restore the log from a backup or a replica")
    return deleted


def _live(batch: pa.RecordBatch, start: int, deleted: NDArray[np.uint64]) -> Rows:
    """The rows of a batch that are not deleted."""
    if not len(deleted):
        return Rows(batch, start, None)
    ends = np.array([start, start + batch.num_rows], np.uint64)
    first, last = np.searchsorted(deleted, ends)
    if first == last:
        return Rows(batch, start, None)
    live = np.ones(batch.num_rows, np.bool_)
    live[deleted[first:last] - ends[0]] = False
    return Rows(batch.filter(pa.array(live)), start, live)


@contextmanager
def _as_storage_error(location: Location, path: str) -> Generator[None, None, None]:
    try:
        yield
    except FileNotFoundError as error:
        raise StorageError(location.uri, f"data file {path} is missing", _REMEDY) from error
    except (MismatchError, pa.ArrowNotImplementedError) as error:
        raise _unfit(location, path, one_line(error), remedy=_UNREAD) from error
    except (OSError, pa.ArrowException) as error:
        raise _unfit(location, path, one_line(error), remedy=_REMEDY) from error


def _unfit(location: Location, path: str, found: str, *, remedy: str) -> StorageError:
    return StorageError(location.uri, f"data file {path} cannot be rewritten: {found}", remedy)
