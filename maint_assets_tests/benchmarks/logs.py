"""``make bench-logs``: log cleanup by ours, delta-spark and deltalake, interleaved.

A log of many commits with a checkpoint every hundred; all but the last hundred have expired. Ours
is the whole chain through Dagster: ``total`` includes the snapshot, ``cleanup`` is plan and
execution. For the peers ``total`` includes loading the table, ``cleanup`` does not.
ARGS="--commits 20000 [--rounds 3] [--checksums] [--skip PEER]". With ``--files 1000000`` a hundred
expired commits add that many files instead, with four checkpoints.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from maint_assets_tests.benchmarks.checkpointing import (
    CLASSIC,
    added,
    added_names,
    in_child,
    metadata,
    removed,
    write_commit,
)
from maint_assets_tests.benchmarks.measure import Peak, Row, best, session, timed
from maint_assets_tests.benchmarks.tables import copy_of
from maint_assets_tests.oracles.delta_spark import clock_at, forget, log_at
from maint_assets_tests.support.builder import TableBuilder
from maint_assets_tests.support.chain import Chain

EVERY = LIVE = RECENT = 100
PADDING = "x" * 500

DELTA_RS = """
import sys, time, json
from deltalake import DeltaTable
started = time.perf_counter()
table = DeltaTable(sys.argv[1])
loaded = time.perf_counter()
table.cleanup_metadata()
ended = time.perf_counter()
print(json.dumps({"total": ended - started, "cleanup": ended - loaded}))
"""


def logs_table(path: Path, *, commits: int, checksums: bool) -> None:
    """Commits that each replace an older file; 120 to 32 days old, the last ones new."""
    table = TableBuilder(path).at(days_ago=120)
    table.create()
    for version in range(1, commits + 1):
        expired = min(version / (commits - RECENT), 1.0)
        table.at(days_ago=120 - 88 * expired if version <= commits - RECENT else 0.01)
        actions = [{"add": _file(version) | {"modificationTime": table.clock_ms, "tags": None}}]
        if version > LIVE:
            gone = _file(version - LIVE)
            actions.append({"remove": gone | {"deletionTimestamp": table.clock_ms}})
        table.commit(actions, operation="WRITE")
        if version % EVERY == 0:
            table.tombstones.clear()
            table.checkpoint()
        if checksums:
            table.checksum()


def files_table(path: Path, *, files: int) -> None:
    """Commits that add files and remove 1 % of them, 60 to 40 days ago; three are new."""
    names, now_ms = added_names(files, 1_000), int(time.time() * 1000)
    each, before = files // EVERY, list[dict[str, Any]]()
    (path / "_delta_log").mkdir(parents=True)
    write_commit(path / "_delta_log", 0, [{"protocol": CLASSIC}, metadata("classic", now_ms)])
    for version in range(1, EVERY + 4):
        is_new = version > EVERY
        found = [f"late-{version}"] if is_new else islice(names, each)
        adds = [added(version * each + at, name, now_ms) for at, name in enumerate(found)]
        removes = [] if is_new else [removed(add, now_ms) for add in before[: each // 100]]
        write_commit(path / "_delta_log", version, [*removes, *adds])
        before = adds
        if version % 25 == 0 and not is_new:
            DeltaTable(str(path)).create_checkpoint()
    for file in (path / "_delta_log").glob("0*"):
        version = int(file.name[:20])
        at = time.time() - (60 - 20 * version / EVERY) * 86_400
        os.utime(file, (at, at) if version <= EVERY else None)


def _file(version: int) -> dict[str, Any]:
    return {
        "path": f"part-{version:08d}-{PADDING}.parquet",
        "partitionValues": {},
        "size": 1_000,
        "dataChange": True,
    }


def _ours(spark: SparkSession, path: Path, folder: Path) -> Row:
    chain = Chain.cleaning(path, folder / "workspace")
    total, report = timed(chain.clean)
    assert report.done is not None
    stages = {f"s_{name}": seconds for name, seconds in report.seconds.items()}
    cleanup = sum(report.seconds[name] for name in ("expired_logs", "deleted_logs"))
    return {"total": total, "cleanup": round(cleanup, 3), **stages}


def _delta_spark(spark: SparkSession, path: Path, folder: Path) -> Row:
    forget(spark)
    started = time.perf_counter()
    log: Any = log_at(spark, path, clock_at(spark, int(time.time() * 1000)))
    defaults = [getattr(log, f"update$default${number}")() for number in (1, 2, 3)]
    snapshot = log.update(*defaults)
    loaded = time.perf_counter()
    rest = [getattr(log, f"cleanUpExpiredLogs$default${number}")() for number in (2, 3, 4)]
    log.cleanUpExpiredLogs(snapshot, *rest)
    ended = time.perf_counter()
    return {"total": round(ended - started, 3), "cleanup": round(ended - loaded, 3)}


def _delta_rs(spark: SparkSession, path: Path, folder: Path) -> Row:
    command = [sys.executable, "-c", DELTA_RS, str(path)]
    out = subprocess.run(command, check=True, capture_output=True, text=True)
    return {name: round(seconds, 3) for name, seconds in json.loads(out.stdout).items()}


def main() -> None:
    """Run the peers in turn and print the best and the median seconds of each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--commits", type=int, default=20_000)
    parser.add_argument("--files", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--checksums", action="store_true")
    parser.add_argument("--heap", default="4g")
    parser.add_argument("--skip", action="append", default=[])
    args = parser.parse_args()
    found: dict[str, list[Row]] = {name: [] for name in PEERS if name not in args.skip}
    with tempfile.TemporaryDirectory(prefix="maint-bench-") as made:
        folder = Path(made)
        make = partial(logs_table, commits=args.commits, checksums=args.checksums)
        if args.files:
            make = partial(files_table, files=args.files)
        in_child(make, folder / "table")
        spark = session(folder, heap=args.heap)
        for number in range(args.rounds + 1):
            for name, rows in found.items():
                rows.append(_measured(partial(PEERS[name], spark), folder))
                print(f"round {number} {name:14} {rows[-1]}", flush=True)
    shown = {name: best(rows[1:] or rows) for name, rows in found.items()}
    print(json.dumps({**vars(args), "min_median": shown}))


def _measured(peer: Callable[[Path, Path], Row], folder: Path) -> Row:
    """Run a peer once on a fresh copy of the table."""
    path = copy_of(folder / "table", folder / "copy")
    with Peak() as peak:
        row = peer(path, folder)
    left = sum(1 for _ in (path / "_delta_log").iterdir())
    shutil.rmtree(path)
    memory = {"peak_mb": peak.mb, "here_mb": peak.here_mb, "worker_mb": peak.worker_mb}
    return row | {"left": left, **memory}


PEERS = {"maint_assets": _ours, "delta-spark": _delta_spark, "deltalake": _delta_rs}


if __name__ == "__main__":
    main()
