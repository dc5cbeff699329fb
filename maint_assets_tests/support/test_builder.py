"""Tables written by hand are valid: both oracles read them."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from maint_assets_tests.oracles import delta_rs, delta_spark
from maint_assets_tests.support.builder import DAY_MS, TableBuilder, encoded

NOW_MS = 1_767_225_600_000
V2 = {"delta.checkpointPolicy": "v2"}


def ids(rows: list[dict[str, object]]) -> list[object]:
    return sorted(row["id"] for row in rows)


def test_any_partition_value_is_read_by_both(spark: SparkSession, tmp_path: Path) -> None:
    values = ["a b", "q/z:é#", "50%", "{x}?", None]
    table = TableBuilder(tmp_path).create(partition_columns=["p"])
    for number, value in enumerate(values):
        table.add(f"{number}.parquet", partition={"p": value}, rows=1)

    found = delta_spark.rows(spark, tmp_path)

    assert [row["p"] for row in found] == values
    assert delta_rs.rows(tmp_path) == found


def test_path_outside_hive_layout_is_read_by_both(spark: SparkSession, tmp_path: Path) -> None:
    TableBuilder(tmp_path).create().add("q/z:é#/f", "p=a b/50%25")

    found = delta_spark.rows(spark, tmp_path)

    assert ids(found) == [0, 1, 2, 3]
    assert delta_rs.rows(tmp_path) == found


def test_removed_file_stays_on_disk_and_readable(spark: SparkSession, tmp_path: Path) -> None:
    TableBuilder(tmp_path).create().add("a", "b").remove("a")

    assert ids(delta_spark.rows(spark, tmp_path)) == [2, 3]
    assert ids(delta_spark.rows(spark, tmp_path, version=1)) == [0, 1, 2, 3]
    assert (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("kind", "parts"), [("classic", 1), ("classic", 3), ("v2-json", 2), ("v2-parquet", 2)]
)
def test_checkpoint_alone_holds_the_state(
    spark: SparkSession, tmp_path: Path, kind: str, parts: int
) -> None:
    features, configuration = (["v2Checkpoint"], V2) if kind.startswith("v2") else ([], {})
    table = TableBuilder(tmp_path).create(features=features, configuration=configuration)
    table.add("a", "b", "c").remove("b").checkpoint(kind, parts=parts).add("d")

    for version in range(3):
        (table.log / f"{version:020}.json").unlink()

    assert ids(delta_spark.rows(spark, tmp_path)) == [0, 1, 4, 5, 6, 7]


@pytest.mark.parametrize("storage", ["u", "i", "p"])
def test_deleted_rows_are_gone(spark: SparkSession, tmp_path: Path, storage: str) -> None:
    table = TableBuilder(tmp_path).create(features=["deletionVectors"]).add("a", rows=5)

    table.delete_rows("a", 1, 3, storage=storage)

    assert ids(delta_spark.rows(spark, tmp_path)) == [0, 2, 4]


def test_checksum_agrees_with_the_log(spark: SparkSession, tmp_path: Path) -> None:
    TableBuilder(tmp_path).create().add("a", "b").remove("a").checksum()

    assert ids(delta_spark.rows(spark, tmp_path)) == [2, 3]


def test_same_steps_write_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        TableBuilder(tmp_path / name, now_ms=NOW_MS).create().add("a").checkpoint(parts=2)

    one, two = (
        {file.name: file.read_bytes() for file in (tmp_path / name).rglob("*") if file.is_file()}
        for name in ("one", "two")
    )
    assert one == two


def test_files_carry_the_age_they_are_given(tmp_path: Path) -> None:
    table = TableBuilder(tmp_path, now_ms=NOW_MS).at(days_ago=3).create().add("a")

    table.stray("s", age_days=2).directory("d", age_days=1).stray("old-1").age("old-*", 9)

    assert [(NOW_MS - table.mtime_ms(name)) / DAY_MS for name in ("s", "d", "old-1")] == [2, 1, 9]
    assert table.mtime_ms("a") == NOW_MS - 3 * DAY_MS + 1_000


def test_paths_are_encoded_as_delta_does() -> None:
    assert encoded("p=a b/50%#?é:+&") == "p=a%20b/50%25%23%3Fé:+&"
