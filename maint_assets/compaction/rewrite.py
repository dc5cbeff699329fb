"""The rewrite of bins on executors: live rows of the inputs in, one new file a bin out.

Nothing is committed here: a new file is nobody's until ``commit`` names it.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import types as T

from maint_assets.compaction.data_files import data_file, rows_of
from maint_assets.compaction.hazards import hazard
from maint_assets.compaction.same_rows import refuse_other_content
from maint_assets.delta.actions import Add
from maint_assets.delta.partitions import directory, log_path
from maint_assets.delta.paths import TableRoot, relative
from maint_assets.errors import MaintError, RewriteError, one_line
from maint_assets.storage import read, write
from maint_assets.storage.columns import arrow_schema, batch_of, column
from maint_assets.storage.location import Location

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from maint_assets.commit.rewritten import RewrittenBin
    from maint_assets.compaction.rewriting import Rewriting
    from maint_assets.compaction.statistics import FileStatistics

REWRITTEN_SCHEMA = T.StructType([
    column("bin", "string", "id of the bin"),
    column("role", "string", "input or output"),
    column("path", "string", "as the log spells it"),
    column("size", "bigint", "bytes"),
    column("rows", "bigint", "live rows"),
    column("deleted", "bigint", "rows left out by a deletion vector"),
    column("state", "string", "committed, dropped, refused or failed"),
    column("reason", "string", "why a bin was not committed", nullable=True),
    column("verified", "boolean", "whether the rows of its bin were compared with the inputs"),
    column("version", "bigint", "of the commit", nullable=True),
    column("add", "string", "the add action", nullable=True),
])
"""A file of a rewritten bin."""

REWRITTEN_ARROW = arrow_schema(REWRITTEN_SCHEMA)

ROW_GROUP_BYTES = 64 * 1024 * 1024
"""Rows are held in memory up to about so many bytes, then written as a row group."""

ROW_GROUP_ROWS = 1_000_000

LONGEST_NAME = 255
"""The longest name of a file or directory, in bytes."""


def rewritten(bins: Iterable[pa.RecordBatch], how: Rewriting) -> Iterator[pa.RecordBatch]:
    """Inputs and outputs of bins, the outputs written: REWRITTEN_SCHEMA; whole bins come together.

    Raises RewriteError where a bin has other rows afterwards, and what reading raises.
    """
    held: list[dict[str, Any]] = []
    for batch in bins:
        for row in batch.select(["bin", "partition", "add"]).to_pylist():
            if held and row["bin"] != held[0]["bin"]:
                yield _rewritten_bin(held, how)
                held = []
            held.append(row)
    if held:
        yield _rewritten_bin(held, how)


def remove_outputs(table: str, bins: Iterable[RewrittenBin]) -> None:
    """Removes the new files of bins that surely were not committed."""
    location, root = Location(table, table), TableRoot.of(table)
    for add in (output for each in bins for output in each.outputs):
        path = relative(add.path, root)
        found = read.size_and_mtime(location, path)
        if found is not None:
            write.delete_file(location, path, size=found[0], modified_ms=found[1])


def _rewritten_bin(files: list[dict[str, Any]], how: Rewriting) -> pa.RecordBatch:
    """The files of one bin; what speaks against its rewrite is told of this bin alone."""
    name = files[0]["bin"]
    inputs = [msgspec.json.decode(file["add"], type=Add) for file in files]
    try:
        counts, refused = _looked_at(inputs, how)
        if refused is not None:
            return _unwritten(name, inputs, state="refused", reason=refused)
        output = _output(list(zip(inputs, counts, strict=True)), files[0]["partition"], how)
        verified = how.row_check.takes(name)
        if verified:
            refuse_other_content(inputs, output, how)
    except MaintError as error:
        return _unwritten(name, inputs, state="failed", reason=str(error))
    except (OSError, pa.ArrowException, ValueError) as error:
        reason = f"its new file cannot be written ({one_line(error)})"
        return _unwritten(name, inputs, state="failed", reason=reason)
    rows = [
        _row(name, "input", add, rows=count, verified=verified)
        for add, count in zip(inputs, counts, strict=True)
    ]
    if output is not None:
        rows.append(_row(name, "output", output, rows=sum(counts), verified=verified))
    return batch_of(rows, REWRITTEN_ARROW)


def _unwritten(name: str, inputs: list[Add], *, state: str, reason: str) -> pa.RecordBatch:
    rows = [_row(name, "input", add, rows=0, state=state, reason=reason) for add in inputs]
    return batch_of(rows, REWRITTEN_ARROW)


def _looked_at(inputs: list[Add], how: Rewriting) -> tuple[list[int], str | None]:
    """How many rows live in each file by its footer and vector, and what forbids the rewrite."""
    location = Location(how.table, how.table)
    rows: list[int] = []
    for add in inputs:
        with data_file(location, add) as file:
            found = hazard(file, add, how.files)
            gone = 0 if add.deletion_vector is None else add.deletion_vector.cardinality
            physical = file.metadata.num_rows
        if add.num_records not in {None, physical}:
            found = f"the log says {add.num_records} rows, the file has {physical}"
        if found is not None:
            return rows, f"{add.path}: {found}"
        rows.append(physical - gone)
    return rows, None


def _values(canonical: str, inputs: list[Add], how: Rewriting) -> dict[str, str | None]:
    """The partition values of a bin: as its files spell them if all do alike.

    A writer may leave out the key of a null.
    """
    names = [field.physical_name for field in how.schema.partitions]
    spelled = [{name: add.partition_values.get(name) for name in names} for add in inputs]
    if all(values == spelled[0] for values in spelled):
        return spelled[0]
    return msgspec.json.decode(canonical, type=dict[str, str | None])


def _output(inputs: list[tuple[Add, int]], partition: str, how: Rewriting) -> Add | None:
    """The add of the new file of inputs with their live rows; None where no row lives."""
    location = Location(how.table, how.table)
    values = _values(partition, [add for add, _ in inputs], how)
    path, statistics = _new_path(values, how), how.statistics()
    with write.new_file(location, path) as sink, _writer(sink, how) as file:
        groups = _RowGroups(file, statistics)
        for add, expected in inputs:
            found = 0
            for batch in rows_of(location, add, how.files):
                found += batch.num_rows
                groups.append(batch)
            _refuse_other_rows(location, add, found=found, expected=expected)
        groups.flush()
    new = location.file(path)
    if not statistics.rows:
        new.unlink()
        return None
    told = new.stat()
    clustered = len(inputs) == 1 and inputs[0][0].clustering_provider is not None
    alone = inputs[0][0] if clustered else None
    _refuse_unread(location, path, statistics.rows)
    return Add(
        path=log_path(path),
        size=told.st_size,
        partition_values=values,
        modification_time=told.st_mtime_ns // 1_000_000,
        stats=statistics.json(),
        tags=alone.tags if alone else None,
        clustering_provider=alone.clustering_provider if alone else None,
    )


class _RowGroups:
    """Rows on their way into a file: held until they make a row group, then counted at once."""

    def __init__(self, file: pq.ParquetWriter, statistics: FileStatistics) -> None:
        self._file, self._statistics = file, statistics
        self._held: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def append(self, batch: pa.RecordBatch) -> None:
        self._held.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._bytes >= ROW_GROUP_BYTES or self._rows >= ROW_GROUP_ROWS:
            self.flush()

    def flush(self) -> None:
        if self._rows:
            group = pa.Table.from_batches(self._held).combine_chunks()
            for batch in group.to_batches():
                self._statistics.add(batch)
            self._file.write_table(group, row_group_size=self._rows)
        self._held, self._rows, self._bytes = [], 0, 0


def _writer(sink: Any, how: Rewriting) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        sink,
        how.files.arrow,
        compression=how.codec,
        store_schema=False,
        store_decimal_as_integer=True,
    )


def _new_path(values: dict[str, str | None], how: Rewriting) -> str:
    """A path that nobody else has: in the directory of the values, or in a random one."""
    name = uuid.uuid4()
    where = directory(values, how.schema.partitions) if how.hive_directories else None
    if where is None or not _is_possible(where):
        where = f"{name.hex[: how.properties.random_prefix_length]}/"
    return f"{where}part-00000-{name}-c000.{how.codec}.parquet"


def _is_possible(directory: str) -> bool:
    """Whether file systems take each name of a path."""
    return "\0" not in directory and all(
        len(name.encode()) <= LONGEST_NAME for name in directory.split("/")
    )


def _refuse_other_rows(location: Location, add: Add, *, found: int, expected: int) -> None:
    if found != expected:
        raise RewriteError(
            location.uri,
            f"{add.path} gave {found} rows where {expected} live",
            "nothing was committed; report this",
        )


def _refuse_unread(location: Location, path: str, rows: int) -> None:
    found = pq.read_metadata(str(location.file(path))).num_rows
    if found != rows:
        location.file(path).unlink()
        raise RewriteError(
            location.uri,
            f"the new file {path} has {found} rows where {rows} were written",
            "nothing was committed; look at the disk",
        )


def _row(  # noqa: PLR0913
    name: str,
    role: str,
    add: Add,
    *,
    rows: int,
    state: str = "written",
    reason: str | None = None,
    verified: bool = False,
) -> tuple[Any, ...]:
    text = msgspec.json.encode(add).decode()
    vector = add.deletion_vector
    deleted = 0 if vector is None else vector.cardinality
    return name, role, add.path, add.size, rows, deleted, state, reason, verified, None, text
