"""Tables with schema changes or odd columns: the same rows after, in the present columns."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from maint_assets_tests.compaction.conftest import Compacting
from maint_assets_tests.oracles import delta_spark
from maint_assets_tests.support.rewriting import live, of_kind

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

HISTORY = (
    "CREATE TABLE {t} (id BIGINT, gone STRING, was STRING, s STRUCT<p: STRING, x: INT>, n STRING, "
    "v VOID, p STRING) USING delta PARTITIONED BY (p)",
    "INSERT INTO {t} SELECT /*+ COALESCE(1) */ id, 'gone', concat('w', id), "
    "IF(id = 1, NULL, named_struct('p', IF(id = 2, NULL, 'in'), 'x', id)), NULL, NULL, 'out' "
    "FROM range(4)",
    "ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
    "ALTER TABLE {t} DROP COLUMN gone",
    "ALTER TABLE {t} RENAME COLUMN was TO `is now`",
    "ALTER TABLE {t} ADD COLUMNS (more STRUCT<a: ARRAY<STRUCT<b: INT>>>, s.y DATE)",
    "INSERT INTO {t} VALUES (9, 'new', named_struct('p', 'in', 'x', 9, 'y', DATE'2020-01-01'), "
    "NULL, NULL, 'out', named_struct('a', array(named_struct('b', 1), NULL)))",
)


def run(spark: SparkSession, path: Path, *statements: str) -> None:
    for statement in statements:
        spark.sql(statement.format(t=delta_spark.table(path))).collect()


def test_columns_that_came_went_and_were_renamed(
    spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    run(spark, tmp_path, *HISTORY)
    rows = delta_spark.rows(spark, tmp_path)

    done = compacting(tmp_path).compact().done

    assert done is not None and (done.files_removed, done.files_added) == (2, 1)
    assert delta_spark.rows(spark, tmp_path) == rows
    (name,) = live(tmp_path)
    columns = pq.read_schema(tmp_path / name).names
    assert "was" in columns and {"gone", "is now", "v", "p"}.isdisjoint(columns)
    (add,) = of_kind(tmp_path, done.versions[0], "add")
    assert '"n":5' in add["stats"], "all are null"
    run(spark, tmp_path, "UPDATE {t} SET s.p = 'x', more = NULL WHERE id = 1")
    assert len(delta_spark.rows(spark, tmp_path)) == len(rows)
