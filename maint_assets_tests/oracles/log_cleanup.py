"""Which files of a log its two other maintainers delete: the real ones, on a real directory.

Names are relative to ``_delta_log``; side files of Hadoop's local file system (``.name.crc``)
count as any other file.
"""

from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from maint_assets_tests.oracles import delta_spark


def spark_cleanup(spark: SparkSession, table: Path, *, now_ms: int) -> set[str]:
    """The files that are gone after delta-spark's cleanup on a clock that stands at ``now_ms``.

    It heeds ``delta.enableExpiredLogCleanup`` as after a checkpoint, but shows the error that
    would be swallowed there, such as a MatchError over a foreign name in ``_staged_commits``. A
    compatibility checkpoint that it writes first is for the caller to list.
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
    """The files that are gone after delta-rs's cleanup, on the real clock."""
    before = listing(table)
    DeltaTable(table).cleanup_metadata()
    return before - listing(table)


def listing(table: Path) -> set[str]:
    """All files of the log, those in directories too."""
    log = table / "_delta_log"
    return {str(file.relative_to(log)) for file in log.rglob("*") if file.is_file()}
