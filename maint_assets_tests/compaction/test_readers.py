"""Readers and other writers continue after a compaction as before."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from maint_assets_tests.compaction.conftest import Compacting
from maint_assets_tests.oracles import delta_rs, delta_spark
from maint_assets_tests.oracles.feature_tables import FEATURE_TABLES
from maint_assets_tests.support.builder import TableBuilder, tree

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

CHANGES = {"delta.enableChangeDataFeed": "true"}
VECTORS = {"delta.enableDeletionVectors": "true"}


def streamed(spark: SparkSession, table: Path) -> list[int]:
    """The ids of the rows that the table's one stream has received so far."""
    target = table.with_name("streamed")
    delta_spark.forget(spark)
    source = spark.readStream.format("delta").load(str(table))
    sink = source.writeStream.format("parquet").trigger(availableNow=True)
    sink = sink.option("checkpointLocation", str(table.with_name("state")))
    sink.start(str(target)).awaitTermination()
    return sorted(row["id"] for row in spark.read.parquet(str(target)).collect())


def changes(spark: SparkSession, table: Path, *, since: int) -> list[tuple[int, int, str]]:
    """Version, id and type of all changes in the change data feed since a version."""
    delta_spark.forget(spark)
    reader = spark.read.format("delta").option("readChangeFeed", "true")
    found = reader.option("startingVersion", since).load(str(table)).collect()
    return sorted((row["_commit_version"], row["id"], row["_change_type"]) for row in found)


def test_streams_and_change_feeds_see_no_compaction(
    spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    path = tmp_path / "t"
    table = TableBuilder(path).create(
        features=["changeDataFeed", "deletionVectors"], configuration=CHANGES
    )
    table.add("a").add("b", rows=10).delete_rows("b", 0)  # ids 0 to 11, without 2
    chain = compacting(path)
    assert streamed(spark, path) == (seen := [0, 1, *range(3, 12)])

    first = chain.compact().done
    table.version += 1
    table.add("c")  # this one is merged before the stream reads it
    second = chain.compact().done

    assert first is not None and second is not None
    assert (first.versions, second.versions) == ([4], [6])
    assert streamed(spark, path) == [*seen, 12, 13]
    spark.sql(f"INSERT INTO {delta_spark.table(path)} VALUES (14, 'by Spark')")
    assert streamed(spark, path) == [*seen, 12, 13, 14]
    assert changes(spark, path, since=4) == [
        (5, 12, "insert"), (5, 13, "insert"), (7, 14, "insert"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "features",
    [
        pytest.param((), marks=pytest.mark.long),
        ("deletionVectors", "changeDataFeed", "v2Checkpoint"),
    ],
)
def test_delta_rs_goes_on(
    features: tuple[str, ...], spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    interval = {"delta.checkpointInterval": "6"}
    table = TableBuilder(tmp_path).create(
        partition_columns=["p"], features=features, configuration=interval
    )
    for name in "abcd":
        table.add(f"{name}.parquet", partition={"p": "x y"})
    if features:
        table.delete_rows("a.parquet", 0)
    else:
        table.add("e.parquet", partition={"p": "z"}, rows=0)
    before = delta_rs.rows(tmp_path)

    done = compacting(tmp_path).compact().done

    assert done is not None and done.checkpoint_version == 6
    assert delta_rs.rows(tmp_path) == before
    new = {"id": [90, 91, 92], "value": ["new"] * 3, "p": ["x y", "x y", "n"]}
    write_deltalake(str(tmp_path), pa.table(new), mode="append")
    DeltaTable(tmp_path).delete("id IN (3, 90)")
    DeltaTable(tmp_path).update({"value": "'updated'"}, predicate="id = 4")
    write_deltalake(str(tmp_path), pa.table(new), mode="append")
    rows = delta_rs.rows(tmp_path)
    kept = {row["id"] for row in before} - {3}
    assert sorted(row["id"] for row in rows) == sorted([*kept, 90, 91, 91, 92, 92])
    again = compacting(tmp_path).compact().done
    assert again is not None and again.versions
    assert delta_rs.rows(tmp_path) == rows == delta_spark.rows(spark, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("feature", [name for name in FEATURE_TABLES if name != "variantType"])
def test_delta_rs_reads_the_same_rows_of_tables_that_it_can_read(
    feature: str, spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    FEATURE_TABLES[feature](spark, tmp_path / "t")
    before = result_of(lambda: delta_rs.rows(tmp_path / "t"))
    if isinstance(before, str):
        pytest.skip(f"delta-rs cannot: {before}")

    compacting(tmp_path / "t", target_file_size="1GB", min_file_size="1GB").compact()

    assert delta_rs.rows(tmp_path / "t") == before


def result_of(read: Callable[[], Any]) -> Any:
    """The result of a read, or the text of its error."""
    try:
        return read()
    except Exception as error:  # noqa: BLE001 - delta-rs has no one base of its errors
        return str(error)[:80]


def cloned_by_hand(_: SparkSession, source: TableBuilder, clone: Path) -> None:
    """A clone as Delta makes it: absolute paths in the log, to files and deletion vectors."""
    root, adds = source.path.as_uri(), list(source.live.values())
    vectors = [add.get("deletionVector") for add in adds]
    adds = [add | {"path": f"{root}/{add['path']}"} for add in adds]
    assert [vector and vector["storageType"] for vector in vectors] == [None, "p"]
    table = TableBuilder(clone).create(features=["deletionVectors"], configuration=VECTORS)
    table.commit([{"add": add} for add in adds], operation="CLONE")


def cloned_by_delta(spark: SparkSession, source: TableBuilder, clone: Path) -> None:
    tables = delta_spark.table(clone), delta_spark.table(source.path)
    spark.sql("CREATE TABLE {} SHALLOW CLONE {}".format(*tables)).collect()


@pytest.mark.parametrize(
    "cloned", [cloned_by_hand, pytest.param(cloned_by_delta, marks=pytest.mark.long)]
)
def test_a_clone_is_compacted_and_its_source_is_not_touched(
    cloned: Callable[[SparkSession, TableBuilder, Path], None],
    spark: SparkSession,
    tmp_path: Path,
    compacting: Compacting,
) -> None:
    source, clone = tmp_path / "source", tmp_path / "clone"
    table = TableBuilder(source).create(features=["deletionVectors"], configuration=VECTORS)
    table.add("a b.parquet", "c.parquet", rows=20).delete_rows("c.parquet", 3, storage="p")
    cloned(spark, table, clone)
    rows, before = delta_spark.rows(spark, clone), tree(source)

    done = compacting(clone).compact().done

    assert done is not None and (done.files_removed, done.files_added) == (2, 1)
    assert tree(source) == before
    assert delta_spark.rows(spark, clone) == rows and len(rows) == 39
    assert [name for name in delta_spark.active_files(spark, clone) if "/" in name] == []
