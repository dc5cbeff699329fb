"""In new files, filters find what reading every row finds, except for known reader defects."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from maint_assets_tests.compaction.conftest import Compacting
from maint_assets_tests.compaction.filters import COLUMNS, DEFECTS, defect, every_row, make, wrong
from maint_assets_tests.oracles import delta_spark
from maint_assets_tests.support.old_writers import settings

pytestmark = [pytest.mark.oracle, pytest.mark.long]

MICROS = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
SOME = {name: COLUMNS[name] for name in ("f32", "minus", "mixed")}


def test_readers_find_all_rows_by_filters_but_for_their_known_defects(
    spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    path, peer = tmp_path / "ours", tmp_path / "peer"
    with settings(spark, MICROS):
        make(spark, path, SOME)
    shutil.copytree(path, peer)
    truth = every_row(spark, path, SOME)

    done = compacting(path).compact().done
    with settings(spark, MICROS):
        spark.sql(f"OPTIMIZE {delta_spark.table(peer)}").collect()

    assert done is not None and (done.files_removed, done.files_added) == (6, 1)
    assert every_row(spark, path, SOME) == truth
    ours, theirs = (wrong(spark, table, SOME, truth=truth) for table in (path, peer))
    assert {asked: ids for asked, ids in ours.items() if defect(*asked) is None} == {}
    assert ours.keys() - theirs.keys() == set(), "a defect shows in files of delta-spark as well"
    assert {defect(*asked) for asked in ours} == set(DEFECTS)
