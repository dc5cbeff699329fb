"""Delta's own implementation as an oracle, through SQL and the tests' Spark session."""

from pathlib import Path
from typing import Any
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession


def planned_files(
    spark: SparkSession, path: Path, *, retention_hours: float | None = None, what: str = ""
) -> set[str]:
    """The files (no directories) that its VACUUM would delete, decoded, relative to the root.

    ``what`` is LITE or USING INVENTORY (...).
    """
    return _files(_vacuum(spark, path, retention_hours, mode=f"{what} DRY RUN"), path)


def planned_files_at(
    spark: SparkSession, path: Path, clock: Any, *, hours: float | None = None, mode: str = "FULL"
) -> set[str]:
    """The same on the given clock."""
    return _files(_vacuum_at(spark, path, clock, hours=hours, mode=mode, dry_run=True), path)


def vacuum_at(
    spark: SparkSession, path: Path, clock: Any, *, hours: float | None = None, mode: str = "FULL"
) -> None:
    """Execute its VACUUM on the given clock."""
    _vacuum_at(spark, path, clock, hours=hours, mode=mode, dry_run=False).collect()


def clock_at(spark: SparkSession, now_ms: int) -> Any:
    """A clock for Delta that does not advance."""
    jvm: Any = spark._jvm
    return jvm.org.apache.spark.util.ManualClock(now_ms)


def log_at(spark: SparkSession, path: Path, clock: Any) -> Any:
    """Delta's log of a table on the given clock: SQL about the path uses this log next."""
    forget(spark)
    jvm: Any = spark._jvm
    return jvm.org.apache.spark.sql.delta.DeltaLog.forTable(
        spark._jsparkSession, jvm.org.apache.hadoop.fs.Path(str(path)), clock
    )


def snapshot(spark: SparkSession, path: Path) -> Any:
    """Delta's newest snapshot of a table."""
    forget(spark)
    jvm: Any = spark._jvm
    place, nothing = jvm.org.apache.hadoop.fs.Path(str(path)), jvm.scala.Option.empty()
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, place)
    return log.update(False, nothing, nothing)


def vacuum(spark: SparkSession, path: Path, retention_hours: float | None = None) -> None:
    """Execute its VACUUM, which also commits VACUUM START and VACUUM END."""
    _vacuum(spark, path, retention_hours).collect()


def rows(spark: SparkSession, path: Path, version: int | None = None) -> list[dict[str, Any]]:
    """All rows of a version, by default the newest, in a fixed order."""
    forget(spark)
    found = _read(spark, path, version).collect()
    return sorted((row.asDict(recursive=True) for row in found), key=repr)


def readable_versions(spark: SparkSession, path: Path) -> list[int]:
    """The versions of the history of which all rows can still be read."""
    forget(spark)
    versions = [row.version for row in spark.sql(f"DESCRIBE HISTORY {table(path)}").collect()]
    return sorted(version for version in versions if _is_readable(spark, path, version))


def active_files(spark: SparkSession, path: Path) -> set[str]:
    """The data files of the newest version, decoded, relative to the root."""
    forget(spark)
    found = _read(spark, path, None).selectExpr("_metadata.file_path as path").distinct()
    files = [Path(unquote(row.path.removeprefix("file:"))) for row in found.collect()]
    return {str(file.relative_to(path)) for file in files}


def forget(spark: SparkSession) -> None:
    """Clear Delta's cache of logs: needed after a table was changed without delta-spark."""
    delta: Any = spark._jvm
    delta.org.apache.spark.sql.delta.DeltaLog.clearCache()


def table(path: Path) -> str:
    """The table at the path as an SQL identifier."""
    escaped = str(path).replace("`", "``")
    return f"delta.`{escaped}`"


def _vacuum(spark: SparkSession, path: Path, hours: float | None, *, mode: str = "") -> DataFrame:
    forget(spark)
    retain = "" if hours is None else f"RETAIN {hours} HOURS"
    return spark.sql(f"VACUUM {table(path)} {retain} {mode}")


def _vacuum_at(
    spark: SparkSession, path: Path, clock: Any, *, hours: float | None, mode: str, dry_run: bool
) -> DataFrame:
    log_at(spark, path, clock)
    jvm: Any = spark._jvm
    delta, option = jvm.org.apache.spark.sql.delta, jvm.scala.Option
    nothing = jvm.scala.collection.immutable.HashMap()
    place = jvm.org.apache.hadoop.fs.Path(str(path))
    session = spark._jsparkSession
    table = delta.catalog.DeltaTableV2.apply(session, place, nothing, "VACUUM")
    retain, how = option.apply(hours), option.apply(mode)
    found = delta.commands.VacuumCommand.gc(
        session, table, dry_run, retain, option.empty(), how, nothing, clock
    )
    return DataFrame(found, spark)


def _files(listed: DataFrame, path: Path) -> set[str]:
    # A decoded path with a scheme is no URI: `%`, `?` and `#` are literal.
    found = [Path(row.path.removeprefix("file:")) for row in listed.collect()]
    return {str(file.relative_to(path)) for file in found if not file.is_dir()}


def _read(spark: SparkSession, path: Path, version: int | None) -> DataFrame:
    options = {} if version is None else {"versionAsOf": str(version)}
    return spark.read.format("delta").options(**options).load(str(path))


def _is_readable(spark: SparkSession, path: Path, version: int) -> bool:
    # collect: Delta refuses to write an older version of a table with deletion vectors to noop.
    try:
        _read(spark, path, version).collect()
    except (PySparkException, Py4JJavaError):
        return False
    return True
