"""``make bench-checkpoint``: a checkpoint by ours, delta-spark and deltalake, interleaved.

The same log for all: a checkpoint of ``--files`` live files, then ten commits of 500 adds and
500 removes each. ARGS="--files 1000000 --rounds 3 [--policy v2] [--skip PEER]". All but deltalake
also write parsed statistics. ``state`` of delta-spark is the time to read the log, which a session
that has just written to the table has spent before; its memory is that of a JVM shared by all
peers: skip the others to measure it.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from maint_assets.cli.checkpoint import checkpoint
from maint_assets_tests.benchmarks.measure import Peak, Row, best, session, timed
from maint_assets_tests.oracles.delta_spark import forget
from maint_assets_tests.support.chain import Chain

Peer = Callable[[SparkSession, Path, int], Row]

COMMITS, CHANGES = 10, 500
SCHEMA = {"id": "long", "key": "long", "p": "string"}
CLASSIC: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": 2}
V2: dict[str, Any] = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["v2Checkpoint"],
    "writerFeatures": ["v2Checkpoint"],
}
STATS = (
    '{"numRecords":1000,"minValues":{"id":%d,"key":%d},"maxValues":{"id":%d,"key":%d},'
    '"nullCount":{"id":0,"key":0}}'
)

DELTA_RS = """
import json, resource, sys, time
from deltalake import DeltaTable
started = time.perf_counter()
DeltaTable(sys.argv[1]).create_checkpoint()
took = time.perf_counter() - started
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
print(json.dumps({"total": round(took, 3), "peak_mb": peak}))
"""


def log_table(path: Path, *, files: int, partitions: int, policy: str) -> None:
    """Write a log without data files: a checkpoint, then ten commits with few changes."""
    log, now_ms = path / "_delta_log", int(time.time() * 1000) - 3_600_000
    log.mkdir(parents=True)
    adds = [
        added(number, name, now_ms) for number, name in enumerate(added_names(files, partitions))
    ]
    write_commit(
        log, 0, [{"protocol": V2 if policy == "v2" else CLASSIC}, metadata(policy, now_ms)]
    )
    for version in range(1, 11):
        write_commit(log, version, adds[version - 1 :: 10])
    DeltaTable(str(path)).create_checkpoint()
    for number in range(COMMITS):
        first = number * CHANGES
        removes = [removed(add, now_ms) for add in adds[first : first + CHANGES]]
        names = added_names(CHANGES, partitions, seed=f"commit {number}")
        new = [added(files + first + at, name, now_ms) for at, name in enumerate(names)]
        write_commit(log, 11 + number, [*removes, *new])


def added_names(count: int, partitions: int, seed: str = "") -> Iterator[str]:
    rng = Random(seed)
    for number in range(count):
        mark = uuid.UUID(int=rng.getrandbits(128))
        yield f"p={number % partitions:04d}/part-{number % 100_000:05d}-{mark}.c000.snappy.parquet"


def added(number: int, name: str, at_ms: int) -> dict[str, Any]:
    return {
        "add": {
            "path": name,
            "partitionValues": {"p": name[2:6]},
            "size": 1_000_000 + number,
            "modificationTime": at_ms,
            "dataChange": True,
            "stats": STATS % (number * 1000, number, number * 1000 + 999, number + 77),
        }
    }


def removed(add: dict[str, Any], at_ms: int) -> dict[str, Any]:
    kept = {name: add["add"][name] for name in ("path", "partitionValues", "size", "dataChange")}
    return {"remove": {**kept, "deletionTimestamp": at_ms, "extendedFileMetadata": True}}


def metadata(policy: str, at_ms: int) -> dict[str, Any]:
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in SCHEMA.items()
    ]
    return {
        "metaData": {
            "id": str(uuid.UUID(int=7)),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": fields}),
            "partitionColumns": ["p"],
            "configuration": {"delta.checkpointPolicy": policy},
            "createdTime": at_ms,
        }
    }


def write_commit(log: Path, version: int, actions: list[dict[str, Any]]) -> None:
    info = {"commitInfo": {"timestamp": int(time.time() * 1000), "operation": "WRITE"}}
    lines = (json.dumps(action) + "\n" for action in (info, *actions))
    (log / f"{version:020d}.json").write_text("".join(lines), encoding="utf-8")


def _ours(spark: SparkSession, table: Path, files: int) -> Row:
    chain = Chain.of(table, table.with_name("workspace"))
    total, _ = timed(lambda: checkpoint(chain.launcher, chain.table))
    return {"total": total}


def _our_process(spark: SparkSession, table: Path, files: int) -> Row:
    command = [sys.executable, "-m", "maint_assets.cli", "checkpoint", str(table), "--json"]
    run = partial(subprocess.run, command, check=True, capture_output=True, cwd=table.parent)
    total, done = timed(run)
    return {"total": total, "s_checkpoint": json.loads(done.stdout)["seconds"]}


def _delta_spark(spark: SparkSession, table: Path, files: int, *, parts: int = 0) -> Row:
    key = "spark.databricks.delta.checkpoint.partSize"
    spark.conf.set(key, str(files // parts + CHANGES * COMMITS)) if parts else spark.conf.unset(key)
    forget(spark)
    jvm: Any = spark._jvm
    place, delta = jvm.org.apache.hadoop.fs.Path(str(table)), jvm.org.apache.spark.sql.delta
    log = delta.DeltaLog.forTable(spark._jsparkSession, place)
    state, _ = timed(log.unsafeVolatileSnapshot().numOfFiles)
    written, _ = timed(log.checkpoint)
    return {"total": round(state + written, 3), "state": state, "s_checkpoint": written}


def _delta_rs(spark: SparkSession, table: Path, files: int) -> Row:
    command = [sys.executable, "-c", DELTA_RS, str(table)]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def main() -> None:
    """Run the peers in turn and print the best and the median seconds of each."""
    parser = argparse.ArgumentParser(prog="make bench-checkpoint")
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--policy", choices=["classic", "v2"], default="classic")
    parser.add_argument("--heap", default="4g", help="of the JVM")
    parser.add_argument("--skip", action="append", default=[], choices=list(PEERS))
    args = parser.parse_args()
    left_out = {*args.skip, *(["delta-spark in parts", "deltalake"] if args.policy == "v2" else [])}
    found: dict[str, list[Row]] = {name: [] for name in PEERS if name not in left_out}
    with tempfile.TemporaryDirectory(prefix="maint-bench-") as made:
        folder = Path(made)
        make = partial(log_table, files=args.files, partitions=args.partitions, policy=args.policy)
        in_child(make, folder / "table")
        spark = session(folder, heap=args.heap)
        for number in range(args.rounds + 1):
            for name, rows in found.items():
                rows.append(_measured(partial(PEERS[name], spark), folder, args.files))
                print(f"round {number} {name:20} {rows[-1]}", flush=True)
    shown = {name: best(rows[1:] or rows) for name, rows in found.items()}
    print(json.dumps({**vars(args), "min_median": shown}))


def in_child(make: Callable[[Path], None], path: Path) -> None:
    """Make a table in a child process, so that its memory is freed."""
    child = os.fork()
    if not child:
        make(path)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def _measured(peer: Callable[[Path, int], Row], folder: Path, files: int) -> Row:
    """Run a peer once on a fresh copy of the table; its checkpoint must have every action."""
    table = shutil.copytree(folder / "table", folder / "copy")
    before = set(table.rglob("*"))
    with Peak() as peak:
        row = peer(table, files)
    new = [file for file in set(table.rglob("*")) - before if file.suffix == ".parquet"]
    assert sum(pq.ParquetFile(file).metadata.num_rows for file in new) >= files + COMMITS * CHANGES
    size = sum(file.stat().st_size for file in new)
    shutil.rmtree(table)
    memory = {"peak_mb": peak.mb, "driver_mb": peak.driver_mb}
    return {**memory, **row, "written_mb": round(size / 1e6, 1)}


PEERS: dict[str, Peer] = {
    "maint_assets": _ours,
    "maint_assets process": _our_process,
    "delta-spark": _delta_spark,
    "delta-spark in parts": partial(_delta_spark, parts=2),
    "deltalake": _delta_rs,
}


if __name__ == "__main__":
    main()
