"""What ``dagster dev`` and ``dg dev`` load: the tables of $MAINT_ASSETS_CONFIG or maintenance.yaml.

Without either the tables of ``make demo`` are shown, if it ran.
"""

import os
from pathlib import Path

import dagster as dg

from maint_assets.assets.jobs import build_maintenance_definitions
from maint_assets.config import DEFAULT_CONFIG, Maintenance, load

DEMO_CONFIG = Path(".demo") / DEFAULT_CONFIG


@dg.definitions
def defs() -> dg.Definitions:
    """The definitions of the configured tables; none without a config."""
    named = os.environ.get("MAINT_ASSETS_CONFIG")
    found = (
        [Path(named)] if named else [p for p in (Path(DEFAULT_CONFIG), DEMO_CONFIG) if p.exists()]
    )
    return build_maintenance_definitions(load(found[0]) if found else Maintenance())
