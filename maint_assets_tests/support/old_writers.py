"""Files of old writers: the Spark settings that write such files, and their content."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from maint_assets_tests.oracles import delta_spark

LEGACY = {
    "spark.sql.parquet.outputTimestampType": "INT96",
    "spark.sql.parquet.int96RebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
}
"""Settings of a session that writes as Spark 2 did."""


@contextmanager
def settings(spark: SparkSession, values: dict[str, str]) -> Iterator[None]:
    before = {key: spark.conf.get(key, None) for key in values}
    for key, value in values.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, value)


def texts(spark: SparkSession, path: Path, *extra: str) -> list[str]:
    """The rows as Delta reads them, as text, so that Python's calendar plays no part."""
    delta_spark.forget(spark)
    found = spark.read.format("delta").load(str(path))
    return sorted(map(str, found.selectExpr("to_json(struct(*)) AS row", *extra).collect()))


def file_of(
    path: Path, name: str, columns: pa.Table, *, footer: dict[str, str], **options: Any
) -> dict[str, Any]:
    """Write a file as another writer would, and return its add."""
    pq.write_table(columns.replace_schema_metadata(footer), path / name, **options)
    stats = json.dumps({"numRecords": len(columns)})
    size = (path / name).stat().st_size
    return {
        "add": {
            "path": name, "size": size, "partitionValues": {}, "modificationTime": 1,
            "dataChange": True, "stats": stats,
        }
    }  # fmt: skip


NO_CALENDAR = {"org.apache.spark.sql.parquet.row.metadata": "{}"}
"""A footer of Spark before 2.4.1: without its version, and so without the calendar."""
