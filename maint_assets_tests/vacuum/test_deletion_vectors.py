"""Deletion vectors of every kind are kept as long as a retained file needs them."""

import shutil
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from maint_assets_tests.oracles import delta_rs, delta_spark
from maint_assets_tests.support import vectors
from maint_assets_tests.support.builder import TableBuilder
from maint_assets_tests.vacuum.conftest import ChainOf
from maint_assets_tests.vacuum.planning import planned

DV = {"features": ["deletionVectors"], "configuration": {"delta.enableDeletionVectors": "true"}}
pytestmark = pytest.mark.oracle


def story(path: Path) -> TableBuilder:
    return TableBuilder(path).at(days_ago=9).create(**DV).add("a", "b", rows=4)


def vectors_in(path: Path) -> set[str]:
    return {str(p.relative_to(path)) for p in path.rglob("deletion_vector_*.bin")}


def test_live_vectors_stay_and_superseded_ones_go(spark: SparkSession, tmp_path: Path) -> None:
    table = story(tmp_path).delete_rows("a", 0).delete_rows("b", 0, prefix="ab")
    superseded = vectors_in(tmp_path)
    table.delete_rows("a", 0, 1).delete_rows("b", 0, 1, prefix="cd").age("**/*", 9)

    plan = planned(spark, tmp_path)

    assert plan.files == superseded == delta_spark.planned_files(spark, tmp_path, retention_hours=0)
    assert plan.directories == {"ab"}
    assert set(plan.kinds.values()) == {"dv", "directory"}


def test_absolute_vector_stays_where_delta_spark_deletes_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    story(tmp_path).delete_rows("a", 0, storage="p").age("**/*", 9)

    assert planned(spark, tmp_path).files == set()
    assert delta_spark.planned_files(spark, tmp_path, retention_hours=0) == vectors_in(tmp_path)


def test_inline_vector_works_where_delta_spark_crashes(spark: SparkSession, tmp_path: Path) -> None:
    story(tmp_path).delete_rows("a", 0, storage="i").stray("stray").age("**/*", 9)

    assert planned(spark, tmp_path).files == {"stray"}
    with pytest.raises((Py4JJavaError, PySparkException), match="MatchError"):
        delta_spark.planned_files(spark, tmp_path, retention_hours=0)


def test_vector_file_shared_by_two_stays_until_both_are_gone(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = story(tmp_path)
    vector, _ = vectors.write(tmp_path, [0], storage="u", uuid=table.next_uuid())
    for name in ("a", "b"):
        add = table.live[name]
        removed = table.removed(name, table.clock_ms)
        table.commit([removed, {"add": add | {"deletionVector": vector}}])
    table.remove("a").age("**/*", 9)

    assert planned(spark, tmp_path).files == {"a"}
    table.remove("b").add("c").age("**/*", 9)
    assert planned(spark, tmp_path).files == {"a", "b", *vectors_in(tmp_path)}


@pytest.mark.slow
def test_delta_rs_deletes_live_vectors_and_we_keep_the_table_readable(
    spark: SparkSession, tmp_path: Path, chain_of: ChainOf
) -> None:
    table = story(tmp_path / "ours").delete_rows("a", 0).delete_rows("b", 1)
    table.stray("stray").age("**/*", 9)
    shutil.copytree(table.path, tmp_path / "theirs")
    before = delta_spark.rows(spark, table.path)

    chain_of(table.path).vacuum()
    delta_rs.vacuum(tmp_path / "theirs", retention_hours=0)

    assert delta_spark.rows(spark, table.path) == before
    assert not (table.path / "stray").exists()
    with pytest.raises((Py4JJavaError, PySparkException)):
        delta_spark.rows(spark, tmp_path / "theirs")
