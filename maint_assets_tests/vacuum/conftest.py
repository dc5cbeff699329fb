"""Chains for the vacuum tests: each on its own instance, disposed of after the test."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from maint_assets_tests.support.chain import Chain, set_clock
from maint_assets_tests.support.story import Story

ChainOf = Callable[..., Chain]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignore the deprecation warnings that Dagster's own resources cause."""
    for item in items:
        item.add_marker(pytest.mark.filterwarnings("ignore:.*will be removed in a future release"))


@pytest.fixture
def chain_of(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChainOf]:
    """Chains of tables that retain nothing beyond what they need, unless settings change that.

    ``now_ms`` fixes the clock of the chain; without ``workspace`` it gets a new one.
    """
    made: list[Chain] = []

    def chain_of(
        path: Path, *, now_ms: int | None = None, workspace: Path | None = None, **vacuum: Any
    ) -> Chain:
        settings = {"retention": "0 hours", "allow_short_retention": True} | vacuum
        wanted = {key: value for key, value in settings.items() if value is not None}
        chain = Chain.of(path, workspace or tmp_path_factory.mktemp("workspace"), **wanted)
        made.append(chain)
        set_clock(chain, now_ms)
        return chain

    yield chain_of
    for chain in made:
        chain.launcher.instance.dispose()


@pytest.fixture
def story(spark: SparkSession, tmp_path: Path, chain_of: ChainOf) -> Story:
    """A story whose table is yet to be created."""
    return Story(spark, tmp_path / "table", chain_of)
