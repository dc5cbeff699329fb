"""The numbers of a rewrite: those of the commit's history, and those that a person is shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from typing_extensions import Self

    from maint_assets.commit.rewritten import RewrittenBin
    from maint_assets.delta.actions import Add


@dataclass(frozen=True, slots=True)
class FileStatistics:
    """Sizes of some files in bytes; of no files the extremes are None and the average is 0."""

    min: int | None
    max: int | None
    avg: float
    total_files: int
    total_size: int

    @classmethod
    def of(cls, files: Iterable[Add]) -> Self:
        """The statistics of these files."""
        sizes = [file.size for file in files]
        total, average = sum(sizes), sum(sizes) / len(sizes) if sizes else 0.0
        least, most = min(sizes, default=None), max(sizes, default=None)
        return cls(least, most, average, len(sizes), total)


@dataclass(frozen=True, slots=True)
class RewriteMetrics:
    """What a rewrite did, over all its commits; times are its beginning and end in ms.

    ``total_files_skipped`` are files that were considered and stayed. Rows are live ones; those
    of ``deletion_vector_rows_removed`` are gone from storage as well now.
    """

    num_files_added: int
    num_files_removed: int
    files_added: FileStatistics
    files_removed: FileStatistics
    partitions_optimized: int
    num_bins: int
    num_batches: int
    total_considered_files: int
    total_files_skipped: int
    num_deletion_vectors_removed: int
    deletion_vector_rows_removed: int
    start_time_ms: int
    end_time_ms: int

    @classmethod
    def of(
        cls,
        batches: Iterable[Sequence[RewrittenBin]],
        *,
        considered: int,
        start_ms: int,
        end_ms: int,
    ) -> Self:
        """The numbers of the committed bins of each commit."""
        commits = [bins for bins in batches if bins]
        bins = [each for commit in commits for each in commit]
        added = FileStatistics.of(_outputs(bins))
        removed = FileStatistics.of(_inputs(bins))
        vectors = [file.deletion_vector for file in _inputs(bins) if file.deletion_vector]
        partitions = {frozenset(file.partition_values.items()) for file in _inputs(bins)}
        return cls(
            num_files_added=added.total_files,
            num_files_removed=removed.total_files,
            files_added=added,
            files_removed=removed,
            partitions_optimized=len(partitions),
            num_bins=len(bins),
            num_batches=len(commits),
            total_considered_files=considered,
            total_files_skipped=considered - removed.total_files,
            num_deletion_vectors_removed=len(vectors),
            deletion_vector_rows_removed=sum(vector.cardinality for vector in vectors),
            start_time_ms=start_ms,
            end_time_ms=end_ms,
        )


def operation_metrics(bins: Sequence[RewrittenBin]) -> dict[str, str]:
    """The ``operationMetrics`` of a commit of these bins: numbers as text, sizes in bytes."""
    sizes = sorted(file.size for file in _outputs(bins))
    removed = _inputs(bins)
    metrics = {
        "numAddedFiles": len(sizes),
        "numRemovedFiles": len(removed),
        "numAddedBytes": sum(sizes),
        "numRemovedBytes": sum(file.size for file in removed),
        "minFileSize": _percentile(sizes, 0),
        "p25FileSize": _percentile(sizes, 25),
        "p50FileSize": _percentile(sizes, 50),
        "p75FileSize": _percentile(sizes, 75),
        "maxFileSize": _percentile(sizes, 100),
        "numDeletionVectorsRemoved": sum(file.deletion_vector is not None for file in removed),
    }
    return {name: str(number) for name, number in metrics.items()}


def _percentile(ordered: Sequence[int], percent: int) -> int:
    """By Delta's rule: the element at that share of the count; 0 where there is none."""
    at = min(len(ordered) * percent // 100, len(ordered) - 1)
    return ordered[at] if ordered else 0


def _inputs(bins: Iterable[RewrittenBin]) -> list[Add]:
    return [file for each in bins for file in each.inputs]


def _outputs(bins: Iterable[RewrittenBin]) -> list[Add]:
    return [file for each in bins for file in each.outputs]
