"""Which files are rewritten for their size and deleted rows, and that repeated runs end."""

import base64
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from maint_assets.compaction.planning.packing import packed_bins
from maint_assets_tests.compaction.conftest import Compacting
from maint_assets_tests.oracles import delta_rs, delta_spark
from maint_assets_tests.support.builder import TableBuilder
from maint_assets_tests.support.rewriting import live


def test_files_with_enough_deleted_rows_are_rewritten_beside_small_ones(
    spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    table = TableBuilder(tmp_path).create(features=["deletionVectors"])
    table.add("6 %", "1 %", rows=100).add("small", "small too", rows=1)
    table.delete_rows("6 %", *range(40, 46)).delete_rows("1 %", 99)
    rows, before = delta_spark.rows(spark, tmp_path), live(tmp_path)
    above = before["small"].size + 1

    done = compacting(tmp_path, min_file_size=str(above)).compact().done

    assert done is not None and (done.files_removed, done.files_added) == (3, 2)
    assert before.keys() & live(tmp_path).keys() == {"1%20%25"}
    assert delta_spark.rows(spark, tmp_path) == rows


def test_a_second_run_finds_nothing_where_a_partition_had_several_bins(
    tmp_path: Path, compacting: Compacting
) -> None:
    table, random = TableBuilder(tmp_path).create(), Random(1)
    for file in range(6):
        noise = base64.b85encode(random.randbytes(16_000)).decode()
        table.add(f"{file}.parquet", rows=[{"id": file, "value": noise}])
    rows = delta_rs.rows(tmp_path)
    chain = compacting(tmp_path, target_file_size="65KB", min_file_size="30KB")

    first, second = chain.compact().done, chain.compact().done

    assert first is not None and (first.bins, first.files_removed, first.files_added) == (2, 6, 2)
    assert second is not None and (second.bins, second.versions) == (0, [])
    assert delta_rs.rows(tmp_path) == rows


def noise(path: Path, sizes: dict[str, int]) -> dict[str, int]:
    """Make a table with one file of one row per name, of about that size; the sizes in the log."""
    table, random = TableBuilder(path).create(), Random(1)
    for name, size in sizes.items():
        text = base64.b85encode(random.randbytes(size)).decode()
        table.add(name, rows=[{"id": 1, "value": text}])
    return {name: add.size for name, add in live(path).items()}


def test_bins_hold_files_as_they_were_added_and_those_of_delta_spark_by_size(
    spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    asked = {"a": 10_000, "b": 35_000, "c": 15_000, "d": 30_000}
    sizes = noise(tmp_path / "ours", asked)
    assert noise(tmp_path / "spark", asked) == sizes
    target = max(sizes["a"] + sizes["b"], sizes["c"] + sizes["d"]) + 1
    settings = {"target_file_size": str(target), "min_file_size": str(target)}

    done = compacting(tmp_path / "ours", **settings).compact().done
    optimize(spark, tmp_path / "spark", target)

    assert done is not None and (done.bins, done.files_removed) == (2, 4)
    assert live(tmp_path / "spark").keys() & sizes.keys() == {"b", "d"}


def test_two_files_of_200_megabytes_are_merged_by_delta_spark_alone(
    spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    """200 megabytes by the log; the files themselves are small."""
    for name in ("ours", "spark", "rs"):
        table = TableBuilder(tmp_path / name).create()
        table.add("a", size=200_000_000).add("b", size=200_000_000)

    assert compacting(tmp_path / "ours").compact().is_empty
    DeltaTable(tmp_path / "rs").optimize.compact()
    delta_spark.forget(spark)
    spark.sql(f"OPTIMIZE {delta_spark.table(tmp_path / 'spark')}").collect()

    assert live(tmp_path / "rs").keys() == {"a", "b"}
    assert not live(tmp_path / "spark").keys() & {"a", "b"}


def test_large_files_do_not_part_small_ones_as_they_do_for_delta_rs() -> None:
    found = packed_bins([10, 80, 10, 60], target=100, alone=[False] * 4, whole=50)

    assert found == [0, -1, 0, -1]


REPEATED = base64.b85encode(Random(7).randbytes(16_000)).decode()
"""Text that takes as much space in a file of one row as in a file of many."""


def same_text(path: Path, files: int) -> None:
    table = TableBuilder(path).create()
    for file in range(files):
        table.add(f"{file:02}.parquet", rows=[{"id": file, "value": REPEATED}])


def size_of_one(path: Path) -> int:
    return max(add.size for add in live(path).values())


def runs_until_nothing_changes(path: Path, run: Callable[[], Any]) -> list[int]:
    """The number of live files before the first run and after each run that committed."""
    found = [len(live(path))]
    for _ in range(8):
        version = DeltaTable(path).version()
        run()
        if DeltaTable(path).version() == version:
            break
        found.append(len(live(path)))
    return found


def test_the_third_run_is_empty_where_new_files_are_as_small_as_their_inputs(
    spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    for name in ("ours", "spark", "rs"):
        same_text(tmp_path / name, 16)
    rows, size = delta_rs.rows(tmp_path / "ours"), size_of_one(tmp_path / "ours")
    target = size * 23 // 10
    chain = compacting(
        tmp_path / "ours", target_file_size=str(target), min_file_size=str(target // 2)
    )

    ours = runs_until_nothing_changes(tmp_path / "ours", chain.compact)
    by_spark = runs_until_nothing_changes(
        tmp_path / "spark", lambda: optimize(spark, tmp_path / "spark", target)
    )
    by_rs = runs_until_nothing_changes(
        tmp_path / "rs", lambda: DeltaTable(tmp_path / "rs").optimize.compact(target_size=target)
    )

    assert ours == [16, 8, 4]
    assert by_spark == by_rs == [16, 8, 4, 2, 1]
    assert delta_rs.rows(tmp_path / "ours") == delta_spark.rows(spark, tmp_path / "ours") == rows


def optimize(spark: SparkSession, path: Path, target: int) -> None:
    sizes = {f"spark.databricks.delta.optimize.{name}FileSize": target for name in ("min", "max")}
    delta_spark.forget(spark)
    for key, value in sizes.items():
        spark.conf.set(key, value)
    try:
        spark.sql(f"OPTIMIZE {delta_spark.table(path)}").collect()
    finally:
        for key in sizes:
            spark.conf.unset(key)


def test_repetitive_text_is_in_one_file_after_two_runs_and_stays_until_something_comes(
    spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    same_text(tmp_path, 24)
    size = size_of_one(tmp_path)
    chain = compacting(tmp_path, target_file_size=str(size * 6), min_file_size=str(size * 3))

    assert runs_until_nothing_changes(tmp_path, chain.compact) == [24, 4, 1]
    delta_spark.forget(spark)
    rows = "SELECT CAST(id AS BIGINT) AS id, 'new' AS value FROM range(1)"
    spark.sql(f"INSERT INTO {delta_spark.table(tmp_path)} {rows}")
    assert runs_until_nothing_changes(tmp_path, chain.compact) == [2, 1]
