"""delta-rs as an oracle: an implementation that shares no code with delta-spark.

Not for tables with deletion vectors, nested hidden names, UniForm or CDF: there its VACUUM is
wrong.
"""

from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder


def planned_files(path: Path, *, full: bool = True, retention_hours: int | None = None) -> set[str]:
    """The files that its VACUUM would delete, decoded, relative to the root."""
    return _vacuum(path, retention_hours, full=full, dry_run=True)


def vacuum(path: Path, *, full: bool = True, retention_hours: int | None = None) -> set[str]:
    """Execute its VACUUM; the files that it deleted, decoded, relative to the root."""
    return _vacuum(path, retention_hours, full=full, dry_run=False)


def rows(path: Path, version: int | None = None) -> list[dict[str, Any]]:
    """All rows of a version, by default the newest, in a fixed order."""
    table = DeltaTable(path, version=version)
    found = QueryBuilder().register("t", table).execute("SELECT * FROM t")
    return sorted(pa.table(found).to_pylist(), key=repr)


def _vacuum(path: Path, hours: int | None, *, full: bool, dry_run: bool) -> set[str]:
    listed = DeltaTable(path).vacuum(
        retention_hours=hours, full=full, dry_run=dry_run, enforce_retention_duration=False
    )
    return set(listed)
