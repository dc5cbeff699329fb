"""Metrics of a commit: the same numbers as Delta's."""

from maint_assets.commit.rewrite.metrics import operation_metrics
from maint_assets.commit.rewrite.values import RewrittenBin
from maint_assets.delta.actions import Add


def of_sizes(*sizes: int) -> tuple[Add, ...]:
    return tuple(Add(str(size), size) for size in sizes)


def test_percentiles_are_elements_at_their_share_of_the_count() -> None:
    found = operation_metrics([RewrittenBin("0", of_sizes(9), of_sizes(50, 10, 40, 20, 30))])

    sizes = [found[f"{name}FileSize"] for name in ("min", "p25", "p50", "p75", "max")]
    assert sizes == ["10", "20", "30", "40", "50"]
