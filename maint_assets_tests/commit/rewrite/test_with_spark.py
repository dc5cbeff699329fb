"""Commits of rewrites through Delta's own implementation: it reads them and continues."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from maint_assets.commit.rewrite.committing import commit_rewrites
from maint_assets.errors import ConflictError
from maint_assets.snapshot.head import TableHead
from maint_assets_tests.oracles import delta_spark
from maint_assets_tests.support.builder import TableBuilder
from maint_assets_tests.support.rewriting import Terms, head_of, merged, of_kind

pytestmark = pytest.mark.oracle

CREATE = "CREATE TABLE {t} (id BIGINT, value STRING) USING delta TBLPROPERTIES ({properties})"
APPEND = "INSERT INTO {t} SELECT id, concat('v', id) FROM range({first}, {end}, 1, 1)"
FEATURES = ("inCommitTimestamp", "changeDataFeed", "deletionVectors")
CHANGES = {"delta.enableChangeDataFeed": "true"}


def run(spark: SparkSession, path: Path, statement: str, **parts: object) -> list[Any]:
    return spark.sql(statement.format(t=delta_spark.table(path), **parts)).collect()


def ids(spark: SparkSession, path: Path) -> list[int]:
    return sorted(row["id"] for row in delta_spark.rows(spark, path))


def test_delta_reads_the_commit_and_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    table = TableBuilder(tmp_path).create(features=FEATURES, configuration=CHANGES)
    table.add("a", rows=5).add("b", rows=4)
    before = delta_spark.rows(spark, tmp_path)

    done = commit_rewrites(head_of(tmp_path), [merged(tmp_path, "new")], Terms().request())

    assert done.version == 3
    assert delta_spark.rows(spark, tmp_path) == before
    history = run(spark, tmp_path, "DESCRIBE HISTORY {t} LIMIT 1")[0]
    assert (history.version, history.operation, history.readVersion) == (3, "OPTIMIZE", 2)
    assert history.operationParameters["predicate"] == "[]"
    assert history.operationMetrics == done.metrics
    changes = f"SELECT * FROM table_changes_by_path('{tmp_path}', 3, 3)"
    assert spark.sql(changes).collect() == []
    assert _streamed(spark, tmp_path, since=3) == 0
    run(spark, tmp_path, APPEND, first=9, end=10)
    run(spark, tmp_path, "DELETE FROM {t} WHERE id < 2")
    assert ids(spark, tmp_path) == [*range(2, 10)]


def _streamed(spark: SparkSession, path: Path, *, since: int) -> int:
    """The number of rows that a stream receives from the versions from ``since`` on."""
    source = spark.readStream.format("delta").option("startingVersion", str(since))
    sink = source.load(str(path)).writeStream.format("noop").trigger(availableNow=True)
    query = sink.option("checkpointLocation", str(path / "_stream")).start()
    query.awaitTermination()
    return sum(progress["numInputRows"] for progress in query.recentProgress)


def test_row_ids_stay_the_same(spark: SparkSession, tmp_path: Path) -> None:
    run(spark, tmp_path, CREATE, properties="'delta.enableRowTracking' = 'true'")
    run(spark, tmp_path, APPEND, first=0, end=5)
    run(spark, tmp_path, APPEND, first=5, end=9)
    before, head = _row_ids(spark, tmp_path), head_of(tmp_path)
    rewritten = merged(tmp_path, "new", keep_row_ids=_materialised(head))

    done = commit_rewrites(head, [rewritten], Terms(row_ids_kept=True).request())

    assert done.version == 3
    assert _row_ids(spark, tmp_path) == before
    (added,) = of_kind(tmp_path, 3, "add")
    assert (added["baseRowId"], added["defaultRowCommitVersion"]) == (9, 3)
    assert of_kind(tmp_path, 3, "commitInfo")[0]["tags"] == {"delta.rowTracking.preserved": "true"}
    run(spark, tmp_path, APPEND, first=9, end=11)
    assert sorted(row.row_id for row in _row_ids(spark, tmp_path)) == [*range(9), 18, 19]
    (ours,), (theirs,) = (of_kind(tmp_path, version, "domainMetadata") for version in (3, 4))
    assert json.loads(ours["configuration"]).keys() == json.loads(theirs["configuration"]).keys()


def _materialised(head: TableHead) -> tuple[str, str]:
    kinds = ("RowId", "RowCommitVersion")
    keys = [f"delta.rowTracking.materialized{kind}ColumnName" for kind in kinds]
    row_id, version = (head.metadata.configuration[key] or "" for key in keys)
    return row_id, version


def _row_ids(spark: SparkSession, path: Path) -> list[Any]:
    delta_spark.forget(spark)
    columns = "id, _metadata.row_id AS row_id, _metadata.row_commit_version AS at"
    return run(spark, path, f"SELECT {columns} FROM {{t}} ORDER BY id")


def test_winners_of_delta_mean_what_the_rules_say(spark: SparkSession, tmp_path: Path) -> None:
    TableBuilder(tmp_path).create().add("a", rows=5).add("b", rows=4)
    head, bins = head_of(tmp_path), [merged(tmp_path, "new")]
    run(spark, tmp_path, "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableDeletionVectors'='true')")
    run(spark, tmp_path, "COMMENT ON TABLE {t} IS 'mine'")

    assert commit_rewrites(head, bins, Terms().request()).version == 5

    head, bins = head_of(tmp_path), [merged(tmp_path, "newer")]
    run(spark, tmp_path, "DELETE FROM {t} WHERE id = 3")
    done = commit_rewrites(head, bins, Terms(txn_id="2").request())
    assert (done.version, done.dropped[0].bin) == (None, "newer")
    run(spark, tmp_path, "ALTER TABLE {t} ADD COLUMN more STRING")
    with pytest.raises(ConflictError, match=r"\(ADD COLUMNS\) changed the table: the schema"):
        commit_rewrites(head, bins, Terms(txn_id="3").request())
    assert ids(spark, tmp_path) == [0, 1, 2, *range(4, 9)]
