"""Row tracking in a commit: the row id high-water mark of the log, and base row ids for new files.

See PROTOCOL, "Row Tracking".
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from maint_assets.delta.actions import DomainMetadata, may_hold, parse_action
from maint_assets.delta.conflicts import ROW_TRACKING_DOMAIN, row_id_mark
from maint_assets.delta.features import writer_feature_names
from maint_assets.delta.names import LogFileKind
from maint_assets.errors import CommitError, CorruptLogError, one_line
from maint_assets.storage import read

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from maint_assets.commit.rewrite.values import RewrittenBin
    from maint_assets.delta.actions import Add
    from maint_assets.snapshot.head import TableHead
    from maint_assets.snapshot.log import LogEntry

NO_ROW_IDS = -1
"""The high-water mark of a table without any row id."""

_RESTORE = "restore the log from a backup or a replica"


class RowTracking(Enum):
    """Whether a table supports or enables row tracking; suspended tracking counts as off."""

    OFF = "new files get no ids"
    SUPPORTED = "new files get ids"
    ENABLED = "new files get ids, and rows keep theirs"

    @classmethod
    def of(cls, head: TableHead) -> RowTracking:
        """The row tracking of a table, by its protocol and properties."""
        supported = "rowTracking" in writer_feature_names(head.protocol)
        if not supported or head.properties.row_tracking_suspended:
            return cls.OFF
        return cls.ENABLED if head.properties.row_tracking else cls.SUPPORTED


def row_id_high_water_mark(head: TableHead) -> int:
    """The row id high-water mark at the head's version; NO_ROW_IDS if the log holds none.

    Raises CorruptLogError.
    """
    segment = head.segment
    for entry in reversed(segment.commits):
        if (mark := _mark(head, _in_json(head, entry), entry)) is not None:
            return mark
    for entry in () if segment.checkpoint is None else segment.checkpoint.entries:
        if (mark := _mark(head, _in_checkpoint(head, entry), entry)) is not None:
            return mark
    return NO_ROW_IDS


def with_row_ids(
    bins: Iterable[RewrittenBin], *, mark: int, version: int, table: str
) -> tuple[list[RewrittenBin], int]:
    """Give all outputs fresh base row ids after ``mark``, for a commit of ``version``.

    Returns the bins and the new high-water mark. Raises CommitError for an output without
    ``numRecords``.
    """
    found: list[RewrittenBin] = []
    for each in bins:
        outputs: list[Add] = []
        for file in each.outputs:
            rows = file.num_records
            if rows is None:
                raise CommitError(table, f"{file.path} has no numRecords", "rewrite it again")
            ids = {"base_row_id": mark + 1, "default_row_commit_version": version}
            outputs.append(msgspec.structs.replace(file, **ids))
            mark += rows
        found.append(replace(each, outputs=tuple(outputs)))
    return found, mark


def _mark(head: TableHead, domains: Iterable[DomainMetadata], entry: LogEntry) -> int | None:
    """The high-water mark in a file of the log; None if it has none."""
    found = [domain for domain in domains if domain.domain == ROW_TRACKING_DOMAIN]
    if not found:
        return None
    mark = row_id_mark(found[-1])
    if mark is None:
        what = f"{entry.file.name} has a domain {ROW_TRACKING_DOMAIN} without a rowIdHighWaterMark"
        raise CorruptLogError(head.table, what, _RESTORE)
    return mark


def _in_checkpoint(head: TableHead, entry: LogEntry) -> Iterable[DomainMetadata]:
    if entry.file.kind is LogFileKind.CHECKPOINT_V2 and entry.file.name.endswith(".json"):
        return _in_json(head, entry)
    try:
        return list(_in_parquet(head, entry))
    except (OSError, pa.ArrowException, EOFError, msgspec.ValidationError) as error:
        what = f"checkpoint {entry.file.name} cannot be read ({one_line(error)})"
        raise CorruptLogError(head.table, what, _RESTORE) from error


def _in_json(head: TableHead, entry: LogEntry) -> Iterator[DomainMetadata]:
    """Domain metadata of a JSON file; lines that cannot hold any are not parsed."""
    every = read.lines(head.location, entry.path)
    lines = (line for line in every if may_hold(line, b"domainMetadata"))
    try:
        for line in lines:
            domain = parse_action(line, table=head.table, file=entry.file.name).domainMetadata
            yield from () if domain is None else (domain,)
    except OSError as error:
        what = f"{entry.file.name} cannot be read ({one_line(error)})"
        raise CorruptLogError(head.table, what, _RESTORE) from error


def _in_parquet(head: TableHead, entry: LogEntry) -> Iterator[DomainMetadata]:
    column = "domainMetadata"
    with read.parquet(head.location, entry.path) as file:
        if column not in file.schema_arrow.names:
            return
        for batch in file.iter_batches(columns=[column]):
            rows: list[dict[str, Any]] = batch.column(column).drop_null().to_pylist()
            for row in rows:
                present = {key: value for key, value in row.items() if value is not None}
                yield msgspec.convert(present, DomainMetadata)
