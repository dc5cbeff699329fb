"""Chains that run a compaction, for stories about one table."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from maint_assets_tests.support.chain import Chain, set_clock

Compacting = Callable[..., Chain]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignore the deprecation warnings that Dagster's own resources cause."""
    for item in items:
        item.add_marker(pytest.mark.filterwarnings("ignore:.*will be removed in a future release"))


@pytest.fixture
def compacting(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Compacting]:
    """Chains of tables, each on its own instance; keywords are compaction settings."""
    made: list[Chain] = []

    def of(path: Path, *, now_ms: int | None = None, **compaction: Any) -> Chain:
        skew = {} if now_ms is None else {"allow_clock_skew": True}
        workspace = tmp_path_factory.mktemp("workspace [a]")
        chain = Chain.compacting(path, workspace, **skew | compaction)
        set_clock(chain, now_ms)
        made.append(chain)
        return chain

    yield of
    for chain in made:
        chain.launcher.instance.dispose()
