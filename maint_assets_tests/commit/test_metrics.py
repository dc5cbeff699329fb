"""Metrics of a rewrite: Delta's own numbers, without their defects."""

from maint_assets.commit.metrics import FileStatistics, RewriteMetrics, operation_metrics
from maint_assets.commit.rewritten import RewrittenBin
from maint_assets.delta.actions import Add, DeletionVector

VECTOR = DeletionVector("i", "x", 4, 3)


def of_sizes(*sizes: int) -> tuple[Add, ...]:
    return tuple(Add(str(size), size) for size in sizes)


def test_percentiles_are_elements_at_their_share_of_the_count() -> None:
    found = operation_metrics([RewrittenBin("0", of_sizes(9), of_sizes(50, 10, 40, 20, 30))])

    sizes = [found[f"{name}FileSize"] for name in ("min", "p25", "p50", "p75", "max")]
    assert sizes == ["10", "20", "30", "40", "50"]


def test_numbers_are_those_of_all_commits() -> None:
    first = RewrittenBin("0", (Add("a", 4, {"p": "1"}), Add("b", 6, {"p": "1"})), of_sizes(9))
    second = RewrittenBin("1", (Add("c", 2, {"p": "2"}, deletion_vector=VECTOR),), of_sizes(1))

    found = RewriteMetrics.of([[first], [second], []], considered=7, start_ms=1, end_ms=2)

    assert found.files_removed == FileStatistics(2, 6, 4.0, 3, 12)
    assert (found.num_files_added, found.files_added.total_size) == (2, 10)
    assert (found.partitions_optimized, found.num_bins, found.num_batches) == (2, 2, 2)
    assert (found.total_considered_files, found.total_files_skipped) == (7, 4)
    assert (found.num_deletion_vectors_removed, found.deletion_vector_rows_removed) == (1, 3)


def test_rewrite_of_nothing_has_no_extremes_and_no_batch() -> None:
    found = RewriteMetrics.of([], considered=3, start_ms=1, end_ms=2)

    assert found.files_added == FileStatistics(None, None, 0.0, 0, 0)
    assert (found.num_batches, found.total_files_skipped) == (0, 3)
