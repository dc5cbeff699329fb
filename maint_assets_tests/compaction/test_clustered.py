"""A clustered table that delta-spark and we cluster by turns.

The part that CI runs is in ``test_ordering``.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from maint_assets.errors import OrderError
from maint_assets_tests.compaction.conftest import Compacting
from maint_assets_tests.compaction.filters import scanned, sorted_ids
from maint_assets_tests.compaction.killed import killed
from maint_assets_tests.oracles import delta_spark
from maint_assets_tests.support.chain import Chain
from maint_assets_tests.support.rewriting import head_of, live
from maint_assets_tests.support.row_tracking import row_ids, run

pytestmark = [pytest.mark.oracle, pytest.mark.slow, pytest.mark.long]

VECTORS = "'delta.enableDeletionVectors' = 'true'"
KINDS = {
    "plain": "'delta.checkpointInterval' = '100'",
    "mapped by id": f"{VECTORS}, 'delta.columnMapping.mode' = 'id'",
    "all features": (
        f"{VECTORS}, 'delta.columnMapping.mode' = 'name', 'delta.enableRowTracking' = 'true', "
        "'delta.enableInCommitTimestamps' = 'true', 'delta.checkpointPolicy' = 'v2', "
        "'delta.checkpointInterval' = '3'"
    ),
}
CREATE = (
    "CREATE TABLE {{t}} (id BIGINT, x INT, s STRUCT<y: STRING>, d DATE) "
    "USING delta CLUSTER BY (x, s.y, d) TBLPROPERTIES ({})"
)
INSERT = (
    "INSERT INTO {{t}} SELECT id, CAST(id * 7 % 50 AS INT), named_struct('y', concat('k', id % 13))"
    ", date_add(DATE'2020-01-01', CAST(id % 30 AS INT)) FROM range({}, {}, 1, 1)"
)
CONDITIONS = [
    "x = 14", "x is null", "x between 3 and 5", "s.y = 'k3'", "s.y > 'k8' and x < 20",
    "d = DATE'2020-01-11'", "d >= DATE'2020-01-28'", "id in (5, 105)",
]  # fmt: skip


def table_of(spark: SparkSession, path: Path, kind: str, *, rows: int = 200) -> None:
    """Make four files, one with deleted rows if the table has deletion vectors."""
    share = rows // 4
    inserts = [INSERT.format(at * share, at * share + share) for at in range(4)]
    run(spark, path, CREATE.format(KINDS[kind]), *inserts, "DELETE FROM {t} WHERE id IN (3, 4)")


def state(spark: SparkSession, path: Path, *, named: str = "s") -> dict[str, Any]:
    """All that a rewrite must not change: rows, row ids, results of filters, the clustering.

    ``named`` is the present name of the struct.
    """
    conditions = [text.replace("s.y", f"{named}.y") for text in CONDITIONS]
    delta_spark.forget(spark)
    properties = head_of(path).metadata.configuration
    tracked = properties.get("delta.enableRowTracking") == "true"
    (detail,) = spark.sql(f"DESCRIBE DETAIL {delta_spark.table(path)}").collect()
    return {
        "rows": delta_spark.rows(spark, path),
        "ids": row_ids(spark, path) if tracked else [],
        "found": sorted_ids(scanned(spark, delta_spark.table(path), conditions)),
        "clustered by": detail.clusteringColumns,
        "domain": domain(spark, path),
    }


def domain(spark: SparkSession, path: Path) -> str:
    """The clustering columns as the log contains them."""
    found = delta_spark.snapshot(spark, path).domainMetadata()
    every = [found.apply(at) for at in range(found.size())]
    return next(each.configuration() for each in every if each.domain() == "delta.clustering")


def files(path: Path) -> list[tuple[str | None, str | None, bool, int]]:
    """Provider, clustering columns, presence of a deletion vector and rows of each live file."""
    return sorted(
        (
            add.clustering_provider,
            (add.tags or {}).get("ZCUBE_ZORDER_BY"),
            add.deletion_vector is not None,
            json.loads(add.stats or "{}")["numRecords"],
        )
        for add in live(path).values()
    )


def optimized(spark: SparkSession, path: Path, how: str = "") -> int:
    """The number of files that delta-spark's own OPTIMIZE rewrote."""
    delta_spark.forget(spark)
    (row,) = spark.sql(f"OPTIMIZE {delta_spark.table(path)} {how}").collect()
    return int(row["metrics"]["numFilesRemoved"])


def removed(chain: Chain) -> int:
    """The number of files that we rewrote."""
    report = chain.compact()
    if report.done is None:
        return 0
    assert report.error is None and report.done.not_committed == {}
    return report.done.files_removed


@pytest.mark.parametrize("kind", KINDS)
def test_delta_goes_on_where_we_clustered_and_we_where_delta_did(
    kind: str, spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    path = tmp_path / "t"
    table_of(spark, path, kind)
    before = state(spark, path)

    assert removed(compacting(path, verify_rows="full")) == 4
    assert state(spark, path) == before
    assert files(path) == [("liquid", '["x","s.y","d"]', False, 198)]
    assert removed(compacting(path, full=True)) == 0
    assert optimized(spark, path) == optimized(spark, path, "FULL") == 0

    run(spark, path, INSERT.format(200, 210))
    before = state(spark, path)
    assert optimized(spark, path) == 2  # our cube and the new file
    assert state(spark, path) == before
    assert removed(compacting(path)) == 0

    run(spark, path, INSERT.format(210, 215))
    before = state(spark, path)
    assert removed(compacting(path, full=True, verify_rows="full")) == 2
    assert state(spark, path) == before
    assert optimized(spark, path, "FULL") == 0


@pytest.mark.parametrize("kind", KINDS)
def test_other_columns_wait_for_full_and_none_ends_the_clustering(
    kind: str, spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    path, named = tmp_path / "t", "s" if kind == "plain" else "`the s`"
    table_of(spark, path, kind)
    removed(compacting(path))
    changed = "CLUSTER BY (d)" if kind == "plain" else f"RENAME COLUMN s TO {named}"
    run(spark, path, f"ALTER TABLE {{t}} {changed}", INSERT.format(200, 210))
    before = state(spark, path, named=named)
    assert removed(compacting(path)) == 1
    assert removed(compacting(path, full=True)) == 2
    assert state(spark, path, named=named) == before
    assert optimized(spark, path, "FULL") == 0

    run(spark, path, "ALTER TABLE {t} CLUSTER BY NONE", INSERT.format(210, 220))
    before = state(spark, path, named=named)
    with pytest.raises(OrderError, match="has nothing to order in full"):
        compacting(path, full=True).compact()
    assert removed(compacting(path)) == 2
    assert state(spark, path, named=named) == before

    run(spark, path, "ALTER TABLE {t} CLUSTER BY (x)", INSERT.format(220, 230))
    before = state(spark, path, named=named)
    assert optimized(spark, path, "FULL") == 2
    assert removed(compacting(path, full=True)) == 0
    assert state(spark, path, named=named) == before


@pytest.mark.parametrize("step", ["ordered: divided", "ordered: written", "ledger written"])
def test_a_clustering_that_was_killed_is_done_by_the_next_run(
    step: str, spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "table"
    table_of(spark, path, "all features")
    before = state(spark, path)
    settings = {"full": True, "max_bytes_per_commit": 1}

    killed(tmp_path, step, settings)

    assert state(spark, path) == before
    chain = Chain.compacting(path, tmp_path / "ws", **settings)
    assert removed(chain) == (0 if step == "ledger written" else 4)
    assert state(spark, path) == before and len(files(path)) == 1
    vacuum = Chain.of(path, tmp_path / "ws", retention="0 hours", allow_short_retention=True)
    assert vacuum.vacuum().error is None
    data = [file for file in path.rglob("*.parquet") if path / "_delta_log" not in file.parents]
    assert len(data) == 1 and state(spark, path) == before
    assert optimized(spark, path) == 0
