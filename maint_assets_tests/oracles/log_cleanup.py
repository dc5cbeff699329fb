"""The files of a log that delta-spark and delta-rs delete, by real cleanups on a real directory.

Names are relative to ``_delta_log``; checksums of Hadoop's local file system (``.name.crc``)
count as any other file.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from maint_assets.delta.names import LogFile
from maint_assets_tests.oracles import delta_spark
from maint_assets_tests.support.log_builder import LogBuilder


def spark_cleanup(spark: SparkSession, table: Path, *, now_ms: int) -> set[str]:
    """The files that delta-spark's cleanup deletes on a clock fixed at ``now_ms``.

    It honours ``delta.enableExpiredLogCleanup`` as after a checkpoint, but raises the errors that
    would be swallowed there, such as a MatchError on a foreign name in ``_staged_commits``. A
    compatibility checkpoint that it writes first is not in the result.
    """
    before = listing(table)
    jvm: Any = spark._jvm  # pyright: ignore[reportPrivateUsage]  the only way to Delta's classes
    nothing = jvm.scala.Option.empty()
    log = delta_spark.log_at(spark, table, delta_spark.clock_at(spark, now_ms))
    try:
        log.doLogCleanup(log.update(False, nothing, nothing), nothing)
    finally:
        delta_spark.forget(spark)
    return before - listing(table)


def delta_rs_cleanup(table: Path) -> set[str]:
    """The files that delta-rs's cleanup deletes, on the real clock."""
    before = listing(table)
    DeltaTable(table).cleanup_metadata()
    return before - listing(table)


def listing(table: Path) -> set[str]:
    """All files of the log, including those in subdirectories."""
    log = table / "_delta_log"
    return {str(file.relative_to(log)) for file in log.rglob("*") if file.is_file()}


NOON_MS = 1_800_014_400_000


RETENTION = {"delta.logRetentionDuration": "interval 26 days"}


V2 = {"delta.checkpointPolicy": "v2"}


TEN = [*range(10)]


Deleted = dict[str, list[int]]


Steps = Callable[[LogBuilder], LogBuilder]


def everything(log: LogBuilder) -> LogBuilder:
    for start, end in ((0, 4), (6, 9), (11, 12)):
        log.compaction(start, end)
    for version in (1, 9, 10, 12):
        log.staged(version)
    return log.checkpoint(5).checkpoint(10)


MATRIX: dict[str, tuple[Steps, Deleted, Deleted]] = {
    "compactions and staged commits": (
        everything,
        {"commit": TEN, "checksum": TEN, "checkpoint": [5], "staged": [1, 9]},
        {"commit": TEN, "checkpoint": [5]},
    ),
    "a checkpoint of the first unexpired version": (
        lambda log: log.checkpoint(5).checkpoint(14),
        {"commit": [*range(14)], "checksum": [*range(14)], "checkpoint": [5]},
        {"commit": [*range(14)], "checkpoint": [5]},
    ),
    "parts": (
        lambda log: log.checkpoint(5, parts=3).checkpoint(10, parts=3),
        {"commit": TEN, "checksum": TEN, "checkpoint part": [5, 5, 5]},
        {"commit": TEN},
    ),
    "a part is missing": (
        lambda log: log.checkpoint(5).checkpoint(10, parts=3, missing={2}),
        {"commit": TEN[:5], "checksum": TEN[:5]},
        {"commit": TEN, "checkpoint": [5]},
    ),
    "zero bytes": (
        lambda log: log.checkpoint(5).checkpoint(10, empty=True),
        {"commit": TEN[:5], "checksum": TEN[:5]},
        {"commit": TEN, "checkpoint": [5]},
    ),
    "uuids": (
        lambda log: log.checkpoint(5, "v2-json").checkpoint(10, "v2-parquet"),
        {"commit": TEN, "checksum": TEN, "v2 checkpoint": [5], "sidecar": [5]},
        {"commit": TEN},
    ),
}


def log_of_21_days(path: Path, now_ms: int, steps: Steps) -> LogBuilder:
    """A commit a day, the newest an hour less than 20 days old: versions up to 13 have expired."""
    log = LogBuilder(path, now_ms=now_ms, features=["v2Checkpoint"], configuration=V2 | RETENTION)
    log.commits((40 - version - 1 / 24 for version in range(21)), checksums=True)
    return steps(log).checkpoint(20).hint()


def kinds(names: Iterable[str], log: LogBuilder) -> Deleted:
    """The versions of the deleted files of each kind; those of sidecars are their checkpoints'."""
    found: Deleted = defaultdict(list)
    for name in sorted(names):
        directory, _, bare = name.rpartition("/")
        if directory == "_sidecars":
            found["sidecar"].append(log.sidecars[bare])
        elif directory == "_staged_commits":
            found["staged"].append(int(bare.partition(".")[0]))
        elif file := LogFile.parse(name):
            found[file.kind.value].append(file.version)
        else:
            found[name].append(-1)
    return found


def now_ms() -> int:
    return time.time_ns() // 1_000_000
