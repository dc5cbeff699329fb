"""Which table features each operation supports (PROTOCOL, "Table Features").

An unknown feature refuses every operation. Names are case-sensitive. Behaviour that a property
turns on without a feature (UniForm) is not decided here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from maint_assets.errors import UnsupportedFeatureError

if TYPE_CHECKING:
    from maint_assets.delta.actions import Protocol


class Operation(Enum):
    """Operations that differ in the features they support."""

    READ = "read"
    VACUUM = "vacuum"
    REWRITE = "rewrite"
    CLEAN_LOG = "clean log"
    CHECKPOINT = "checkpoint"


ALL = frozenset(Operation)
NO_REWRITE = ALL - {Operation.REWRITE}
READ_ONLY = frozenset({Operation.READ})
NONE: frozenset[Operation] = frozenset()


@dataclass(frozen=True, slots=True)
class Feature:
    """One table feature, the operations that support it, and the reason.

    ``reader``: readers must know it too. ``legacy``: the (reader, writer) versions that imply the
    feature without naming it.
    """

    name: str
    operations: frozenset[Operation]
    reason: str
    reader: bool = False
    legacy: tuple[int, int] | None = None


_CATALOG = "the catalog owns the commits"
_MANIFESTS = "the state is in a manifest tree, without tombstones"
_MOVED = "the table has moved"
_NEW_TYPES = "its types are not rewritten"
_COLLATED = "its statistics are not rewritten"
_ICEBERG = "its rules for Iceberg's field ids are not kept by a rewrite"
_PROPOSAL = "it is only a protocol proposal so far"
_SPARK = "rewritten by Spark only"
_COPIED = "values are copied, nothing is evaluated"
_CAST = "old types are cast to the current ones"

FEATURES = {
    row.name: row
    for row in (
        Feature("appendOnly", ALL, "rewrites change no data", legacy=(1, 2)),
        Feature("invariants", ALL, _COPIED, legacy=(1, 2)),
        Feature("checkConstraints", ALL, _COPIED, legacy=(1, 3)),
        Feature("changeDataFeed", ALL, "rewrites have no change data", legacy=(1, 4)),
        Feature("generatedColumns", ALL, _COPIED, legacy=(1, 4)),
        Feature("columnMapping", ALL, "physical names are kept", reader=True, legacy=(2, 5)),
        Feature("identityColumns", ALL, _COPIED, legacy=(1, 6)),
        Feature("deletionVectors", ALL, "applied by rewrites, else protected", reader=True),
        Feature("domainMetadata", ALL, "domains are kept"),
        Feature("rowTracking", ALL, "row ids are kept in materialised columns"),
        Feature("clustering", ALL, "the clustering provider is kept"),
        Feature("allowColumnDefaults", ALL, "defaults are for new rows only"),
        Feature("materializePartitionColumns", ALL, "partition columns stay in the files"),
        Feature("v2Checkpoint", ALL, "sidecars are read and cleaned", reader=True),
        Feature("vacuumProtocolCheck", ALL, "the writer's check is always made", reader=True),
        Feature("inCommitTimestamp", ALL, "commits carry their own time"),
        Feature("checkpointProtection", ALL, "log cleanup respects its property"),
        Feature("timestampNtz", ALL, "written without a zone", reader=True),
        Feature("typeWidening", ALL, _CAST, reader=True),
        Feature("typeWidening-preview", ALL, _CAST, reader=True),
        Feature("variantType", ALL, _SPARK, reader=True),
        Feature("variantType-preview", ALL, _SPARK, reader=True),
        Feature("variantShredding", ALL, _SPARK, reader=True),
        Feature("variantShredding-preview", ALL, _SPARK, reader=True),
        Feature("icebergCompatV1", ALL, "partition columns and field ids are written"),
        Feature("icebergCompatV2", NO_REWRITE, _ICEBERG),
        Feature("icebergCompatV3", NO_REWRITE, _ICEBERG),
        Feature("icebergWriterCompatV1", NO_REWRITE, _ICEBERG),
        Feature("icebergWriterCompatV3", NO_REWRITE, _ICEBERG),
        Feature("geospatial", NO_REWRITE, _NEW_TYPES, reader=True),
        Feature("geospatial-dev", NO_REWRITE, _NEW_TYPES, reader=True),
        Feature("collations", NO_REWRITE, _COLLATED),
        Feature("collations-preview", NO_REWRITE, _COLLATED),
        Feature("columnMappingUsageTracking", READ_ONLY, _PROPOSAL),
        Feature("timestampNanos", READ_ONLY, _PROPOSAL, reader=True),
        Feature("catalogManaged", READ_ONLY, _CATALOG, reader=True),
        Feature("catalogOwned-preview", READ_ONLY, _CATALOG, reader=True),
        Feature("coordinatedCommits-preview", READ_ONLY, _CATALOG),
        Feature("redirectWriterOnly-preview", READ_ONLY, _MOVED),
        Feature("redirectReaderWriter-preview", NONE, _MOVED, reader=True),
        Feature("adaptiveMetadata", NONE, _MANIFESTS, reader=True),
        Feature("adaptiveMetadata-preview", NONE, _MANIFESTS, reader=True),
    )
}
"""All known features by name."""

_NAMED_READER, _NAMED_WRITER = 3, 7


def reader_feature_names(protocol: Protocol) -> tuple[str, ...]:
    """Features that a reader must support, named or implied by version; sorted."""
    version = protocol.min_reader_version
    implied = {
        row.name
        for row in FEATURES.values()
        if row.legacy and row.reader and row.legacy[0] <= version < _NAMED_READER
    }
    return tuple(sorted(implied.union(protocol.reader_features or ())))


def writer_feature_names(protocol: Protocol) -> tuple[str, ...]:
    """Features that a writer must support, named or implied by version; sorted."""
    version = protocol.min_writer_version
    implied = {
        row.name
        for row in FEATURES.values()
        if row.legacy and row.legacy[1] <= version < _NAMED_WRITER
    }
    return tuple(sorted(implied.union(protocol.writer_features or ())))


def feature_names(protocol: Protocol) -> tuple[str, ...]:
    """All features of the table, sorted."""
    return tuple(sorted({*reader_feature_names(protocol), *writer_feature_names(protocol)}))


def refuse_unsupported(protocol: Protocol, operation: Operation, *, table: str) -> None:
    """Raise UnsupportedFeatureError, naming every reason why the operation must not run."""
    reasons = unsupported(protocol, operation)
    if reasons:
        raise UnsupportedFeatureError(table, "; ".join(reasons), "use an engine that supports it")


def unsupported(protocol: Protocol, operation: Operation) -> list[str]:
    """Reasons why the operation must not run; empty if it may.

    Writer-only features do not stop a read.
    """
    found = _reader_faults(protocol)
    if operation is not Operation.READ:
        found += _writer_faults(protocol)
    rows = (FEATURES[name] for name in feature_names(protocol) if name in FEATURES)
    return found + [
        f"{row.name} does not allow {operation.value}: {row.reason}"
        for row in rows
        if operation not in row.operations
    ]


def _reader_faults(protocol: Protocol) -> list[str]:
    version, named = protocol.min_reader_version, protocol.reader_features
    found = [
        f"reader feature {name!r} is unknown"
        for name in reader_feature_names(protocol)
        if name not in FEATURES
    ]
    if not 1 <= version <= _NAMED_READER:
        found.append(f"reader version {version} is unknown")
    if version == _NAMED_READER and named is None:
        found.append(f"reader version {version} has no readerFeatures")
    return found


def _writer_faults(protocol: Protocol) -> list[str]:
    version, named = protocol.min_writer_version, protocol.writer_features
    found = [
        f"writer feature {name!r} is unknown"
        for name in writer_feature_names(protocol)
        if name not in FEATURES and name not in (protocol.reader_features or ())
    ]
    if not 1 <= version <= _NAMED_WRITER:
        found.append(f"writer version {version} is unknown")
    if version == _NAMED_WRITER and named is None:
        found.append(f"writer version {version} has no writerFeatures")
    unlisted = sorted({*(protocol.reader_features or ())} - {*(named or ())})
    return found + [f"reader feature {name!r} is not in writerFeatures" for name in unlisted]
