"""Delta Lake table maintenance on PySpark as a chain of Dagster assets.

The names below are loaded when they are first used: executors import this package without Dagster.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from maint_assets.assets.component import DeltaMaintenanceComponent
    from maint_assets.assets.factory import build_maintenance_assets
    from maint_assets.assets.jobs import build_maintenance_definitions
    from maint_assets.assets.stage_store import StageStore
    from maint_assets.config import (
        CompactionSettings,
        CredentialSettings,
        LogCleanupSettings,
        StorageSettings,
        TableSettings,
        VacuumSettings,
    )

__all__ = [
    "CompactionSettings",
    "CredentialSettings",
    "DeltaMaintenanceComponent",
    "LogCleanupSettings",
    "StageStore",
    "StorageSettings",
    "TableSettings",
    "VacuumSettings",
    "build_maintenance_assets",
    "build_maintenance_definitions",
]

_MODULES = {
    "CompactionSettings": "config",
    "CredentialSettings": "config",
    "DeltaMaintenanceComponent": "assets.component",
    "LogCleanupSettings": "config",
    "StageStore": "assets.stage_store",
    "StorageSettings": "config",
    "TableSettings": "config",
    "VacuumSettings": "config",
    "build_maintenance_assets": "assets.factory",
    "build_maintenance_definitions": "assets.jobs",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
