"""Tables for benchmarks: active, removed and untracked files over partitions, all old enough."""

import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from deltalake import DeltaTable

DAY_MS = 86_400_000
AGE_MS = 40 * DAY_MS
SHARES = {"active": 0.5, "removed": 0.3, "orphan": 0.2}


def vacuum_table(path: Path, files: int, partitions: int = 100) -> None:
    """Make a table of empty files: half live, 30 % removed, 20 % untracked.

    Each partition has an empty directory; a checkpoint follows two thirds of the removes.
    """
    shutil.rmtree(path, ignore_errors=True)
    then_ms = int(time.time() * 1000) - AGE_MS
    names = {
        kind: list(_names(kind, int(files * share), partitions)) for kind, share in SHARES.items()
    }
    for number in range(partitions):
        (path / f"p={number:04d}").mkdir(parents=True)
        (path / f"p=empty{number:04d}").mkdir()
    for name in (name for kind in names.values() for name in kind):
        (path / name).touch()
    _log(path, names["active"], names["removed"], then_ms=then_ms)
    for file in path.rglob("*"):
        os.utime(file, (then_ms / 1000, then_ms / 1000))


def copy_of(table: Path, target: Path) -> Path:
    """A copy with hard links to the data files, so with the same modification times."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(
        table, target, copy_function=os.link, ignore=shutil.ignore_patterns("_delta_log")
    )
    shutil.copytree(table / "_delta_log", target / "_delta_log")
    return target


def _names(kind: str, count: int, partitions: int) -> Iterator[str]:
    rng = Random(kind)
    for number in range(count):
        mark = uuid.UUID(int=rng.getrandbits(128))
        yield f"p={number % partitions:04d}/part-{number % 100_000:05d}-{mark}.c000.snappy.parquet"


def _log(path: Path, active: list[str], removed: list[str], *, then_ms: int) -> None:
    schema = {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in (("id", "long"), ("key", "long"), ("p", "string"))
        ],
    }
    metadata = {
        "id": str(uuid.UUID(int=7)),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema),
        "partitionColumns": ["p"],
        "configuration": {},
        "createdTime": then_ms,
    }
    log = path / "_delta_log"
    log.mkdir()
    protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
    commits = [[{"protocol": protocol}, {"metaData": metadata}]]
    commits += [[_add(name, then_ms) for name in part] for part in _parts(active + removed, 12)]
    removes = [[_remove(name, then_ms) for name in part] for part in _parts(removed, 9)]
    for version, actions in enumerate([*commits, *removes]):
        info = {
            "commitInfo": {
                "timestamp": then_ms,
                "operation": "WRITE" if version <= 12 else "DELETE",
            }
        }
        text = "\n".join(json.dumps(action) for action in [info, *actions])
        (log / f"{version:020d}.json").write_text(text + "\n", encoding="utf-8")
        if version == len(commits) + 5:
            DeltaTable(str(path)).create_checkpoint()


def _parts(names: list[str], count: int) -> list[list[str]]:
    size = -(-len(names) // count)
    return [names[first : first + size] for first in range(0, len(names), size)]


def _add(name: str, then_ms: int) -> dict[str, Any]:
    stats = {
        "numRecords": 1000,
        "minValues": {"id": 0},
        "maxValues": {"id": 999},
        "nullCount": {"id": 0},
    }
    return {
        "add": {
            "path": name,
            "partitionValues": {"p": name[2:6]},
            "size": 0,
            "modificationTime": then_ms,
            "dataChange": True,
            "stats": json.dumps(stats),
        }
    }


def _remove(name: str, then_ms: int) -> dict[str, Any]:
    return {"remove": {"path": name, "deletionTimestamp": then_ms, "dataChange": True, "size": 0}}
