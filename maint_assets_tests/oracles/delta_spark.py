"""What Delta's own implementation says of a table, through SQL and the session of the tests."""

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
    listed = _vacuum(spark, path, retention_hours, mode=f"{what} DRY RUN").collect()
    # A decoded path behind a scheme: no URI, so `%`, `?` and `#` stand for themselves.
    found = [Path(row.path.removeprefix("file:")) for row in listed]
    return {str(file.relative_to(path)) for file in found if not file.is_dir()}


def vacuum(spark: SparkSession, path: Path, retention_hours: float | None = None) -> None:
    """Its VACUUM, executed: it also commits VACUUM START and VACUUM END."""
    _vacuum(spark, path, retention_hours).collect()


def rows(spark: SparkSession, path: Path, version: int | None = None) -> list[dict[str, Any]]:
    """All rows of a version, the newest without one, in a fixed order."""
    found = _read(spark, path, version).collect()
    return sorted((row.asDict(recursive=True) for row in found), key=repr)


def readable_versions(spark: SparkSession, path: Path) -> list[int]:
    """The versions of the history whose every row can still be read."""
    forget(spark)
    versions = [row.version for row in spark.sql(f"DESCRIBE HISTORY {table(path)}").collect()]
    return sorted(version for version in versions if _is_readable(spark, path, version))


def active_files(spark: SparkSession, path: Path) -> set[str]:
    """The data files of the newest version, decoded, relative to the root."""
    found = _read(spark, path, None).selectExpr("_metadata.file_path as path").distinct()
    files = [Path(unquote(row.path.removeprefix("file:"))) for row in found.collect()]
    return {str(file.relative_to(path)) for file in files}


def forget(spark: SparkSession) -> None:
    """Clears its cache of logs: needed after a table was changed behind its back."""
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


def _read(spark: SparkSession, path: Path, version: int | None) -> DataFrame:
    forget(spark)
    options = {} if version is None else {"versionAsOf": str(version)}
    return spark.read.format("delta").options(**options).load(str(path))


def _is_readable(spark: SparkSession, path: Path, version: int) -> bool:
    try:
        _read(spark, path, version).write.format("noop").mode("overwrite").save()
    except (PySparkException, Py4JJavaError):
        return False
    return True
