"""The log file of a rewrite's commit: commitInfo, adds, removes, and the row id high-water mark.

``dataChange`` is false in every add and remove: a rewrite moves rows and changes none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from maint_assets.commit.rewrite.metrics import operation_metrics
from maint_assets.commit.rewrite.row_ids import RowTracking, with_row_ids
from maint_assets.commit.transaction import ENGINE
from maint_assets.delta.conflicts import ROW_TRACKING_DOMAIN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from maint_assets.commit.rewrite.values import RewriteRequest, RewrittenBin
    from maint_assets.delta.actions import Add

Line = dict[str, Any]

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class CommitFrame:
    """The fields of a commit that do not depend on its files.

    ``in_commit_ms`` is None for a table without in-commit timestamps; ``mark`` is the row id
    high-water mark before this commit.
    """

    table: str
    version: int
    read_version: int
    timestamp_ms: int
    in_commit_ms: int | None
    tracking: RowTracking
    mark: int


def commit_body(bins: Sequence[RewrittenBin], frame: CommitFrame, request: RewriteRequest) -> bytes:
    """The bytes of the log file that commits these bins, one JSON action a line.

    See PROTOCOL, "Actions". ``commitInfo`` comes first, as "In-Commit Timestamps" demands.
    """
    lines = [{"commitInfo": _commit_info(bins, frame, request)}]
    after = frame.mark
    if frame.tracking is not RowTracking.OFF:
        bins, after = with_row_ids(bins, mark=frame.mark, version=frame.version, table=frame.table)
    lines += [{"add": _add(file)} for each in bins for file in each.outputs]
    lines += _removes(bins, request.deletion_timestamp_ms)
    if after != frame.mark:
        lines.append({"domainMetadata": _row_id_domain(after)})
    return b"".join(_encode(line) + b"\n" for line in lines)


def _commit_info(bins: Sequence[RewrittenBin], frame: CommitFrame, request: RewriteRequest) -> Line:
    keeps_ids = request.row_ids_kept and frame.tracking is RowTracking.ENABLED
    return _present(
        inCommitTimestamp=frame.in_commit_ms,
        timestamp=frame.timestamp_ms,
        operation=request.operation,
        operationParameters=dict(request.parameters),
        readVersion=frame.read_version,
        isolationLevel="SnapshotIsolation",
        isBlindAppend=False,
        operationMetrics=operation_metrics(bins),
        tags={"delta.rowTracking.preserved": "true"} if keeps_ids else None,
        engineInfo=ENGINE,
        txnId=request.txn_id,
    )


def _add(file: Add) -> Line:
    return _present(
        path=file.path,
        partitionValues=file.partition_values,
        size=file.size,
        modificationTime=file.modification_time,
        dataChange=False,
        stats=file.stats,
        tags=file.tags,
        baseRowId=file.base_row_id,
        defaultRowCommitVersion=file.default_row_commit_version,
        clusteringProvider=file.clustering_provider,
    )


def _removes(bins: Sequence[RewrittenBin], deletion_ms: int) -> Iterator[Line]:
    for each in bins:
        yield from ({"remove": _remove(file, deletion_ms)} for file in each.inputs)


def _remove(file: Add, deletion_ms: int) -> Line:
    rows = file.num_records
    return _present(
        path=file.path,
        deletionTimestamp=deletion_ms,
        dataChange=False,
        extendedFileMetadata=True,
        partitionValues=file.partition_values,
        size=file.size,
        tags=file.tags,
        deletionVector=file.deletion_vector,
        baseRowId=file.base_row_id,
        defaultRowCommitVersion=file.default_row_commit_version,
        # delta-spark's removes of an OPTIMIZE have no other statistics.
        stats=None if rows is None else f'{{"numRecords":{rows}}}',
    )


def _row_id_domain(mark: int) -> Line:
    configuration = f'{{"domainName":"{ROW_TRACKING_DOMAIN}","rowIdHighWaterMark":{mark}}}'
    return {"domain": ROW_TRACKING_DOMAIN, "configuration": configuration, "removed": False}


def _present(**values: object) -> Line:
    return {key: value for key, value in values.items() if value is not None}
