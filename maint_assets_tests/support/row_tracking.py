"""The row ids of a table, for compactions that keep them."""

from pathlib import Path

from pyspark.sql import SparkSession

from maint_assets_tests.oracles import delta_spark


def run(spark: SparkSession, path: Path, *statements: str) -> None:
    delta_spark.forget(spark)
    for statement in statements:
        spark.sql(statement.format(t=delta_spark.table(path))).collect()


def row_ids(spark: SparkSession, path: Path) -> list[tuple[int, ...]]:
    """The value of the column id, the row id and the commit version of each row."""
    delta_spark.forget(spark)
    columns = ["id", "_metadata.row_id", "_metadata.row_commit_version"]
    found = spark.read.format("delta").load(str(path)).select(*columns).collect()
    return sorted(map(tuple, found))
