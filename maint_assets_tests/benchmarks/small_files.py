"""``make bench-compaction``: OPTIMIZE by ours, delta-spark and deltalake, interleaved.

The same table for all: small files of eight columns, or with ``--categories`` of nine, five of
them text of few values; the same target size and codec for all. Ours is plan and execution
through Dagster. ARGS="--files 2000 --rows 21000 [--partitions 200] [--categories]
[--zorder-by key,ts] [--target-mb 256] [--rounds 3] [--codec zstd] [--skip PEER]". With an order,
``read`` is the mean number of files that 100 random lookups by each column read by statistics.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from maint_assets_tests.benchmarks.measure import Peak, Row, best, session, timed
from maint_assets_tests.benchmarks.tables import copy_of
from maint_assets_tests.oracles.delta_spark import forget
from maint_assets_tests.oracles.delta_spark import table as named
from maint_assets_tests.support.builder import TableBuilder
from maint_assets_tests.support.chain import Chain

FIELDS = {
    "id": "long",
    "key": "long",
    "ts": "timestamp",
    "price": "double",
    "qty": "integer",
    "cat": "string",
    "name": "string",
    "flag": "boolean",
}
EVENTS = {
    "id": "long",
    "ts": "timestamp",
    "price": "double",
    "country": "string",
    "device": "string",
    "status": "string",
    "city": "string",
    "page": "string",
    "user": "string",
}
CATEGORIES = {"country": 200, "device": 12, "status": 5, "city": 3_000, "page": 500}
LOOKUPS = 100

DELTA_RS = """
import sys, time, json
from deltalake import DeltaTable, WriterProperties
started = time.perf_counter()
optimize, columns = DeltaTable(sys.argv[1]).optimize, json.loads(sys.argv[4])
run = (lambda **how: optimize.z_order(columns, **how)) if columns else optimize.compact
done = run(
    target_size=int(sys.argv[2]),
    writer_properties=WriterProperties(compression=sys.argv[3].upper()),
)
print(json.dumps({"seconds": time.perf_counter() - started, "files": done["numFilesRemoved"]}))
"""


def small_files_table(
    path: Path, *, files: int, rows: int, partitions: int, codec: str, categories: bool = False
) -> None:
    """Write ``files`` files of ``rows`` rows, or that many in each partition."""
    made, fields = (_events, EVENTS) if categories else (_rows, FIELDS)
    columns = ["p"] if partitions else []
    codecs = {"delta.parquet.compression.codec": codec}
    table = TableBuilder(path).at(days_ago=9)
    table.create(partition_columns=columns, configuration=codecs, fields=fields)
    rng, start = np.random.default_rng(11), 0
    for part in range(max(partitions, 1)):
        value = {"p": f"{part:04d}"} if partitions else {}
        directory = f"p={part:04d}/" if partitions else ""
        (path / directory).mkdir(exist_ok=True)
        actions = []
        for number in range(files):
            name = f"{directory}part-{number:05d}-{part:04d}.snappy.parquet"
            pq.write_table(made(rng, rows, start), path / name, compression="snappy")
            actions.append(_added(path, name, value, rows=rows, start=start))
            start += rows
        table.commit(actions, operation="WRITE")
    DeltaTable(str(path)).create_checkpoint()


def _rows(rng: np.random.Generator, rows: int, start: int) -> pa.Table:
    cats = np.array([f"category_{number:03d}" for number in range(50)])
    times = 1_700_000_000_000_000 + rng.integers(0, 86_400_000_000 * 30, rows)
    return pa.table({
        "id": np.arange(start, start + rows),
        "key": rng.integers(0, 1_000_000, rows),
        "ts": pa.array(times, pa.timestamp("us", "UTC")),
        "price": np.round(rng.gamma(2.0, 50.0, rows), 2),
        "qty": rng.integers(1, 100, rows).astype("int32"),
        "cat": cats[rng.integers(0, 50, rows)],
        "name": np.char.add("cust_", rng.integers(0, 1 << 40, rows).astype("U13")),
        "flag": rng.random(rows) < 0.3,
    })


def _events(rng: np.random.Generator, rows: int, start: int) -> pa.Table:
    some = _rows(rng, rows, start)
    columns = {name: some[name] for name in ("id", "ts", "price")}
    for name, count in CATEGORIES.items():
        texts = np.array([f"{name}_of_the_event_{number:05d}" for number in range(count)])
        columns[name] = pa.chunked_array([texts[rng.integers(0, count, rows)]])
    return pa.table(columns | {"user": some["name"]})


def _added(path: Path, name: str, value: dict[str, Any], *, rows: int, start: int) -> Any:
    stats = {
        "numRecords": rows,
        "minValues": {"id": start},
        "maxValues": {"id": start + rows - 1},
        "nullCount": {"id": 0},
    }
    return {
        "add": {
            "path": name,
            "partitionValues": value,
            "size": (path / name).stat().st_size,
            "modificationTime": 0,
            "dataChange": True,
            "stats": json.dumps(stats),
        }
    }


@dataclass(frozen=True)
class Asked:
    """The same task for all peers; sizes in bytes."""

    target: int
    codec: str
    columns: list[str]
    workspace: str


def _ours(spark: SparkSession, path: Path, asked: Asked) -> Row:
    chain = Chain.compacting(
        path,
        Path(asked.workspace),
        target_file_size=asked.target,
        min_file_size=asked.target,
        zorder_by=asked.columns,
    )
    total, report = timed(chain.compact)
    done = report.done
    stages = {f"s_{name}": seconds for name, seconds in report.seconds.items()}
    return {"total": total, "files": done.files_removed, "to": done.files_added, **stages}


def _delta_spark(spark: SparkSession, path: Path, asked: Asked) -> Row:
    forget(spark)
    spark.conf.set("spark.sql.parquet.compression.codec", asked.codec)
    for size in ("minFileSize", "maxFileSize"):
        spark.conf.set(f"spark.databricks.delta.optimize.{size}", str(asked.target))
    order = f" ZORDER BY ({', '.join(asked.columns)})" if asked.columns else ""
    total, done = timed(lambda: spark.sql(f"OPTIMIZE {named(path)}{order}").collect()[0]["metrics"])
    return {"total": total, "files": done["numFilesRemoved"], "to": done["numFilesAdded"]}


def _delta_rs(spark: SparkSession, path: Path, asked: Asked) -> Row:
    arguments = [str(path), str(asked.target), asked.codec, json.dumps(asked.columns)]
    command = [sys.executable, "-c", DELTA_RS, *arguments]
    out = subprocess.run(command, check=True, capture_output=True, text=True)
    done = json.loads(out.stdout)
    return {"total": round(done["seconds"], 3), "files": done["files"]}


def _files_read(path: Path, columns: list[str]) -> Row:
    """The mean number of files read by lookups by each column, and the number of all files."""
    stats = DeltaTable(path).get_add_actions(flatten=True)
    rng = np.random.default_rng(5)
    sample = pq.read_table(next(path.rglob("*.parquet")), columns=columns)
    found: Row = {}
    for name in columns:
        low, high = (pa.chunked_array(stats[f"{bound}.{name}"]) for bound in ("min", "max"))
        at = pa.array(rng.integers(0, sample.num_rows, LOOKUPS))
        values = sample[name].take(at).cast(low.type).to_pylist()
        bounds = list(zip(low.to_pylist(), high.to_pylist(), strict=True))
        read = [sum(a is None or a <= v <= b for a, b in bounds) for v in values]
        found |= {f"read_{name}": sum(read) / LOOKUPS, "of": len(bounds)}
    return found


def main() -> None:
    """Run the peers in turn and print the best and the median seconds of each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--rows", type=int, default=21_000)
    parser.add_argument("--partitions", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--categories", action="store_true")
    parser.add_argument("--codec", default="snappy")
    parser.add_argument("--target-mb", type=int, default=256)
    parser.add_argument("--zorder-by", default="")
    parser.add_argument("--heap", default="4g")
    parser.add_argument("--skip", action="append", default=[])
    args = parser.parse_args()
    columns = [name for name in args.zorder_by.split(",") if name]
    found: dict[str, list[Row]] = {name: [] for name in PEERS if name not in args.skip}
    with tempfile.TemporaryDirectory(prefix="maint-bench-") as made:
        folder = Path(made)
        workspace = str(folder / "workspace")
        asked = Asked(args.target_mb << 20, args.codec, columns, workspace)
        small_files_table(
            folder / "table",
            files=args.files,
            rows=args.rows,
            partitions=args.partitions,
            codec=args.codec,
            categories=args.categories,
        )
        spark = session(folder, heap=args.heap)
        for number in range(args.rounds + 1):
            for name, rows in found.items():
                rows.append(_measured(partial(PEERS[name], spark), folder, asked))
                print(f"round {number} {name:14} {rows[-1]}", flush=True)
    shown = {name: best(rows[1:] or rows) for name, rows in found.items()}
    print(json.dumps({**vars(args), "min_median": shown}))


def _measured(peer: Callable[[Path, Asked], Row], folder: Path, asked: Asked) -> Row:
    """Run a peer once on a fresh copy of the table."""
    path = copy_of(folder / "table", folder / "copy")
    with Peak() as peak:
        row = peer(path, asked)
    row |= _files_read(path, asked.columns)
    shutil.rmtree(path)
    return row | {"peak_mb": peak.mb, "driver_mb": peak.driver_mb}


PEERS = {"maint_assets": _ours, "delta-spark": _delta_spark, "deltalake": _delta_rs}


if __name__ == "__main__":
    main()
