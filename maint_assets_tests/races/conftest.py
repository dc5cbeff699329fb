"""Settings of the races, some rounds of which run through Dagster."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignore the deprecation warnings that Dagster's own resources cause."""
    for item in items:
        item.add_marker(pytest.mark.filterwarnings("ignore:.*will be removed in a future release"))
