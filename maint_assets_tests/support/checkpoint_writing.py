"""Checkpoints that we write: tables for them, and what readers read from them."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from maint_assets.commit.checkpoint.writer import WrittenCheckpoint, write_checkpoint
from maint_assets.delta.hint import parse_hint
from maint_assets.snapshot.head import TableHead, table_head
from maint_assets.storage.location import Location
from maint_assets_tests.oracles import delta_spark
from maint_assets_tests.support.builder import DAY_MS, TableBuilder


def head_of(path: Path, version: int | None = None) -> TableHead:
    return table_head(Location.of(str(path)), version)


def written(
    spark: SparkSession, path: Path, *, version: int | None = None, now_ms: int | None = None
) -> WrittenCheckpoint:
    head = head_of(path, version)
    return write_checkpoint(
        spark,
        head,
        parallelism=2,
        scratch=str(path.with_name("scratch")),
        now_ms=head.timestamp_ms if now_ms is None else now_ms,
    )


def without_commits(table: Path, version: int) -> Path:
    """A copy of a table that can be read at a version only through its checkpoint."""
    copy = shutil.copytree(table, table.with_name(f"{table.name} alone"))
    for old in range(version):
        for suffix in ("json", "crc"):
            (copy / f"_delta_log/{old:020}.{suffix}").unlink(missing_ok=True)
    # The checksum may contain all files too: Delta must not read them from there.
    (copy / f"_delta_log/{version:020}.crc").unlink(missing_ok=True)
    return copy


def hint(path: Path) -> dict[str, Any]:
    content = (path / "_delta_log/_last_checkpoint").read_bytes()
    assert parse_hint(content)
    return json.loads(content)


def log(spark: SparkSession, path: Path) -> Any:
    """Delta's log of a table, as of its newest version."""
    return delta_spark.log_at(spark, path, delta_spark.clock_at(spark, head_of(path).timestamp_ms))


def state(spark: SparkSession, path: Path) -> dict[str, list[str]]:
    """Delta's state of a table, as the JSON of its actions."""
    snapshot = log(spark, path).unsafeVolatileSnapshot()
    found: dict[str, list[str]] = {}
    for name in ("allFiles", "tombstones"):
        files = getattr(snapshot, name)()
        found[name] = sorted(files.toJSON().collectAsList())
    for name in ("setTransactions", "domainMetadata"):
        listed = getattr(snapshot, name)()
        found[name] = sorted(listed.apply(at).json() for at in range(listed.size()))
    found["overview"] = [snapshot.protocol().json(), snapshot.metadata().json()]
    return found


def compared(found: Mapping[str, list[str]]) -> dict[str, list[Any]]:
    """Actions with statistics as values, since parsed ones are serialised again.

    Delta's own checkpoints also omit tags and statistics of tombstones.
    """
    actions = {name: [with_stats(json.loads(row)) for row in rows] for name, rows in found.items()}
    for remove in actions["tombstones"]:
        remove.pop("tags", None)
        remove.pop("stats", None)
    return actions


def with_stats(action: dict[str, Any]) -> dict[str, Any]:
    stats = action.get("stats")
    return action | ({"stats": json.loads(stats)} if stats else {})


def story(path: Path, **create: Any) -> TableBuilder:
    """Tombstones of 9 and of 2 days, transactions, and domains, one of them removed."""
    table = TableBuilder(path).at(days_ago=10).create(**create).add("a", "b", "c")
    table.at(days_ago=9).remove("a").at(days_ago=2).remove("b").at(hours_ago=1)
    old, new = table.now_ms - 9 * DAY_MS, table.now_ms - DAY_MS
    txns = [
        {"txn": {"appId": name, "version": 1, "lastUpdated": at}}
        for name, at in (("old", old), ("new", new))
    ]
    domains = [domain("kept"), domain("gone")]
    table.commit([*txns, *domains])
    return table.commit([domain("gone", removed=True), {"txn": {"appId": "bare", "version": 4}}])


def domain(name: str, *, removed: bool = False) -> dict[str, Any]:
    return {"domainMetadata": {"domain": name, "configuration": "{}", "removed": removed}}


def content(path: Path, name: str) -> list[dict[str, Any]]:
    file = next((path / "_delta_log").glob("*.checkpoint.parquet"))
    return [row[name] for row in pq.read_table(file).to_pylist() if row[name]]


def sometimes(names: Any, always: set[str]) -> list[Any]:
    return [
        name if name in always else pytest.param(name, marks=pytest.mark.long) for name in names
    ]
