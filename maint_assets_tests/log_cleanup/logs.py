"""Logs with one commit a day, and the files that a plan deletes of them: for tests of the plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from maint_assets.datasets.ledger import DeletionLocations
from maint_assets.delta.features import feature_names
from maint_assets.log_cleanup.expired_logs import Findings, expired_logs
from maint_assets.log_cleanup.plan import DAY_MS, LogCleanupPlan, Terms, terms
from maint_assets.snapshot.commits import commit_mark
from maint_assets.snapshot.head import table_head
from maint_assets.storage.location import Location
from maint_assets_tests.support.builder import TableBuilder

NOW_MS = 1_795_341_600_000
"""2026-11-22 10:00 UTC."""

OLDEST_DAYS = 40


def daily_log(
    path: Path,
    *,
    checkpoints: Iterable[int] = (),
    checksums: bool = True,
    versions: int = 21,
    at: dict[int, Callable[[TableBuilder], Any]] | None = None,
    **create: Any,
) -> TableBuilder:
    """A table with a commit at noon every day: version 0 forty days ago.

    ``at`` maps a version to further steps with the builder once that version is committed.
    """
    builder = TableBuilder(path, now_ms=NOW_MS).at(days_ago=OLDEST_DAYS, hours_ago=-2)
    builder.create(**create)
    for version in range(versions):
        builder.at(days_ago=OLDEST_DAYS - version, hours_ago=-2)
        if version:
            builder.add(f"part-{version:05d}.parquet", rows=1)
        if version in checkpoints:
            builder.checkpoint()
        if checksums:
            builder.checksum()
        (at or {}).get(version, lambda _: None)(builder)
    return builder


def sidecar_log(path: Path, *versions: int, kind: str = "v2-json", parts: int = 2) -> TableBuilder:
    """A daily log with checkpoints of these versions that have sidecars."""
    at = {version: lambda table: table.checkpoint(kind, parts=parts) for version in versions}
    return daily_log(path, at=at, features=("v2Checkpoint",))


def planned(path: Path, *, days: float = 26, **asked: Any) -> tuple[set[str], Findings]:
    """The planned names below ``_delta_log`` at NOW_MS, and the findings."""
    rows, found = planned_rows(path, days=days, **asked)
    return {name.removeprefix("_delta_log/") for name in rows["path"].to_pylist()}, found


def planned_rows(path: Path, *, days: float = 26, **asked: Any) -> tuple[pa.Table, Findings]:
    """The rows of the plan at NOW_MS, and the findings."""
    return expired_logs(Location.of(str(path)), terms_of(path, days=days, **asked))


def terms_of(path: Path, *, days: float, now_ms: int = NOW_MS, **asked: Any) -> Terms:
    """The terms of a plan that keeps ``days`` days."""
    settings: dict[str, Any] = {
        "granularity": "day",
        "mode": "protocol",
        "force": False,
        "creates_anchor": False,
        "min_keep_version": None,
        **asked,
    }
    head = table_head(Location.of(str(path)))
    features = feature_names(head.protocol)
    return terms(
        head.properties, features, planned_ms=now_ms, retention_ms=int(days * DAY_MS), **settings
    )


def plan_of(path: Path, files: int, *, anchor: int) -> LogCleanupPlan:
    """A plan of ``files`` files, for an execution without Dagster."""
    head = table_head(Location.of(str(path)))
    return LogCleanupPlan(
        table=str(path), table_id=head.metadata.id, version=head.version, mode="protocol",
        cutoff_ms=0, retention_ms=0, table_retention_ms=0, planned_ms=NOW_MS, digest="",
        files=files, bytes=0, anchor_version=anchor, creates_anchor=False, stop_reason=None,
        earliest_version_before=0, earliest_version_after=anchor,
        commit_mark=commit_mark(head.location, head.version),
    )  # fmt: skip


def locations_of(plan: LogCleanupPlan, ledger: Path) -> DeletionLocations:
    """The locations of an execution without Dagster."""
    return DeletionLocations(Location.of(plan.table), Location.of(str(ledger)))


def commits(*versions: int) -> set[str]:
    """The names of commits."""
    return {f"{version:020d}.json" for version in versions}


def of_versions(*versions: int) -> set[str]:
    """The names of commits and their checksums."""
    return commits(*versions) | {f"{version:020d}.crc" for version in versions}


def single(version: int) -> str:
    """The name of a checkpoint in one file."""
    return f"{version:020d}.checkpoint.parquet"


def parts(version: int, count: int) -> set[str]:
    """The names of the files of a multi-part checkpoint."""
    return {
        f"{version:020d}.checkpoint.{part:010d}.{count:010d}.parquet"
        for part in range(1, count + 1)
    }
