"""Log files of a version as units of work for executors: commits, checkpoint and sidecars."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from maint_assets.errors import CorruptLogError, LogGapError, one_line
from maint_assets.snapshot.commits import commit_lines
from maint_assets.snapshot.schemas import LogUnit
from maint_assets.storage import read

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from maint_assets.snapshot.head import TableHead
    from maint_assets.storage.location import Location


def commit_units(head: TableHead) -> list[LogUnit]:
    """All readable commits, including those before the checkpoint."""
    segment, properties = head.segment, head.properties
    ict_from = None
    if properties.in_commit_timestamps:
        ict_from = properties.in_commit_timestamp_enablement_version or 0
    return [
        LogUnit(
            path=entry.path,
            version=entry.file.version,
            size=entry.size,
            commit_ms=segment.commit_ms[entry.file.version],
            ict_from=ict_from,
        )
        for entry in (*segment.history, *segment.commits)
    ]


def checkpoint_units(head: TableHead) -> list[LogUnit]:
    """The files of the checkpoint, including sidecars; empty without a checkpoint."""
    checkpoint = head.segment.checkpoint
    if checkpoint is None:
        return []
    files = [(entry.path, entry.size) for entry in checkpoint.entries]
    files += [(sidecar.path, sidecar.size) for sidecar in head.sidecars]
    return [LogUnit(path=path, version=checkpoint.version, size=size) for path, size in files]


def total_bytes(units: Iterable[LogUnit]) -> int:
    """Total size of the files, in bytes."""
    return sum(unit.size for unit in units)


def unit_lines(location: Location, unit: LogUnit) -> Iterator[bytes]:
    """Non-blank lines of a JSON log file. A commit without any action is an error."""
    lines = read.lines if unit.commit_ms is None else commit_lines
    return lines(location, unit.path)


def action_fields(schema: pa.Schema, action: str) -> list[str]:
    """The fields of a kind of action in a checkpoint. Raises ArrowInvalid if it is not a struct."""
    kind = schema.field(action).type
    if not pa.types.is_struct(kind):
        raise pa.ArrowInvalid(f"{action} is a column of {kind}, not of structs")
    return [field.name for field in kind]


@contextmanager
def log_errors(location: Location, unit: LogUnit) -> Generator[None, None, None]:
    """Convert errors of reading a log file to CorruptLogError or LogGapError."""
    name = unit.path.rpartition("/")[2]
    try:
        yield
    except FileNotFoundError as error:
        raise LogGapError(
            location.uri, f"{name} vanished while it was read", "run again"
        ) from error
    except (OSError, OverflowError, pa.ArrowException) as error:
        raise CorruptLogError(
            location.uri,
            f"{name} cannot be read ({one_line(error)})",
            "restore it from a backup or a replica",
        ) from error
