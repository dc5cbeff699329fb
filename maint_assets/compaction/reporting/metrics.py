"""Metrics of a compaction over all its commits, with the names of delta-spark's OPTIMIZE result.

Where delta-spark's values are wrong, these differ: start and end time are both set, a run that
commits nothing has 0 batches, and only columns with statistics in the new files count as such.
Metrics that delta-spark always returns as a constant are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow.compute as pc

from maint_assets.datasets.parts import Measure
from maint_assets.delta.stats import indexed_columns
from maint_assets.snapshot.summary import size_counts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Self

    from maint_assets.compaction.reporting.outcome import OrderCounts, Outcome
    from maint_assets.compaction.writing.target import Rewriting

_COMMITTED = pc.field("state") == "committed"
_INPUT = _COMMITTED & (pc.field("role") == "input")
_OUTPUT = _COMMITTED & (pc.field("role") == "output")

REWRITTEN_COUNTS = {
    "files_removed": Measure("count", where=_INPUT),
    "bytes_removed": Measure("sum", "size", _INPUT),
    "rows_removed": Measure("sum", "rows", _INPUT),
    "vectors_removed": Measure("count", where=_INPUT & (pc.field("deleted") > 0)),
    "files_added": Measure("count", where=_OUTPUT),
    "bytes_added": Measure("sum", "size", _OUTPUT),
    "rows_added": Measure("sum", "rows", _OUTPUT),
}

REWRITTEN_MEASURES = {
    **REWRITTEN_COUNTS,
    "vector_rows_removed": Measure("sum", "deleted", _INPUT),
    "min_removed": Measure("min", "size", _INPUT),
    "max_removed": Measure("max", "size", _INPUT),
    "min_added": Measure("min", "size", _OUTPUT),
    "max_added": Measure("max", "size", _OUTPUT),
    **size_counts("removed ", _INPUT),
    **size_counts("added ", _OUTPUT),
}
"""Measures over the ledger (rows of REWRITTEN_SCHEMA), evaluated while it is written."""


class FileSizes(msgspec.Struct, frozen=True, rename="camel"):
    """Sizes of files in bytes; without files ``min`` and ``max`` are None and ``avg`` is 0."""

    min: int | None
    max: int | None
    avg: float
    total_files: int
    total_size: int


class VectorCounts(msgspec.Struct, frozen=True, rename="camel"):
    """Deletion vectors of rewritten files, and the rows they deleted, which new files leave out.

    The vectors' files stay until a VACUUM.
    """

    num_deletion_vectors_removed: int
    num_deletion_vector_rows_removed: int


class FilesAndBytes(msgspec.Struct, frozen=True):
    """A number of files, and their total size in bytes."""

    num: int
    size: int


class ZOrderStats(msgspec.Struct, frozen=True, rename="camel"):
    """Z-ordered files, split by whether they were in a Z-cube before, and the numbers of cubes.

    ``strategy_name`` is ``incremental``; delta-spark, which orders all files in each run, has
    ``all``.
    """

    strategy_name: str
    input_cube_files: FilesAndBytes
    input_other_files: FilesAndBytes
    input_num_cubes: int
    merged_files: FilesAndBytes
    num_output_cubes: int


class CubeFiles(msgspec.Struct, frozen=True, rename="camel"):
    """A number of files, and their total size in bytes."""

    num_files: int
    size: int


class ClusteringStats(msgspec.Struct, frozen=True, rename="camel"):
    """Clustered files, split by whether they were in a Z-cube before, and the numbers of cubes."""

    input_z_cube_files: CubeFiles = msgspec.field(name="inputZCubeFiles")
    input_other_files: CubeFiles
    input_num_z_cubes: int = msgspec.field(name="inputNumZCubes")
    merged_files: CubeFiles
    num_output_z_cubes: int = msgspec.field(name="numOutputZCubes")


class RewriteMetrics(msgspec.Struct, frozen=True, rename="camel"):
    """Metrics of the committed bins of a run; times are ms since the epoch.

    ``num_batches`` counts commits. ``total_files_skipped`` counts files that were considered but
    not rewritten, for any reason. ``num_table_columns_with_stats`` counts top-level columns with
    statistics for at least one of their leaves in the new files.
    """

    num_files_added: int
    num_files_removed: int
    files_added: FileSizes
    files_removed: FileSizes
    partitions_optimized: int
    num_bins: int
    num_batches: int
    total_considered_files: int
    total_files_skipped: int
    deletion_vector_stats: VectorCounts
    num_table_columns: int
    num_table_columns_with_stats: int
    start_time_ms: int
    end_time_ms: int
    z_order_stats: ZOrderStats | None = None
    clustering_stats: ClusteringStats | None = None

    @classmethod
    def of(
        cls,
        measured: Mapping[str, Any],
        outcome: Outcome,
        *,
        how: Rewriting,
        considered: int,
        times_ms: tuple[int, int],
    ) -> Self:
        """The metrics of a run from the REWRITTEN_MEASURES of its ledger."""
        added, removed = _sizes(measured, "added"), _sizes(measured, "removed")
        return cls(
            num_files_added=added.total_files,
            num_files_removed=removed.total_files,
            files_added=added,
            files_removed=removed,
            partitions_optimized=outcome.partitions,
            num_bins=outcome.bins["committed"],
            num_batches=len(outcome.versions),
            total_considered_files=considered,
            total_files_skipped=considered - removed.total_files,
            deletion_vector_stats=VectorCounts(
                measured["vectors_removed"], measured["vector_rows_removed"]
            ),
            num_table_columns=len(how.schema.columns.fields),
            num_table_columns_with_stats=_columns_with_statistics(how),
            start_time_ms=times_ms[0],
            end_time_ms=times_ms[1],
            z_order_stats=_z_order_stats(outcome.order, how),
            clustering_stats=_clustering_stats(outcome.order, how),
        )


def _z_order_stats(order: OrderCounts, how: Rewriting) -> ZOrderStats | None:
    if how.ordering is None or how.ordering.clustering:
        return None
    return ZOrderStats(
        "incremental",
        FilesAndBytes(*order.of_cubes),
        FilesAndBytes(*order.others),
        len(order.cubes),
        FilesAndBytes(*order.merged),
        len(order.new_cubes),
    )


def _clustering_stats(order: OrderCounts, how: Rewriting) -> ClusteringStats | None:
    if how.ordering is None or not how.ordering.clustering:
        return None
    return ClusteringStats(
        CubeFiles(*order.of_cubes),
        CubeFiles(*order.others),
        len(order.cubes),
        CubeFiles(*order.merged),
        len(order.new_cubes),
    )


def _sizes(measured: Mapping[str, Any], which: str) -> FileSizes:
    files, size = measured[f"files_{which}"], measured[f"bytes_{which}"]
    average = size / files if files else 0.0
    return FileSizes(measured[f"min_{which}"], measured[f"max_{which}"], average, files, size)


def _columns_with_statistics(how: Rewriting) -> int:
    leaves = {path for path, _ in how.schema.data.leaves()}
    indexed = leaves & {*indexed_columns(how.schema, how.properties), *how.clustering_columns}
    return len({path[0] for path in indexed})
