"""The rewrite of bins on executors: live rows of the inputs in, one new file a bin out.

Nothing is committed here: a new file is nobody's until ``commit`` names it.
"""

from __future__ import annotations

import uuid
from contextlib import closing
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import types as T

from maint_assets.compaction.data_files import DataFiles
from maint_assets.compaction.new_file import NewFile
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


LONGEST_NAME = 255
"""The longest name of a file or directory, in bytes."""


class _RefusedError(Exception):
    """Arrow must not rewrite a bin; the message says which file and why."""


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
        output, counts = _output(inputs, files[0]["partition"], how)
        verified = how.row_check.takes(name)
        if verified:
            refuse_other_content(inputs, output, how)
    except _RefusedError as refused:
        return _unwritten(name, inputs, state="refused", reason=str(refused))
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


def _values(canonical: str, inputs: list[Add], how: Rewriting) -> dict[str, str | None]:
    """The partition values of a bin: as its files spell them if all do alike.

    A writer may leave out the key of a null.
    """
    names = [field.physical_name for field in how.schema.partitions]
    spelled = [{name: add.partition_values.get(name) for name in names} for add in inputs]
    if all(values == spelled[0] for values in spelled):
        return spelled[0]
    return msgspec.json.decode(canonical, type=dict[str, str | None])


def _output(inputs: list[Add], partition: str, how: Rewriting) -> tuple[Add | None, list[int]]:
    """The add of the new file of inputs, None where no row lives, and the live rows of each input.

    Raises _RefusedError where Arrow must not rewrite one of them; then no file is left.
    """
    location = Location(how.table, how.table)
    values = _values(partition, inputs, how)
    path = _new_path(values, how)
    with write.new_file(location, path) as sink, NewFile(sink, how) as new_file:
        files = DataFiles(location, how.files)
        counts = [_copied(files, add, new_file) for add in inputs]
    new, statistics = location.file(path), new_file.statistics
    if not statistics.rows:
        new.unlink()
        return None, counts
    told = new.stat()
    clustered = len(inputs) == 1 and inputs[0].clustering_provider is not None
    alone = inputs[0] if clustered else None
    _refuse_unread(location, path, statistics.rows)
    add = Add(
        path=log_path(path),
        size=told.st_size,
        partition_values=values,
        modification_time=told.st_mtime_ns // 1_000_000,
        stats=statistics.json(),
        tags=alone.tags if alone else None,
        clustering_provider=alone.clustering_provider if alone else None,
    )
    return add, counts


def _copied(files: DataFiles, add: Add, new_file: NewFile) -> int:
    """How many rows live in a file by its footer and vector: so many went into the new file."""
    with closing(files.open(add)) as file:
        found = file.hazard
        if add.num_records not in {None, file.num_rows}:
            found = f"the log says {add.num_records} rows, the file has {file.num_rows}"
        if found is not None:
            raise _RefusedError(f"{add.path}: {found}")
        copied = 0
        for batch in file.rows():
            copied += batch.num_rows
            new_file.append(batch)
    _refuse_other_rows(files.location, add, found=copied, expected=file.live_rows)
    return copied


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
