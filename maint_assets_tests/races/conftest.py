"""Races go through Dagster now and then."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Dagster's own resources use what Dagster deprecates."""
    for item in items:
        item.add_marker(pytest.mark.filterwarnings("ignore:.*will be removed in a future release"))
