"""The command ``inspect``: a table's snapshot as JSON or for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from maint_assets.assets.numbers import human_bytes, human_count, human_time
from maint_assets.snapshot.summary import SnapshotSummary

if TYPE_CHECKING:
    from rich.console import Console

    from maint_assets.cli.launcher import Launched, Launcher
    from maint_assets.config import TableSettings


def inspection(launcher: Launcher, table: TableSettings) -> tuple[SnapshotSummary, Launched]:
    """Read the snapshot of a table; raises the error that ended it."""
    launched = launcher.plan(table, stages=["snapshot"])
    if launched.error is not None:
        raise launched.error
    return launcher.dataset(table, "snapshot", launched).summary(SnapshotSummary), launched


def inspection_json(seen: SnapshotSummary) -> dict[str, Any]:
    """The public JSON object of ``maint-assets inspect``."""
    return {
        "table": seen.table,
        "table_id": seen.table_id,
        "version": seen.version,
        "timestamp_ms": seen.timestamp_ms,
        "live_files": seen.live_files,
        "live_bytes": seen.live_bytes,
        "tombstones": seen.tombstones,
        "reader_features": seen.reader_features,
        "writer_features": seen.writer_features,
        "min_reader_version": seen.min_reader_version,
        "min_writer_version": seen.min_writer_version,
        "partition_columns": seen.partition_columns,
        "checkpoint_version": seen.checkpoint_version,
        "checksum": seen.checksum,
        "refused": seen.refused,
    }


def show_inspection(console: Console, seen: SnapshotSummary) -> None:
    """Print the snapshot of a table, and which operations are refused on it."""
    rows = {
        "table": seen.table,
        "id": seen.table_id,
        "version": f"{seen.version} of {human_time(seen.timestamp_ms)}",
        "live": f"{human_count(seen.live_files, 'file')}, {human_bytes(seen.live_bytes)}",
        "tombstones": f"{seen.tombstones:,}",
        "log": f"{human_count(seen.log_commits, 'commit')}, checkpoint {seen.checkpoint_version}",
        "checksum": seen.checksum,
        "partitioned by": ", ".join(seen.partition_columns) or "-",
        "protocol": f"reader {seen.min_reader_version}, writer {seen.min_writer_version}",
        "features": ", ".join(sorted({*seen.reader_features, *seen.writer_features})) or "-",
    }
    shown = Table(show_header=False, box=None, pad_edge=False)
    for name, value in rows.items():
        shown.add_row(f"[dim]{name}[/]", escape(value))
    for operation, reasons in seen.refused.items():
        shown.add_row(f"[red]no {operation}[/]", escape("; ".join(reasons)))
    console.print(shown)
