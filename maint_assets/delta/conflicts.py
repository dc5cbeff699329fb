"""Conflict detection: what a commit by another writer means for a rewrite in progress.

A rewrite changes no data, so it conflicts only with changes to its inputs and to the schema and
features its files were written for. Any change that no rule here allows is a conflict.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from maint_assets.delta.features import Operation, feature_names, unsupported
from maint_assets.delta.paths import canonical_key, relative

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from maint_assets.delta.actions import (
        Action,
        Add,
        CommitInfo,
        DomainMetadata,
        Metadata,
        Protocol,
    )
    from maint_assets.delta.paths import TableRoot

ROW_TRACKING_DOMAIN = "delta.rowTracking"


class Harmless(NamedTuple):
    """A change that does not conflict, and why; with ``value``, only a change to that value."""

    name: str
    reason: str
    value: str | None = None


_COPIED = "values are copied, nothing is evaluated"
_LOG = "it concerns the log only"

HARMLESS_FEATURES = (
    Harmless("appendOnly", "rewrites change no data"),
    Harmless("changeDataFeed", "rewrites have no change data"),
    Harmless("invariants", _COPIED),
    Harmless("checkConstraints", _COPIED),
    Harmless("generatedColumns", _COPIED),
    Harmless("identityColumns", _COPIED),
    Harmless("allowColumnDefaults", "defaults are for new rows only"),
    Harmless("deletionVectors", "new files have none; a vector on an input loses that input"),
    Harmless("domainMetadata", "domains have rules of their own"),
    Harmless("v2Checkpoint", _LOG),
    Harmless("vacuumProtocolCheck", _LOG),
    Harmless("checkpointProtection", _LOG),
)
"""Features that may be added meanwhile. Removing a feature always conflicts."""

HARMLESS_PROPERTIES = (
    Harmless("delta.appendOnly", "rewrites change no data"),
    Harmless("delta.enableChangeDataFeed", "rewrites have no change data"),
    Harmless("delta.enableDeletionVectors", "new files have none", "true"),
    Harmless("delta.checkpointPolicy", _LOG),
    Harmless("delta.checkpointInterval", _LOG),
    Harmless("delta.checkpoint.writeStatsAsJson", _LOG),
    Harmless("delta.checkpoint.writeStatsAsStruct", _LOG),
    Harmless("delta.logRetentionDuration", _LOG),
    Harmless("delta.enableExpiredLogCleanup", _LOG),
    Harmless("delta.setTransactionRetentionDuration", _LOG),
    Harmless("delta.requireCheckpointProtectionBeforeVersion", _LOG),
    Harmless("delta.deletedFileRetentionDuration", "it concerns VACUUM only"),
    Harmless("delta.targetFileSize", "file sizes do not affect correctness"),
)
"""Properties that may change meanwhile, besides user properties (without ``delta.``)."""

HARMLESS_FIELD_METADATA = (
    Harmless("comment", "it is documentation"),
    Harmless("delta.identity.highWaterMark", "values are copied, none is generated"),
)
"""Keys of column metadata that may change meanwhile. Other schema changes conflict."""


class Domain(Enum):
    """What a change of a metadata domain means for a rewrite."""

    ROW_IDS = "row ids of new files start after its high-water mark"
    FREE = "it does not affect files"
    CLOSES = "files were written under its former configuration"


DOMAINS = ((ROW_TRACKING_DOMAIN, Domain.ROW_IDS), ("delta.", Domain.CLOSES), ("", Domain.FREE))
"""Metadata domains by name prefix; the first match counts."""


@dataclass(frozen=True, slots=True)
class RewriteBasis:
    """The basis of a rewrite: the table when it was planned, and input and output file names."""

    root: TableRoot
    protocol: Protocol
    metadata: Metadata
    inputs: Mapping[str, Add]
    outputs: frozenset[str]


@dataclass(slots=True)
class CommitEffect:
    """The effect of one commit on a rewrite.

    ``lost``: inputs that are gone, with the reason. ``renewed``: inputs added again unchanged but
    for statistics, tags or row ids. ``closed``: conflicts with the whole rewrite, which must be
    planned again. ``known``: outputs that the commit adds, so the rewrite was committed before.
    """

    closed: list[str] = field(default_factory=list[str])
    lost: dict[str, str] = field(default_factory=dict[str, str])
    renewed: dict[str, Add] = field(default_factory=dict[str, "Add"])
    known: set[str] = field(default_factory=set[str])
    row_id_high_water_mark: int | None = None
    info: CommitInfo | None = None


def commit_effect(actions: Iterable[Action], planned: RewriteBasis) -> CommitEffect:
    """Evaluate the actions of one commit, in one pass."""
    found = CommitEffect()
    for action in actions:
        if action.add is not None:
            _take_add(action.add, planned, found)
        if action.remove is not None:
            name = file_name(action.remove.path, planned.root)
            if name in planned.inputs:
                found.lost.setdefault(name, "was removed")
        _take_other(action, planned, found)
    return found


def file_name(path: str, root: TableRoot) -> str:
    """The name under which a log path is compared, equal for all spellings of a path."""
    return relative(path, root) if _ODD.search(path) else path


def row_id_mark(domain: DomainMetadata) -> int | None:
    """The row id high water mark, -1 if none is assigned; None if the domain is invalid."""
    if domain.removed:
        return -1
    try:
        return _ROW_IDS.decode(domain.configuration or "").rowIdHighWaterMark
    except msgspec.DecodeError:
        return None


class _RowIds(msgspec.Struct):
    rowIdHighWaterMark: int  # noqa: N815  (the log's own key)


_ROW_IDS = msgspec.json.Decoder(_RowIds)
# Only these paths can have a second spelling: percent-encoding, a scheme, backslashes, dots.
_ODD = re.compile(r"[%:\\]|^/|//|(?:^|/)\.\.?(?:/|$)")
_FEATURES = frozenset(row.name for row in HARMLESS_FEATURES)
_PROPERTIES = {row.name.lower(): row for row in HARMLESS_PROPERTIES}
_FIELD_METADATA = frozenset(row.name for row in HARMLESS_FIELD_METADATA)


def _take_add(add: Add, planned: RewriteBasis, found: CommitEffect) -> None:
    """An input added again remains valid if its path and deletion vector are unchanged."""
    name = file_name(add.path, planned.root)
    planned_on = planned.inputs.get(name)
    if planned_on is None:
        found.known.update({name} & planned.outputs)
    elif _key(add) == _key(planned_on):
        found.renewed[name] = add
    else:
        found.lost[name] = "was added with another deletion vector or spelling"


def _take_other(action: Action, planned: RewriteBasis, found: CommitEffect) -> None:
    """All actions but add and remove. ``txn`` and ``cdc`` never conflict: they add no file."""
    if action.commitInfo is not None:
        found.info = action.commitInfo
    if action.metaData is not None:
        found.closed += _metadata_changes(planned.metadata, action.metaData)
    if action.protocol is not None:
        found.closed += _protocol_changes(planned.protocol, action.protocol)
    if action.domainMetadata is not None:
        _take_domain(action.domainMetadata, found)


def _take_domain(domain: DomainMetadata, found: CommitEffect) -> None:
    meant = next(effect for start, effect in DOMAINS if domain.domain.startswith(start))
    mark = row_id_mark(domain) if meant is Domain.ROW_IDS and not domain.removed else None
    if meant is not Domain.FREE and mark is None:
        found.closed.append(f"domain {domain.domain} changed")
    found.row_id_high_water_mark = found.row_id_high_water_mark if mark is None else mark


def _metadata_changes(old: Metadata, new: Metadata) -> Iterator[str]:
    if new.id != old.id:
        yield "the table was replaced by another one"
    if _schema(new) is None or _schema(new) != _schema(old):
        yield "the schema changed"
    if new.partition_columns != old.partition_columns:
        yield "the partition columns changed"
    if _format(new) != _format(old):
        yield "the format of data files changed"
    yield from _property_changes(old, new)


def _property_changes(old: Metadata, new: Metadata) -> Iterator[str]:
    # delta-spark accepts the names of properties in any case.
    before, after = (
        {key.lower(): value for key, value in each.configuration.items()} for each in (old, new)
    )
    for key in sorted(before.keys() | after.keys()):
        was, now = before.get(key), after.get(key)
        if was != now and not _is_harmless(key, now):
            yield f"property {key} changed from {was} to {now}"


def _protocol_changes(old: Protocol, new: Protocol) -> Iterator[str]:
    yield from unsupported(new, Operation.REWRITE)
    before, after = set(feature_names(old)), set(feature_names(new))
    yield from (f"feature {name} was removed" for name in sorted(before - after))
    yield from (f"feature {name} was added" for name in sorted(after - before - _FEATURES))


def _key(add: Add) -> tuple[str, str | None]:
    vector = add.deletion_vector
    return canonical_key(add.path), None if vector is None else vector.unique_id


def _schema(metadata: Metadata) -> Any:
    """The schema without the parts that may change; None if it is not valid JSON."""

    def lasting(row: dict[str, Any]) -> dict[str, Any]:
        return {key: row[key] for key in row if key not in _FIELD_METADATA}

    try:
        return json.loads(metadata.schema_string or "", object_hook=lasting)
    except ValueError:
        return None


def _format(metadata: Metadata) -> tuple[str, dict[str, str | None]] | None:
    return metadata.format and (metadata.format.provider, metadata.format.options or {})


def _is_harmless(key: str, value: str | None) -> bool:
    if not key.startswith("delta."):
        return True
    row = _PROPERTIES.get(key)
    return row is not None and (row.value is None or row.value == (value or "").lower())
