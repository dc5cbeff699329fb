"""Which files are rewritten by their size and their deleted rows, and that this ends."""

import base64
from pathlib import Path
from random import Random

from pyspark.sql import SparkSession

from maint_assets.compaction.bins import packed_bins
from maint_assets_tests.builder import TableBuilder
from maint_assets_tests.commit.rewriting import live
from maint_assets_tests.compaction.conftest import Compacting
from maint_assets_tests.oracles import delta_rs, delta_spark


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


def test_large_files_do_not_part_small_ones_as_they_do_for_delta_rs() -> None:
    found = packed_bins([10, 80, 10, 60], target=100, alone=[False] * 4, whole=50)

    assert found == [0, -1, 0, -1]
