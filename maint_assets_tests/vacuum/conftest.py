"""Chains for stories about one table: each on an instance of its own, gone after the test."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from maint_assets_tests.support.chain import Chain, set_clock
from maint_assets_tests.support.story import Story

ChainOf = Callable[..., Chain]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Dagster's own resources use what Dagster deprecates."""
    for item in items:
        item.add_marker(pytest.mark.filterwarnings("ignore:.*will be removed in a future release"))


@pytest.fixture
def chain_of(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChainOf]:
    """Chains of tables that keep nothing but what they need, unless settings say otherwise.

    ``now_ms`` fixes the clock of the chain, ``workspace`` is another one than a new one.
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
    """A table that is about to be told."""
    return Story(spark, tmp_path / "table", chain_of)
