"""The non-file actions of a version's state: what a checkpoint holds besides adds and removes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from maint_assets.delta.actions import DomainMetadata, Txn, may_hold, parse_action
from maint_assets.snapshot.control_actions import log_lines, non_file_rows, to_action
from maint_assets.storage import read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from maint_assets.delta.actions import Metadata, Protocol
    from maint_assets.snapshot.head import TableHead


@dataclass(frozen=True, slots=True)
class NonFileActions:
    """Protocol, metadata, the newest ``txn`` per application and domain metadata, reconciled."""

    protocol: Protocol
    metadata: Metadata
    transactions: tuple[Txn, ...]
    domains: tuple[DomainMetadata, ...]

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary per action, in the form of a line of the log; absent fields are None."""
        return [
            {"protocol": msgspec.to_builtins(self.protocol)},
            {"metaData": _metadata(self.metadata)},
            *({"txn": msgspec.to_builtins(txn)} for txn in self.transactions),
            *({"domainMetadata": _domain(domain)} for domain in self.domains),
        ]


def non_file_actions(head: TableHead, *, now_ms: int | None) -> NonFileActions:
    """Reconcile the non-file actions of the head's version.

    With ``now_ms``, ``txn`` actions older than ``delta.setTransactionRetentionDuration`` are left
    out; without, all are kept. Raises CorruptLogError and LogGapError.
    """
    transactions: dict[str, Txn] = {}
    domains: dict[str, DomainMetadata] = {}
    for found in (*_of_checkpoint(head), *_of_commits(head)):
        if isinstance(found, Txn):
            transactions[found.app_id] = found
        else:
            domains[found.domain] = found
    retention = head.properties.set_transaction_retention_ms
    return NonFileActions(
        head.protocol,
        head.metadata,
        tuple(
            txn
            for txn in transactions.values()
            if retention is None or now_ms is None or (txn.last_updated or -1) > now_ms - retention
        ),
        tuple(domain for domain in domains.values() if not domain.removed),
    )


def _of_checkpoint(head: TableHead) -> Iterator[Txn | DomainMetadata]:
    checkpoint = head.segment.checkpoint
    for entry in () if checkpoint is None else checkpoint.entries:
        of = partial(to_action, table=head.table, file=entry.file.name)
        for row in non_file_rows(head.location, entry, ("txn", "domainMetadata")):
            if row.get("txn"):
                yield of(row["txn"], Txn)
            if row.get("domainMetadata"):
                yield of(row["domainMetadata"], DomainMetadata)


def _of_commits(head: TableHead) -> Iterator[Txn | DomainMetadata]:
    """Actions of the commits after the checkpoint, oldest first."""
    for entry in read.in_turn(head.location, head.segment.commits):
        lines = log_lines(head.location, entry)
        for line in (line for line in lines if may_hold(line, b"txn", b"domainMetadata")):
            action = parse_action(line, table=head.table, file=entry.file.name)
            found = action.txn or action.domainMetadata
            if found is not None:
                yield found


def _metadata(metadata: Metadata) -> dict[str, Any]:
    format_ = metadata.format
    return {
        "id": metadata.id,
        "name": metadata.name,
        "description": metadata.description,
        "format": {
            "provider": "parquet" if format_ is None else format_.provider,
            "options": dict((format_ and format_.options) or {}),
        },
        "schemaString": metadata.schema_string,
        "partitionColumns": list(metadata.partition_columns),
        "configuration": dict(metadata.configuration),
        "createdTime": metadata.created_time,
    }


def _domain(domain: DomainMetadata) -> dict[str, Any]:
    return {
        "domain": domain.domain,
        "configuration": domain.configuration,
        "removed": domain.removed,
    }
