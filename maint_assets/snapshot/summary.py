"""Summary of the ``snapshot`` stage, and its comparison with the version checksum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from maint_assets.datasets.parts import Measure
from maint_assets.delta.features import (
    Operation,
    reader_feature_names,
    unsupported,
    writer_feature_names,
)
from maint_assets.errors import ChecksumMismatchError, UnsupportedFeatureError
from maint_assets.snapshot.resolved_paths import are_outside

if TYPE_CHECKING:
    from collections.abc import Mapping

    from maint_assets.snapshot.head import TableHead

SIZE_BUCKETS = (
    ("<1 MB", 1 << 20),
    ("<8 MB", 8 << 20),
    ("<32 MB", 32 << 20),
    ("<128 MB", 128 << 20),
    ("<512 MB", 512 << 20),
    (">=512 MB", 1 << 62),
)

_LIVE = pc.field("action") == "add"
_VECTOR = pc.field("dv_path")
_OUTSIDE = ((pc.field("action") != "commit") & ~pc.field("inside")) | (are_outside(_VECTOR))


def size_counts(prefix: str, where: pc.Expression) -> dict[str, Measure]:
    """Measures that count rows by size, named by ``prefix`` and SIZE_BUCKETS."""
    floors = (0, *(top for _, top in SIZE_BUCKETS))
    return {
        f"{prefix}{name}": Measure(
            "count", where=where & (pc.field("size") >= floor) & (pc.field("size") < top)
        )
        for (name, top), floor in zip(SIZE_BUCKETS, floors, strict=False)
    }


SNAPSHOT_MEASURES = {
    "live_files": Measure("count", where=_LIVE),
    "live_bytes": Measure("sum", "size", where=_LIVE),
    "tombstones": Measure("count", where=pc.field("action") == "remove"),
    "log_commits": Measure("count", where=pc.field("action") == "commit"),
    "outside": Measure("count", where=_OUTSIDE),
    **size_counts("", _LIVE),
}


@dataclass(frozen=True, slots=True)
class SnapshotSummary:
    """One version of a table; sizes in bytes, times in ms.

    ``cutoff_ms`` and ``retention_ms`` are those of this run's VACUUM, null if it is refused.
    ``refused`` has the reasons by operation that must not run on the table. ``checksum`` is
    ``agrees``, ``absent`` or how the version checksum differs. ``expired_log`` has the version
    numbers that VACUUM LITE needs (``vacuum.lite.ExpiredLog``): which commits are at or before the
    cutoff. ``properties`` are those with the prefix ``delta.``.
    ``commit_mark`` is the digest of the version's commit file, ``checkpoint_ms`` the mtime of the
    checkpoint. ``outside`` counts files and deletion vectors that lie outside the table.
    """

    table: str
    table_id: str
    version: int
    timestamp_ms: int
    planned_ms: int
    retention_ms: int | None
    retention_asked: bool
    table_retention_ms: int
    cutoff_ms: int | None
    live_files: int
    live_bytes: int
    tombstones: int
    log_commits: int
    checkpoint_version: int | None
    checksum: str
    partition_columns: list[str]
    iceberg: bool
    min_reader_version: int
    min_writer_version: int
    reader_features: list[str]
    writer_features: list[str]
    size_histogram: dict[str, int]
    refused: dict[str, list[str]]
    expired_log: dict[str, int | None]
    properties: dict[str, str] | None = None
    commit_mark: str = ""
    checkpoint_ms: int | None = None
    outside: int = 0


def cutoff_ms(head: TableHead, planned_ms: int, retention_ms: int) -> int:
    """The time in ms before which files of a table count as expired."""
    return planned_ms - retention_ms - head.location.time_slack_ms


def snapshot_summary(  # noqa: PLR0913
    head: TableHead,
    metrics: Mapping[str, int],
    *,
    planned_ms: int,
    retention_ms: int | None,
    retention_asked: bool,
    refused: Mapping[str, list[str]],
    expired_log: Mapping[str, int | None],
    mark: str,
) -> SnapshotSummary:
    """Build the summary from a head and the measures of its rows."""
    checkpoint = head.segment.checkpoint
    return SnapshotSummary(
        table=head.table,
        table_id=head.metadata.id,
        version=head.version,
        timestamp_ms=head.timestamp_ms,
        planned_ms=planned_ms,
        retention_ms=retention_ms,
        retention_asked=retention_asked,
        table_retention_ms=head.properties.deleted_file_retention_ms,
        cutoff_ms=None if retention_ms is None else cutoff_ms(head, planned_ms, retention_ms),
        live_files=metrics["live_files"],
        live_bytes=metrics["live_bytes"],
        tombstones=metrics["tombstones"],
        log_commits=metrics["log_commits"],
        checkpoint_version=None if checkpoint is None else checkpoint.version,
        checksum=checksum_agreement(head, metrics),
        partition_columns=list(head.metadata.partition_columns),
        iceberg=head.properties.iceberg,
        min_reader_version=head.protocol.min_reader_version,
        min_writer_version=head.protocol.min_writer_version,
        reader_features=list(reader_feature_names(head.protocol)),
        writer_features=list(writer_feature_names(head.protocol)),
        size_histogram={name: metrics[name] for name, _ in SIZE_BUCKETS},
        refused=dict(refused),
        expired_log=dict(expired_log),
        properties={
            key: value
            for key, value in head.metadata.configuration.items()
            if value is not None and key.lower().startswith("delta.")
        },
        commit_mark=mark,
        checkpoint_ms=head.segment.checkpoint_ms,
        outside=metrics["outside"],
    )


def refuse_mismatch(seen: SnapshotSummary) -> None:
    """Raise ChecksumMismatchError if the replay and the version checksum differ."""
    if seen.checksum not in {"agrees", "absent"}:
        raise ChecksumMismatchError(
            seen.table,
            seen.checksum,
            "find out which is right, and remove the .crc if it is wrong",
        )


def refuse_operation(seen: SnapshotSummary, operation: str) -> None:
    """Raise UnsupportedFeatureError with every reason why the operation must not run."""
    if seen.refused.get(operation):
        raise UnsupportedFeatureError(
            seen.table, "; ".join(seen.refused[operation]), "use an engine that supports it"
        )


def refused_operations(head: TableHead) -> dict[str, list[str]]:
    """Operations that must not run on the table, with the reasons."""
    reasons = {op.name.lower(): unsupported(head.protocol, op) for op in Operation}
    return {name: found for name, found in reasons.items() if found}


def checksum_agreement(head: TableHead, metrics: Mapping[str, int]) -> str:
    """``agrees``, ``absent``, or a sentence on how replay and version checksum differ."""
    recorded = head.checksum
    if recorded is None:
        return "absent"
    pairs: list[tuple[str, Any, Any]] = [
        ("files", recorded.num_files, metrics["live_files"]),
        ("bytes", recorded.table_size_bytes, metrics["live_bytes"]),
    ]
    if recorded.protocol is not None:
        pairs.append(("protocol", _protocol(recorded.protocol), _protocol(head.protocol)))
    if recorded.metadata is not None:
        pairs.append(("table id", recorded.metadata.id, head.metadata.id))
    for what, expected, found in pairs:
        if expected is not None and expected != found:
            return f"replay gives {what} {found}, but {head.version:020d}.crc records {expected}"
    return "agrees"


def _protocol(protocol: Any) -> tuple[Any, ...]:
    return (
        protocol.min_reader_version,
        protocol.min_writer_version,
        tuple(sorted(protocol.reader_features or ())),
        tuple(sorted(protocol.writer_features or ())),
    )
