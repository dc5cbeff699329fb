"""What a version's metadata and features require of new files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from maint_assets.compaction.columns.physical import FileSchema, unkept
from maint_assets.compaction.columns.statistics import FileStatistics
from maint_assets.compaction.ordering.clustering import clustering_columns
from maint_assets.compaction.ordering.order import ordering
from maint_assets.compaction.plan import DEFAULT_TARGET_BYTES, Selection
from maint_assets.compaction.row_check import UNCHECKED, RowCheck
from maint_assets.delta.features import Operation, feature_names, refuse_unsupported
from maint_assets.delta.schema import TableSchema
from maint_assets.errors import UnsupportedFeatureError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from maint_assets.compaction.ordering.order import Ordering
    from maint_assets.delta.properties import TableProperties
    from maint_assets.snapshot.head import TableHead
    from maint_assets.storage.location import Location

DEFAULT_CODEC = "zstd"
"""The protocol's recommendation to writers, if the table's properties name no codec."""

_CODECS = {
    **{name: name for name in ("snappy", "gzip", "zstd", "lz4")},
    "brotli": "zstd",  # Spark comes without brotli: it could not read the table any more
    "lz4_raw": "lz4",
    "none": "none",
    "uncompressed": "none",
}

_DEFAULTS = Selection()
_WITH_PARTITIONS = {"materializePartitionColumns", "icebergCompatV1"}


@dataclass(frozen=True, slots=True)
class Rewriting:
    """How a table's files are read and written; sent to the executors."""

    location: Location
    schema: TableSchema
    properties: TableProperties
    files: FileSchema
    codec: str
    hive_directories: bool
    tight_bounds: bool
    clustering_columns: tuple[tuple[str, ...], ...]
    row_check: RowCheck = UNCHECKED
    ordering: Ordering | None = None
    target_bytes: int = DEFAULT_TARGET_BYTES

    @property
    def table(self) -> str:
        """The table's URI, for messages."""
        return self.location.uri

    def statistics(self) -> FileStatistics:
        """Empty statistics for a new file."""
        return FileStatistics(
            self.schema,
            self.properties,
            tight_bounds=self.tight_bounds,
            also=self.clustering_columns,
        )


def rewriting(head: TableHead, selection: Selection = _DEFAULTS) -> Rewriting:
    """How the files of a version are rewritten. Raises UnsupportedFeatureError if they cannot be.

    Raises OrderError if rows cannot be ordered by the columns asked for.
    """
    refuse_unsupported(head.protocol, Operation.REWRITE, table=head.table)
    properties = head.properties
    mapping = properties.column_mapping_mode
    schema = TableSchema.of(head.metadata, mapped=mapping != "none", table=head.table)
    reasons = [*unkept(schema), *_unkept_properties(properties)]
    if reasons:
        raise UnsupportedFeatureError(head.table, "; ".join(reasons), "use an engine that knows it")
    features = set(feature_names(head.protocol))
    clustered = clustering_columns(head) if "clustering" in features else ()
    files = FileSchema.of(
        schema,
        by_id=mapping == "id",
        partition_columns=_has_partition_columns(properties, features),
        row_tracking=_row_tracking(head),
    )
    return Rewriting(
        location=head.location,
        schema=schema,
        properties=properties,
        files=files,
        codec=_CODECS[properties.compression_codec or DEFAULT_CODEC],
        hive_directories=mapping == "none" and not properties.randomize_file_prefixes,
        tight_bounds="deletionVectors" in features,
        clustering_columns=clustered,
        ordering=None
        if selection.purge
        else ordering(head, schema, selection, clustered=clustered),
        target_bytes=selection.target_bytes,
    )


def _has_partition_columns(properties: TableProperties, features: set[str]) -> bool:
    return bool(features & _WITH_PARTITIONS) or properties.write_partition_columns is True


def _row_tracking(head: TableHead) -> tuple[str, str] | None:
    """The columns in which new files materialise row ids and commit versions, if they must."""
    properties = head.properties
    if not properties.row_tracking:
        return None
    if properties.row_tracking_suspended or "rowTracking" not in feature_names(head.protocol):
        raise UnsupportedFeatureError(
            head.table,
            "row tracking is enabled, but also suspended, or the protocol lacks the feature",
            "set delta.enableRowTracking or delta.rowTrackingSuspended to false, or add "
            "the feature rowTracking to the protocol",
        )
    names = properties.materialized_row_id_column, properties.materialized_row_commit_version_column
    row_id, version = names
    if row_id is None or version is None:
        raise UnsupportedFeatureError(
            head.table,
            "row tracking is enabled without names of its columns",
            "turn it off and on again",
        )
    return row_id, version


def _unkept_properties(properties: TableProperties) -> Iterator[str]:
    """Properties that require work after a commit that only other engines do."""
    if properties.universal_format:
        yield "metadata of other formats (delta.universalFormat.enabledFormats) is not kept"
    if (properties.compression_codec or DEFAULT_CODEC) not in _CODECS:
        yield f"codec {properties.compression_codec} (delta.parquet.compression.codec) is unknown"
    if properties.symlink_manifest:
        yield "symlink manifests (delta.compatibility.symlinkFormatManifest) are not kept"
