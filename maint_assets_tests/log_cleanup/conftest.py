"""Chains that clean logs: each on its own instance, disposed of after the test."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from maint_assets_tests.log_cleanup.logs import NOW_MS
from maint_assets_tests.support.chain import Chain, set_clock

CleaningOf = Callable[..., Chain]


@pytest.fixture
def cleaning_of(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CleaningOf]:
    """Chains that keep 26 days before NOW_MS, unless settings change that."""
    made: list[Chain] = []

    def cleaning_of(path: Path, *, now_ms: int = NOW_MS, **asked: Any) -> Chain:
        settings = {"retention": "26 days", "allow_short_retention": True}
        settings |= {"allow_clock_skew": True} | asked
        chain = Chain.cleaning(path, tmp_path_factory.mktemp("workspace"), **settings)
        made.append(chain)
        set_clock(chain, now_ms)
        return chain

    yield cleaning_of
    for chain in made:
        chain.launcher.instance.dispose()
