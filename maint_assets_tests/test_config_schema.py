"""The JSON schema for editors accepts what the config accepts."""

import json
from pathlib import Path

from maint_assets.config import json_schema

SHIPPED = Path(__file__).parents[1] / "docs" / "maintenance.schema.json"


def test_shipped_schema_is_that_of_the_config() -> None:
    assert json.loads(SHIPPED.read_text(encoding="utf-8")) == json_schema()


def test_schema_knows_defaults_without_a_name() -> None:
    defaults = json_schema()["properties"]["defaults"]["properties"]

    assert "vacuum" in defaults
    assert "name" not in defaults
