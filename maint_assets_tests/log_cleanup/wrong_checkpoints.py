"""Checkpoints that differ from the commits, and some that only seem to."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from maint_assets_tests.log_cleanup.logs import (
    NOW_MS,
    OLDEST_DAYS,
)
from maint_assets_tests.support.builder import TABLE_ID, TableBuilder
from maint_assets_tests.support.edits import Edit

LOST = "b"
"""A live file of versions 5 and 10."""


FEATURES = ("deletionVectors", "domainMetadata", "v2Checkpoint")


def txn(version: int) -> dict[str, Any]:
    return {"txn": {"appId": "app", "version": version, "lastUpdated": 1}}


def domain(name: str, text: str, *, removed: bool = False) -> dict[str, Any]:
    return {"domainMetadata": {"domain": name, "configuration": text, "removed": removed}}


STEPS: dict[int, Callable[[TableBuilder], Any]] = {
    1: lambda table: table.add("a"),
    2: lambda table: table.commit([txn(1), domain("kept", "x"), domain("gone", "y")]),
    3: lambda table: table.add("b"),
    4: lambda table: table.remove("a"),
    5: lambda table: table.add("c", "ü ö", "only-5"),
    6: lambda table: table.add("d", "e"),
    7: lambda table: table.commit([txn(2), domain("kept", "z"), domain("gone", "", removed=True)]),
    8: lambda table: table.add("a"),
    9: lambda table: table.delete_rows("d", 0),
    10: lambda table: table.remove("only-5"),
}


def story(
    path: Path,
    *checkpoints: int,
    kind: str = "classic",
    parts: int = 1,
    **create: Any,
) -> TableBuilder:
    """One commit a day: files are added, removed, added again; transactions and domains change."""
    table = TableBuilder(path, now_ms=NOW_MS)
    for version in range(21):
        table.at(days_ago=OLDEST_DAYS - version, hours_ago=-2)
        if version:
            STEPS.get(version, lambda table: table.add(f"v{table.version}"))(table)
        else:
            table.create(features=FEATURES, **create)
        if version in checkpoints:
            table.checkpoint(kind, parts=parts)
    return table


def top(builder: TableBuilder, version: int) -> Path:
    (found,) = builder.log.glob(f"{version:020d}.checkpoint.*")
    return found


def of_c(change: dict[str, Any]) -> Edit:
    """Change the add of the file ``c``."""

    def edit(row: dict[str, Any]) -> None:
        if row["add"] and row["add"]["path"] == "c":
            row["add"].update(change)

    return edit


def _of(action: str, **change: Any) -> Edit:
    def edit(row: dict[str, Any]) -> None:
        if row[action]:
            row[action].update(change)

    return edit


def without(action: str) -> Edit:
    def edit(row: dict[str, Any]) -> None:
        row[action] = None

    return edit


def lost(row: dict[str, Any]) -> None:
    if row["add"] and row["add"]["path"] == LOST:
        row["add"] = None


def _without_vector(row: dict[str, Any]) -> None:
    if row["add"]:
        row["add"]["deletionVector"] = None


def _with_vector(**change: Any) -> Edit:
    def edit(row: dict[str, Any]) -> None:
        if row["add"] and row["add"]["deletionVector"]:
            row["add"]["deletionVector"].update(change)

    return edit


WRONG: dict[str, tuple[Edit, str]] = {
    "another path": (of_c({"path": "c2"}), "other live files"),
    "the path of another": (of_c({"path": "b"}), "twice"),
    "the path spelled otherwise": (of_c({"path": "%63"}), "other live files"),
    "another size": (of_c({"size": 1}), "other live files"),
    "no vector": (_without_vector, "1 of its live files also as removed"),
    "another size of a vector": (_with_vector(sizeInBytes=1), "vectors"),
    "another count of a vector": (_with_vector(cardinality=2), "vectors"),
    "another protocol": (_of("protocol", minWriterVersion=6), "another protocol"),
    "another schema": (_of("metaData", schemaString='{"fields":[]}'), "another metaData"),
    "another table": (_of("metaData", id=f"{TABLE_ID[:-1]}2"), "another metaData"),
    "another name": (_of("metaData", name="x"), "another metaData"),
    "another description": (_of("metaData", description="x"), "another metaData"),
    "another format": (_of("metaData", format={"provider": "orc"}), "another metaData"),
    "another creation": (_of("metaData", createdTime=1), "another metaData"),
    "transaction at another time": (_of("txn", lastUpdated=2), "another txn app"),
    "older transaction": (_of("txn", version=1), "another txn app"),
    "no transaction": (without("txn"), "another txn app"),
    "another application": (_of("txn", appId="app2"), "another txn app"),
    "older domain": (_of("domainMetadata", configuration="x"), "another domainMetadata kept"),
    "no domain": (without("domainMetadata"), "another domainMetadata kept"),
    "another domain": (_of("domainMetadata", domain="x"), "another domainMetadata"),
}


def also_removed(row: dict[str, Any]) -> None:
    if row["remove"]:
        row["remove"].update(path="c", deletionVector=None)


STATS = {
    "numRecords": 2, "minValues": {"id": 0}, "maxValues": {"id": 1}, "nullCount": {"id": 0}
}  # fmt: skip


ROW_TRACKING = ("domainMetadata", "rowTracking")


def partitioned(
    path: Path,
    *checkpoints: int,
    features: Sequence[str] = ROW_TRACKING,
    configuration: Mapping[str, str] | None = None,
) -> TableBuilder:
    """One commit a day that adds a file with partition values, statistics and row ids."""
    table = TableBuilder(path, now_ms=NOW_MS)
    for version in range(21):
        table.at(days_ago=OLDEST_DAYS - version, hours_ago=-2)
        if version:
            day = f"2024-01-{version:02d} 00:00:00"
            values = {"p": str(version % 3), "t": day, "n": None}
            row_ids = {"baseRowId": 2 * version, "defaultRowCommitVersion": version}
            stats = json.dumps(STATS)
            table.add(f"v{version}", partition=values, rows=2, stats=stats, **row_ids)
        else:
            table.create(
                fields={"id": "long", "p": "integer", "t": "timestamp", "n": "string"},
                partition_columns=["p", "t", "n"],
                features=features,
                configuration=configuration,
            )
        if version in checkpoints:
            table.checkpoint()
    return table


def _values(**changed: Any) -> Edit:
    def edit(row: dict[str, Any]) -> None:
        if row["add"]:
            row["add"]["partitionValues"] |= changed

    return edit


def _spelled_otherwise(row: dict[str, Any]) -> None:
    if row["add"]:
        values = row["add"]["partitionValues"]
        del values["n"]
        values["p"] = f"0{values['p']}"


def _stats(**changed: Any) -> Edit:
    def edit(row: dict[str, Any]) -> None:
        if row["add"]:
            stats = json.loads(row["add"]["stats"]) | changed
            row["add"]["stats"] = json.dumps({n: v for n, v in stats.items() if v is not None})

    return edit


def of_adds(**change: Any) -> Edit:
    """Change all adds."""
    return _of("add", **change)


WRONG_OF_FILES: dict[str, tuple[Edit, str]] = {
    "partition": (_values(p="0"), "partition values"),
    "no partition": (_values(p=None), "partition values"),
    "null": (_values(n="x"), "partition values"),
    "time": (of_adds(modificationTime=1), "times"),
    "rows": (_stats(numRecords=1), "numbers of rows"),
    "a text as number of rows": (_stats(numRecords="2"), "numbers of rows"),
    "not JSON": (of_adds(stats="{"), "numbers of rows"),
    "bounds that are not tight": (_stats(tightBounds=False), "bounds"),
    "bounds": (_stats(minValues={"id": 7}), "bounds in the statistics of 10"),
    "nulls": (_stats(nullCount={"id": 2}), "bounds"),
    "row ids": (of_adds(baseRowId=7), "row ids"),
    "no row ids": (of_adds(baseRowId=None, defaultRowCommitVersion=None), "row ids"),
    "row commit version": (of_adds(defaultRowCommitVersion=1), "row ids"),
}


def _without_stats(row: dict[str, Any]) -> None:
    if row["add"]:
        row["add"]["stats"] = None


ALIKE: dict[str, Edit] = {
    "values": _spelled_otherwise,
    "no statistics": _without_stats,
    "no number of rows": _stats(numRecords=None),
    "tight bounds": _stats(tightBounds=True),
    "no bounds": _stats(minValues=None, maxValues=None, nullCount=None),
}
