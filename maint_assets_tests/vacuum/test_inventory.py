"""VACUUM USING INVENTORY: the same plan from an inventory of the files instead of a walk."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from maint_assets.errors import GuardError, InventoryError
from maint_assets.vacuum.diff import DIFF_SCHEMA
from maint_assets_tests.oracles import delta_spark
from maint_assets_tests.support.builder import DAY_MS, TableBuilder
from maint_assets_tests.support.chain import directories, files
from maint_assets_tests.vacuum.conftest import ChainOf

pytestmark = pytest.mark.usefixtures("spark")

Row = dict[str, Any]


def story(path: Path) -> TableBuilder:
    """Live, removed and untracked files, odd and hidden names, an empty directory; all old."""
    table = TableBuilder(path / "t").at(days_ago=9).create(partition_columns=["_p"])
    table.add("a", "x", partition={"_p": "a b%"}).remove(sorted(table.live)[1])
    table.stray("stray").stray("d/e é/s").stray("_hidden/s").stray("d/.hid/s").stray("d/_h")
    return table.directory("empty/er").age("**/*", 9)


def found(table: TableBuilder) -> list[Row]:
    """Inventory rows of all that a walk finds, including the log and the root."""
    rows = []
    for entry in (table.path, *sorted(table.path.rglob("*"))):
        stat = entry.stat()
        rows.append({
            "path": str(entry),
            "size": 0 if entry.is_dir() else stat.st_size,
            "isDir": entry.is_dir(),
            "modificationTime": stat.st_mtime_ns // 1_000_000,
        })
    return rows


def as_parquet(spark: SparkSession, rows: list[Row], place: Path) -> str:
    shuffled = [{"extra": 1, **{name: row[name] for name in reversed(list(row))}} for row in rows]
    place.mkdir()
    every = pa.Table.from_pylist(shuffled)
    half = every.num_rows // 2
    pq.write_table(every.slice(0, half), place / "1.parquet")
    pq.write_table(every.slice(half), place / "2.parquet")
    return str(place)


def as_delta(spark: SparkSession, rows: list[Row], place: Path) -> str:
    for part in (rows[:3], rows[3:]):
        write_deltalake(str(place), pa.Table.from_pylist(part), mode="append")
    return str(place)


def as_spark_table(spark: SparkSession, rows: list[Row], place: Path) -> str:
    frame = spark.createDataFrame(pa.Table.from_pylist(rows))
    frame.withColumnRenamed("size", "length").createOrReplaceTempView("an_inventory")
    return "an_inventory"


def with_scheme(spark: SparkSession, rows: list[Row], place: Path) -> str:
    return as_parquet(spark, [row | {"path": f"file:{row['path']}"} for row in rows], place)


def relative(spark: SparkSession, rows: list[Row], place: Path) -> str:
    root = rows[0]["path"]
    inside = [row | {"path": row["path"].removeprefix(f"{root}/")} for row in rows[1:]]
    return as_parquet(spark, inside, place)


@pytest.mark.parametrize("form", [as_parquet, as_delta, as_spark_table, with_scheme, relative])
def test_plan_from_a_whole_inventory_is_the_full_plan(
    spark: SparkSession,
    tmp_path: Path,
    chain_of: ChainOf,
    form: Callable[[SparkSession, list[Row], Path], str],
) -> None:
    table = story(tmp_path)
    source = form(spark, found(table), tmp_path / "inventory")
    full = chain_of(table.path).plan()

    ours = chain_of(table.path, mode="inventory", inventory=source).plan()

    assert files(ours) == files(full) == {"_p=a b%25/x", "stray", "d/e é/s"}
    assert directories(ours) == directories(full)
    rows = (each.diff.digest_of_parts(DIFF_SCHEMA) for each in (ours, full))
    assert len(set(rows)) == 1


def test_plan_is_that_of_delta_where_nothing_is_hidden(
    spark: SparkSession, tmp_path: Path, chain_of: ChainOf
) -> None:
    table = TableBuilder(tmp_path / "t").at(days_ago=9).create().add("a", "x").remove("x")
    table.stray("stray").stray("d/e/s").age("**/*", 9)
    source = as_spark_table(spark, found(table), tmp_path)
    query = "USING INVENTORY (SELECT concat('file:', path) path, length, isDir, modificationTime "
    query += "FROM an_inventory)"

    theirs = delta_spark.planned_files(spark, table.path, retention_hours=0, what=query)
    ours = chain_of(table.path, mode="inventory", inventory=source).plan()

    assert files(ours) == theirs == {"x", "stray", "d/e/s"}


def test_nested_hidden_names_stay_where_delta_takes_them(
    spark: SparkSession, tmp_path: Path, chain_of: ChainOf
) -> None:
    table = story(tmp_path)
    source = as_spark_table(spark, found(table), tmp_path)
    query = "USING INVENTORY (SELECT concat('file:', path) path, length, isDir, modificationTime "
    query += "FROM an_inventory)"

    theirs = delta_spark.planned_files(spark, table.path, retention_hours=0, what=query)
    ours = chain_of(table.path, mode="inventory", inventory=source).plan()

    assert theirs - files(ours) == {"d/.hid/s", "d/_h"}


def test_another_table_below_the_root_is_left_alone(
    spark: SparkSession, tmp_path: Path, chain_of: ChainOf
) -> None:
    table = story(tmp_path)
    TableBuilder(table.path / "other").at(days_ago=9).create().add("a").stray("s")
    table.age("**/*", 9)
    source = as_parquet(spark, found(table), tmp_path / "inventory")

    ours = chain_of(table.path, mode="inventory", inventory=source).plan()

    assert not any("other" in path for path in files(ours) | directories(ours))


def test_rows_that_are_no_longer_true_are_skipped(
    spark: SparkSession, tmp_path: Path, chain_of: ChainOf
) -> None:
    table = story(tmp_path)
    source = as_parquet(spark, found(table), tmp_path / "inventory")
    (table.path / "stray").write_bytes(b"another file now")
    chain = chain_of(table.path, mode="inventory", inventory=source)

    done = chain.vacuum()

    assert chain.ledger(done)["stray"] == ("skipped", "changed since it was planned")
    assert (table.path / "stray").exists()
    assert not (table.path / "d/e é/s").exists()


def test_a_symbolic_link_is_never_deleted(
    spark: SparkSession, tmp_path: Path, chain_of: ChainOf
) -> None:
    table = story(tmp_path)
    (table.path / "link").symlink_to(table.path / "stray")
    stat = (table.path / "link").lstat()
    row = {"path": "link", "size": stat.st_size, "isDir": False}
    rows = [row | {"modificationTime": stat.st_mtime_ns // 1_000_000}]
    source = as_parquet(spark, rows, tmp_path / "inventory")

    chain_of(table.path, mode="inventory", inventory=source).vacuum()

    assert (table.path / "link").is_symlink()


def test_an_inventory_through_a_link_to_the_table_is_the_full_plan(
    spark: SparkSession, tmp_path: Path, chain_of: ChainOf
) -> None:
    table = story(tmp_path)
    (tmp_path / "way").symlink_to(tmp_path)
    way = tmp_path / "way"
    rows = found(table)
    for row in rows:
        row["path"] = str(way / Path(row["path"]).relative_to(tmp_path))
    source = as_parquet(spark, rows, tmp_path / "inventory")

    ours = chain_of(table.path, mode="inventory", inventory=source).plan()

    assert files(ours) == files(chain_of(table.path).plan()) != set()


def test_an_inventory_of_another_place_is_refused_by_an_example(
    spark: SparkSession, tmp_path: Path, chain_of: ChainOf
) -> None:
    table = story(tmp_path)
    rows = [row | {"path": f"hdfs://name:8020{row['path']}"} for row in found(table)]
    source = as_parquet(spark, rows, tmp_path / "inventory")

    with pytest.raises(
        InventoryError, match=r"none of the \d+ paths .* is inside the table, hdfs://"
    ):
        chain_of(table.path, mode="inventory", inventory=source).plan()


def test_paths_outside_of_the_table_are_counted_and_left_alone(
    spark: SparkSession, tmp_path: Path, chain_of: ChainOf
) -> None:
    table = story(tmp_path)
    (tmp_path / "outside").write_bytes(b"x")
    outside = found(table)[1] | {"path": str(tmp_path / "outside"), "modificationTime": 1}
    source = as_parquet(spark, [*found(table), outside], tmp_path / "inventory")
    chain = chain_of(table.path, mode="inventory", inventory=source)

    done = chain.vacuum()

    listed = Path(done.diff.location.path).parents[1] / "listing"
    [summary] = listed.glob("*/summary.json")
    assert json.loads(summary.read_text())["outside"] == 1
    assert done.error is None
    assert (tmp_path / "outside").exists()


def test_a_live_file_that_is_listed_as_a_directory_is_no_part_of_a_plan(
    spark: SparkSession, tmp_path: Path, chain_of: ChainOf
) -> None:
    table = story(tmp_path)
    rows = [row | {"isDir": True, "size": 0} for row in found(table)]
    source = as_parquet(spark, rows, tmp_path / "inventory")
    chain = chain_of(table.path, mode="inventory", inventory=source)

    done = chain.vacuum()

    assert done.error is None
    assert "_p=a b%25/a" not in chain.ledger(done)
    assert (table.path / "_p=a b%25/a").exists()
    assert (table.path / "stray").exists()


def test_a_path_listed_twice_is_deleted_only_if_it_is_old_both_times(
    spark: SparkSession, tmp_path: Path, chain_of: ChainOf
) -> None:
    table = story(tmp_path)
    rows = [row for row in found(table) if row["path"].endswith(("stray", "d/e é/s"))]
    recent = rows[0] | {"modificationTime": table.now_ms + DAY_MS}
    source = as_parquet(spark, [*rows, recent, rows[1]], tmp_path / "inventory")

    done = chain_of(table.path, mode="inventory", inventory=source).vacuum()

    gone = {"d/e é/s", "stray"} - {"stray" if rows[0]["path"].endswith("stray") else "d/e é/s"}
    assert files(done) == gone


def test_a_partial_inventory_is_no_broken_table_but_a_missing_file_is(
    spark: SparkSession, tmp_path: Path, chain_of: ChainOf
) -> None:
    table = story(tmp_path)
    stray = [row for row in found(table) if row["path"].endswith("stray")]
    source = as_parquet(spark, stray, tmp_path / "inventory")
    chain = chain_of(table.path, mode="inventory", inventory=source)
    report = chain.plan()
    assert (files(report), report.planned.plan.missing_files) == ({"stray"}, 0)

    Path(next(table.path.glob("_p*/a"))).unlink()

    with pytest.raises(GuardError, match="1 active files were not found"):
        chain.vacuum()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"path": "a", "size": 1, "isDir": False}], "lacks the column modificationTime"),
        ([{"size": 1, "isDir": False, "modificationTime": 1}], "lacks the column path"),
        (
            [{"path": "a", "size": "big", "isDir": False, "modificationTime": 1}],
            "has wrong column types",
        ),
    ],
)
def test_an_inventory_that_lacks_something_is_refused(
    spark: SparkSession, tmp_path: Path, chain_of: ChainOf, rows: list[Row], message: str
) -> None:
    table = story(tmp_path)
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "wrong.parquet")
    source = str(tmp_path / "wrong.parquet")

    with pytest.raises(InventoryError, match=message) as caught:
        chain_of(table.path, mode="inventory", inventory=source).plan()

    assert caught.value.exit_code == 3


@pytest.mark.parametrize("source", ["/nowhere/at/all", "no_such_table"])
def test_an_inventory_that_is_not_there_is_named(
    tmp_path: Path, chain_of: ChainOf, source: str
) -> None:
    table = story(tmp_path)

    with pytest.raises(InventoryError, match=source):
        chain_of(table.path, mode="inventory", inventory=source).plan()


@pytest.mark.parametrize("size", [-1, 2**62])
def test_sizes_that_no_file_has_are_refused(tmp_path: Path, chain_of: ChainOf, size: int) -> None:
    table = story(tmp_path)
    rows = [{"path": "stray", "size": size, "isDir": False, "modificationTime": 10**12}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "odd.parquet")

    with pytest.raises(InventoryError, match=f"a file of {size} bytes"):
        chain_of(table.path, mode="inventory", inventory=str(tmp_path / "odd.parquet")).plan()


@pytest.mark.parametrize("time", [1_700_000_000, 1_700_000_000_000_000])
def test_times_in_another_unit_are_refused(tmp_path: Path, chain_of: ChainOf, time: int) -> None:
    table = story(tmp_path)
    rows = [{"path": "stray", "size": 1, "isDir": False, "modificationTime": time}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "odd.parquet")

    with pytest.raises(InventoryError, match=f"modificationTime {time} .* is not in ms"):
        chain_of(table.path, mode="inventory", inventory=str(tmp_path / "odd.parquet")).plan()


def test_a_file_with_a_column_twice_is_refused(tmp_path: Path, chain_of: ChainOf) -> None:
    table = story(tmp_path)
    names = ["path", "path", "size", "isDir", "modificationTime"]
    columns = [["stray"], ["d/_h"], [1], [False], [10**12]]
    pq.write_table(pa.table(columns, names=names), tmp_path / "odd.parquet")

    with pytest.raises(InventoryError, match="has the column path twice"):
        chain_of(table.path, mode="inventory", inventory=str(tmp_path / "odd.parquet")).plan()


def test_a_view_with_a_column_twice_is_refused(
    spark: SparkSession, tmp_path: Path, chain_of: ChainOf
) -> None:
    table = story(tmp_path)
    columns = ["'stray' path", "'a' path", "1L size", "false isDir", "0L modificationTime"]
    spark.range(1).selectExpr(*columns).createOrReplaceTempView("twice")

    with pytest.raises(InventoryError, match="has the column path twice"):
        chain_of(table.path, mode="inventory", inventory="twice").plan()


def test_a_view_whose_rows_fail_is_named(
    spark: SparkSession, tmp_path: Path, chain_of: ChainOf
) -> None:
    table = story(tmp_path)
    columns = ["'stray' path", "cast(concat('x', id) as long) size", "false isDir"]
    frame = spark.range(1).selectExpr(*columns, "0L modificationTime")
    frame.createOrReplaceTempView("failing")

    with pytest.raises(InventoryError, match=r"failing cannot be read .*CAST_INVALID_INPUT"):
        chain_of(table.path, mode="inventory", inventory="failing").plan()


def test_a_link_of_a_live_partition_is_no_file_of_an_inventory(
    spark: SparkSession, tmp_path: Path, chain_of: ChainOf
) -> None:
    table = story(tmp_path)
    partition = next(table.path.glob("_p*"))
    partition.rename(tmp_path / "elsewhere")
    partition.symlink_to(tmp_path / "elsewhere")
    stat = partition.lstat()
    row = {"path": partition.name, "size": stat.st_size, "isDir": False}
    row |= {"modificationTime": stat.st_mtime_ns // 1_000_000}
    source = as_parquet(spark, [row, row | {"path": "stray"}], tmp_path / "inventory")

    done = chain_of(table.path, mode="inventory", inventory=source).vacuum()

    assert partition.name not in files(done)
    assert partition.is_symlink()


@pytest.mark.parametrize("name", ["my-inventory", "a b", "x;y", "a.b.c.d"])
def test_an_odd_name_of_an_inventory_is_reported_in_one_sentence(
    tmp_path: Path, chain_of: ChainOf, name: str
) -> None:
    table = story(tmp_path)

    with pytest.raises(InventoryError, match="give a path or the name of a table"):
        chain_of(table.path, mode="inventory", inventory=name).plan()
