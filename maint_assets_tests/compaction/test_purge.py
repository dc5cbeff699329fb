"""A purge: files with deleted rows are rewritten without them, all other files are kept."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from maint_assets.errors import NotADeltaTableError, UnsupportedFeatureError
from maint_assets_tests.compaction.conftest import Compacting
from maint_assets_tests.oracles import delta_spark
from maint_assets_tests.support.builder import TableBuilder, tree
from maint_assets_tests.support.rewriting import lines, live


def test_files_with_deleted_rows_are_merged_once_and_for_all(
    spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    table = TableBuilder(tmp_path).create(partition_columns=["p"], features=["deletionVectors"])
    for part in range(4):
        table.add("1.parquet", "2.parquet", "3.parquet", partition={"p": str(part)}, rows=20)
        table.delete_rows(f"p={part}/1.parquet", 7).delete_rows(f"p={part}/2.parquet", 0, 19)
    rows, before = delta_spark.rows(spark, tmp_path), live(tmp_path)
    chain = compacting(tmp_path, purge=True)

    some = compacting(tmp_path, purge=True, where="p IN (0, 2)").compact().done
    rest = chain.compact().done
    last = chain.compact()

    assert some is not None and rest is not None and last.done is not None
    assert (some.files_removed, some.files_added, some.vectors_removed) == (4, 2, 4)
    assert (rest.files_removed, rest.files_added, last.done.versions) == (4, 2, [])
    assert last.planned.plan.left_out == {"whole": 8}
    after = live(tmp_path)
    assert {name for name in before if name.endswith("3.parquet")} == before.keys() & after.keys()
    assert [add for add in after.values() if add.deletion_vector] == []
    assert delta_spark.rows(spark, tmp_path) == rows
    info = lines(tmp_path, some.versions[0])[0]["commitInfo"]
    assert (info["operation"], info["operationParameters"]) == (
        "REORG", {"predicate": '["p IN (0, 2)"]', "applyPurge": True},
    )  # fmt: skip


@pytest.mark.parametrize("purge", [False, True])
def test_commits_that_a_catalog_owns_are_refused(
    purge: bool, tmp_path: Path, compacting: Compacting
) -> None:
    TableBuilder(tmp_path).create(features=["catalogManaged", "inCommitTimestamp"]).add("a", "b")
    before = tree(tmp_path)

    with pytest.raises(UnsupportedFeatureError, match="the catalog owns the commits"):
        compacting(tmp_path, purge=purge).compact()

    assert tree(tmp_path) == before


def test_what_is_no_table_is_refused(tmp_path: Path, compacting: Compacting) -> None:
    TableBuilder(tmp_path).create(partition_columns=["p"]).add("a.parquet", partition={"p": "1"})

    with pytest.raises(NotADeltaTableError):
        compacting(tmp_path / "p=1").compact()
