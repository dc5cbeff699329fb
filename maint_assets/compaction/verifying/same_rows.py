"""Verify that a new file holds the rows of its inputs: both are read again and compared.

Independent of the engine that wrote it. Inputs are read by ``data_files``, the new file as plain
Parquet, with every column that it has.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from maint_assets.compaction.reading.data_files import rows_of
from maint_assets.compaction.reading.locations import data_file_of
from maint_assets.compaction.reading.row_width import RowWidth
from maint_assets.compaction.verifying.row_hash import RowHash
from maint_assets.datasets.parts import regrouped
from maint_assets.errors import RewriteError, one_line
from maint_assets.storage import read

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence

    from maint_assets.compaction.writing.target import Rewriting
    from maint_assets.delta.actions import Add
    from maint_assets.storage.location import Location

_HELD_ROWS, _HELD_BYTES = 16_384, 16 * 1024 * 1024
"""Rows and bytes up to which batches of small files are hashed together, to save calls."""


def refuse_other_content(inputs: Sequence[Add], output: Add | None, how: Rewriting) -> None:
    """Raise RewriteError unless a new file, which callers then remove, holds its inputs' live rows.

    Types, nulls and values of all columns of ``how.files.arrow`` count. All rows are compared, in
    any order, or the first ones as ``how.row_check`` says, which a merge leaves in
    their order. ``output`` is None where no row lives. StorageError for an input that cannot be
    read.
    """
    location, most = how.location, how.row_check.most_rows
    expected = RowHash()
    rows = rows_of(location, inputs, how.files)
    few = regrouped(_first(rows, most), most_rows=_HELD_ROWS, most_bytes=_HELD_BYTES)
    for batch in (batch for table in few for batch in table.to_batches()):
        expected.add(batch)
    found = RowHash() if output is None else file_hash(output, how, most=most)
    refuse_other_hash(location.uri, _named(output), found=found, expected=expected)


def file_hash(add: Add, how: Rewriting, *, most: int | None = None) -> RowHash:
    """The hash of a new file's rows, read back; of the first ``most`` ones unless None.

    Raises RewriteError if they cannot be read.
    """
    with _as_rewrite_error(how.table, _named(add)):
        return _hash_of(how.location, add, most)


def refuse_other_hash(table: str, name: str, *, found: RowHash, expected: RowHash) -> None:
    """Raise RewriteError if new files hold other rows than their inputs."""
    if found != expected:
        raise RewriteError(
            table,
            f"{name} holds other rows than its inputs: {found!r}, expected {expected!r}",
            "nothing was committed; report this",
        )


@contextmanager
def _as_rewrite_error(table: str, name: str) -> Generator[None, None, None]:
    try:
        yield
    except (OSError, pa.ArrowException, TypeError) as error:
        reason = f"{name} cannot be read again ({one_line(error)})"
        raise RewriteError(table, reason, "nothing was committed; look at the disk") from error


def _named(add: Add | None) -> str:
    return "no new file" if add is None else f"the new file {add.path.rpartition('/')[2]}"


def _hash_of(location: Location, add: Add, most: int | None) -> RowHash:
    found, file = RowHash(), data_file_of(location, add.path)
    source = read.opened(file.location, file.path, size=add.size).source
    with pq.ParquetFile(source, pre_buffer=False, page_checksum_verification=True) as opened:
        for batch in _first(RowWidth().batches(opened, opened.schema_arrow.names), most):
            found.add(batch)
    return found


def _first(batches: Iterable[pa.RecordBatch], most: int | None) -> Iterator[pa.RecordBatch]:
    """The batches, or the first so many rows of them."""
    left = most
    for batch in batches:
        some = batch if left is None else batch.slice(0, left)
        yield some
        if left is not None:
            left -= some.num_rows
            if not left:
                return
