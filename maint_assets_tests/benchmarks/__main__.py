"""``make bench``: VACUUM by ours, delta-spark and deltalake on the same tables, interleaved.

ARGS="--files 100000 --rounds 3 [--tables 10] [--skip delta-spark]"; the last line is JSON. With
several tables, each peer vacuums them one after another in its session; seconds are the sum.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from maint_assets_tests.benchmarks.measure import Peak, Row, best, session, timed
from maint_assets_tests.benchmarks.tables import copy_of, vacuum_table
from maint_assets_tests.oracles.delta_spark import forget
from maint_assets_tests.support.chain import Chain

Peer = Callable[[SparkSession, Path, Path], Row]

DELTA_RS = """
import sys, time, json
from deltalake import DeltaTable
started = time.perf_counter()
done = DeltaTable(sys.argv[1]).vacuum(
    retention_hours=168, dry_run=sys.argv[2] == "plan", full=True, enforce_retention_duration=False)
print(json.dumps({"seconds": time.perf_counter() - started, "paths": len(done)}))
"""


def main() -> None:
    """Run the peers in turn and print the best and the median seconds of each."""
    parser = argparse.ArgumentParser(prog="make bench")
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--partitions", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tables", type=int, default=1)
    parser.add_argument("--heap", default="4g", help="of the JVM")
    parser.add_argument("--skip", action="append", default=[])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="maint-bench-") as made:
        folder = Path(made)
        vacuum_table(folder / "table", args.files, args.partitions)
        peers = {name: peer for name, peer in PEERS.items() if name not in args.skip}
        spark = session(folder, heap=args.heap)
        rounds = [
            _round(peers, spark, folder, number=n, tables=args.tables)
            for n in range(args.rounds + 1)
        ]
    warm = rounds[1:]
    found = {name: [rows[name] for rows in warm] for name in peers}
    shown = {name: best(rows) for name, rows in found.items()}
    print(json.dumps({**vars(args), "min_median": shown}))


def _round(
    peers: dict[str, Peer], spark: SparkSession, folder: Path, *, number: int, tables: int
) -> dict[str, Row]:
    """Run each peer once on fresh copies of the table; round 0 is a warm-up."""
    rows: dict[str, Row] = {}
    for name, peer in peers.items():
        copies = [copy_of(folder / "table", folder / f"copy{each}") for each in range(tables)]
        with Peak() as peak:
            done = [peer(spark, table, folder) for table in copies]
        rows[name] = {key: round(sum(row[key] for row in done), 3) for key in done[0]}
        rows[name]["peak_mb"], rows[name]["driver_mb"] = peak.mb, peak.driver_mb
        print(f"round {number} {name:20} {rows[name]}", flush=True)
    return rows


def _ours(spark: SparkSession, table: Path, folder: Path) -> Row:
    chain = Chain.of(table, folder / "workspace", allow_clock_skew=True)
    plan, report = timed(chain.plan)
    execute, done = timed(lambda: chain.execute(report))
    stages = {f"s_{name}": seconds for name, seconds in done.seconds.items()}
    return {
        "plan": plan,
        "execute": execute,
        "total": plan + execute,
        "files": done.done.files,
        **stages,
    }


def _delta_spark(spark: SparkSession, table: Path, folder: Path) -> Row:
    return _delta_spark_row(spark, table, parallel=False)


def _delta_spark_parallel(spark: SparkSession, table: Path, folder: Path) -> Row:
    return _delta_spark_row(spark, table, parallel=True)


def _delta_spark_row(spark: SparkSession, table: Path, *, parallel: bool) -> Row:
    spark.conf.set("spark.databricks.delta.vacuum.parallelDelete.enabled", str(parallel).lower())
    forget(spark)
    plan, listed = timed(lambda: spark.sql(f"VACUUM delta.`{table}` DRY RUN").count())
    forget(spark)
    execute, _ = timed(lambda: spark.sql(f"VACUUM delta.`{table}`").collect())
    return {"plan": plan, "execute": execute, "total": plan + execute, "files": listed}


def _delta_rs(spark: SparkSession, table: Path, folder: Path) -> Row:
    rows = {}
    for mode in ("plan", "execute"):
        out = subprocess.run(
            [sys.executable, "-c", DELTA_RS, str(table), mode],
            check=True,
            capture_output=True,
            text=True,
        )
        rows[mode] = json.loads(out.stdout)
    plan, execute = (round(rows[mode]["seconds"], 3) for mode in ("plan", "execute"))
    total = plan + execute
    return {"plan": plan, "execute": execute, "total": total, "files": rows["plan"]["paths"]}


PEERS: dict[str, Peer] = {
    "maint_assets": _ours,
    "delta-spark": _delta_spark,
    "delta-spark-parallel": _delta_spark_parallel,
    "deltalake": _delta_rs,
}


if __name__ == "__main__":
    main()
