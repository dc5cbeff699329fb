"""Adopt a file that Spark wrote for a bin as a data file: check it, count it, put it in place."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from maint_assets.compaction.columns.physical import FIELD_ID, has_variants
from maint_assets.compaction.engines.arrow import failure, unwritten_rows, written_rows
from maint_assets.compaction.engines.spark_rows import SparkBin
from maint_assets.compaction.reading.data_files import parquet_file
from maint_assets.compaction.reading.matching import inner_fields
from maint_assets.compaction.reading.row_width import RowWidth
from maint_assets.compaction.writing.add_actions import bin_values, kept_marks, new_path, output_add
from maint_assets.errors import RewriteError
from maint_assets.storage import read, write
from maint_assets.storage.location import Location

if TYPE_CHECKING:
    import pyarrow.parquet as pq

    from maint_assets.compaction.columns.statistics import FileStatistics
    from maint_assets.compaction.writing.target import Rewriting
    from maint_assets.delta.actions import Add


class SparkFile(msgspec.Struct, frozen=True):
    """The directory that Spark wrote for a bin; or state and reason of a bin it did not write."""

    of: SparkBin
    directory: str
    state: str | None = None
    reason: str | None = None


def adopt(new: SparkFile, how: Rewriting) -> pa.RecordBatch:
    """Check the new file of a bin and put it in the table; the bin's files as REWRITTEN_SCHEMA."""
    name, inputs = new.of.bin, new.of.adds
    stays = partial(unwritten_rows, name, inputs, engine="spark")
    if new.state is not None:
        return stays(state=new.state, reason=new.reason)
    try:
        output = _output(new, how)
    except Exception as error:  # noqa: BLE001 - raised, it would end the job, and all other bins
        return stays(state="failed", reason=failure(error))
    outputs = [] if output is None else [(output, sum(new.of.rows))]
    return written_rows(name, zip(inputs, new.of.rows, strict=True), outputs, engine="spark")


def _output(new: SparkFile, how: Rewriting) -> Add | None:
    """The add of the new file; None if the inputs have no live rows."""
    table, expected = how.location, sum(new.of.rows)
    files = sorted(Path(new.directory).glob("part-*.parquet"))
    if len(files) != (1 if expected else 0):
        raise _refused(how, f"Spark wrote {len(files)} files for {expected} rows")
    if not files:
        return None
    statistics = _statistics(files[0], how)
    if statistics.rows != expected:
        raise _refused(how, f"Spark wrote {statistics.rows} rows for {expected} live rows")
    values = bin_values(new.of.adds, how)
    path = new_path(values, how)
    write.put_file(table, path, files[0])
    return output_add(
        path, how, values=values, marks=kept_marks(new.of.adds), stats=statistics.json()
    )


def _statistics(written: Path, how: Rewriting) -> FileStatistics:
    """Read the file and compute its statistics.

    Raises RewriteError for unexpected columns, and for rows without a row id or commit version in
    a table with row tracking.
    """
    found = how.statistics()
    names = how.files.arrow.names
    opened = read.opened(Location(str(written.parent)), written.name, size=0)
    with parquet_file(opened) as file:
        _refuse_other_columns(file, how)
        for batch in RowWidth().batches(file, names):
            if any(batch.column(name).null_count for name in how.files.row_tracking or ()):
                raise _refused(how, "rows lack a row id or commit version, but the table has them")
            found.add(batch)
    return found


def _refuse_other_columns(file: pq.ParquetFile, how: Rewriting) -> None:
    """Raise RewriteError unless names, types and field ids are those that Arrow would write.

    The fields within variants are not compared: Spark may shred them.
    """
    kinds = {field.physical_name: field.type for field in how.files.data}
    columns = file.schema_arrow
    expected = how.files.arrow
    if columns.names != expected.names:
        raise _refused(how, f"the new file has the columns {columns.names}")
    for column, wanted in zip(columns, expected, strict=True):
        holds_variants = column.name in kinds and has_variants(kinds[column.name])
        if not holds_variants and _shape(column) != _shape(wanted):
            raise _refused(how, f"column {column.name} is {column.type}, not {wanted.type}")


def _shape(column: pa.Field) -> tuple[Any, ...]:
    """Name, field id and type of a column, recursively: Arrow types also compare inner names."""
    parts = inner_fields(column.type)
    number = (column.metadata or {}).get(FIELD_ID)
    return column.name, number, *(map(_shape, parts) if parts else (column.type,))


def _refused(how: Rewriting, found: str) -> RewriteError:
    return RewriteError(how.table, found, "nothing of the bin was committed; report this as a bug")
