"""Shared by the benchmarks: seconds, memory, the Spark session of ours and delta-spark."""

import contextlib
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import SparkSession

from maint_assets_tests.oracles import setup

Row = dict[str, float]

ROOT = Path(__file__).parents[2]


class Peak:
    """The peak resident memory of this process tree in the context, in MB.

    ``driver_mb`` is that of this process and the JVM, without Spark's Python workers; ``here_mb``
    that of this process, ``worker_mb`` that of the largest worker.
    """

    def __enter__(self) -> "Peak":
        self.mb, self.driver_mb, self._stop = 0, 0, threading.Event()
        self.here_mb = self.worker_mb = 0
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        me = psutil.Process()
        while not self._stop.wait(0.1):
            total = driver = 0
            for process in (me, *me.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    rss = process.memory_info().rss
                    total += rss
                    is_worker = process != me and process.name() != "java"
                    driver += 0 if is_worker else rss
                    self.here_mb = max(self.here_mb, rss >> 20 if process == me else 0)
                    self.worker_mb = max(self.worker_mb, rss >> 20 if is_worker else 0)
            self.mb = max(self.mb, total >> 20)
            self.driver_mb = max(self.driver_mb, driver >> 20)


def session(folder: Path, *, heap: str) -> SparkSession:
    """The Spark session of ours and delta-spark, tuned for delta-spark with few partitions."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(ROOT)
    os.environ["JAVA_HOME"] = str(setup.java_home())
    builder = SparkSession.builder.appName("bench")
    for key, value in {
        **setup.spark_conf(),
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.codegen.wholeStage": "true",
        "spark.sql.codegen.factoryMode": "FALLBACK",
        "spark.driver.memory": heap,
        "spark.sql.shuffle.partitions": "4",
        "spark.databricks.delta.snapshotPartitions": "4",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """The seconds that a call took, and its result."""
    started = time.perf_counter()
    made = work()
    return round(time.perf_counter() - started, 3), made


def best(rows: list[Row]) -> dict[str, tuple[float, float]]:
    """The minimum and the median of each figure."""
    return {
        key: (min(row[key] for row in rows), round(statistics.median(row[key] for row in rows), 3))
        for key in rows[0]
    }
