"""Operation metrics of a commit of rewritten files, as DESCRIBE HISTORY shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from maint_assets.commit.rewrite.values import RewrittenBin
    from maint_assets.delta.actions import Add


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
    """The element at ``count * percent // 100``, delta-spark's rule; 0 for no elements."""
    at = min(len(ordered) * percent // 100, len(ordered) - 1)
    return ordered[at] if ordered else 0


def _inputs(bins: Iterable[RewrittenBin]) -> list[Add]:
    return [file for each in bins for file in each.inputs]


def _outputs(bins: Iterable[RewrittenBin]) -> list[Add]:
    return [file for each in bins for file in each.outputs]
