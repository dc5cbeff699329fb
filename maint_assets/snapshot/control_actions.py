"""Read the non-file actions of the log: protocol, metadata, domains, transactions, sidecars.

They are few, so the driver reads them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import pyarrow as pa

from maint_assets.delta.actions import may_hold, parse_action
from maint_assets.delta.names import LogFileKind
from maint_assets.errors import CorruptLogError, LogGapError
from maint_assets.snapshot.commits import commit_lines
from maint_assets.storage import read

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow.parquet as pq

    from maint_assets.snapshot.log import LogEntry
    from maint_assets.storage.location import Location

Value = TypeVar("Value")

RESTORE = "restore it from a backup or a replica"


def log_lines(location: Location, entry: LogEntry) -> Iterator[bytes]:
    """Non-blank lines of a log file. Raises LogGapError or CorruptLogError."""
    lines = commit_lines if entry.file.kind is LogFileKind.COMMIT else read.lines
    try:
        yield from lines(location, entry.path)
    except FileNotFoundError as error:
        raise LogGapError(
            location.uri, f"{entry.file.name} vanished while it was read", "run again"
        ) from error
    except OSError as error:
        raise CorruptLogError(
            location.uri, f"{entry.file.name} cannot be read ({error})", "allow reading it"
        ) from error


def non_file_rows(
    location: Location, entry: LogEntry, names: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Read the named actions from a checkpoint file, as dictionaries in the form of the log."""
    if entry.file.kind is LogFileKind.CHECKPOINT_V2 and entry.file.name.endswith(".json"):
        wanted = [name.encode() for name in names]
        for line in log_lines(location, entry):
            if may_hold(line, *wanted):
                action = parse_action(line, table=location.uri, file=entry.file.name)
                yield {name: getattr(action, name) for name in names}
        return
    try:
        with read.parquet(location, entry.path) as file:
            yield from _parquet_rows(file, names)
    except (OSError, ValueError, TypeError, pa.ArrowException, EOFError) as error:
        raise CorruptLogError(
            location.uri,
            f"checkpoint {entry.file.name} cannot be read ({first_line(error)})",
            RESTORE,
        ) from error


def _parquet_rows(file: pq.ParquetFile, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    wanted = [name for name in names if name in file.schema_arrow.names]
    for batch in file.iter_batches(columns=wanted, batch_size=65_536):
        for name in wanted:
            rows = batch.column(name).drop_null()
            yield from ({name: row} for row in rows.to_pylist(maps_as_pydicts="strict"))


def to_action(row: Any, kind: type[Value], *, table: str, file: str) -> Value:
    """Convert a checkpoint row to an action struct; null fields count as absent."""
    if isinstance(row, kind):
        return row
    if not isinstance(row, dict):
        raise CorruptLogError(table, f"checkpoint {file} is not valid: {row!r}", RESTORE)
    try:
        return msgspec.convert({name: v for name, v in row.items() if v is not None}, kind)
    except msgspec.ValidationError as error:
        raise CorruptLogError(
            table, f"checkpoint {file} is not valid ({error})", RESTORE
        ) from error


def first_line(error: BaseException) -> str:
    """First line of an error message, or the error's type if it is empty."""
    return (str(error).splitlines() or [type(error).__name__])[0]
