"""Row ids and commit versions are kept by a compaction, as delta-spark reads them."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from maint_assets.errors import UnsupportedFeatureError
from maint_assets_tests.compaction.conftest import Compacting
from maint_assets_tests.oracles import delta_spark
from maint_assets_tests.support.builder import TableBuilder
from maint_assets_tests.support.rewriting import head_of, live, of_kind
from maint_assets_tests.support.row_tracking import row_ids, run

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

ROWS = "SELECT id, concat('v', id) AS value, id % 2 AS p FROM range({}, {}, 1, 1)"
MERGED = (
    f"MERGE INTO {{t}} t USING ({ROWS.format(3, 9)}) s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET value = 'merged' WHEN NOT MATCHED THEN INSERT *"
)
TRACKED = ["rowTracking", "domainMetadata"]
NAMES = {
    f"delta.rowTracking.materialized{kind}ColumnName": f"_{kind}"
    for kind in ("RowId", "RowCommitVersion")
}
ON, SUSPENDED = "delta.enableRowTracking", "delta.rowTrackingSuspended"

KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "deletion vectors, mapped": (
        "", "'delta.enableDeletionVectors'='true', 'delta.columnMapping.mode'='name'", {},
    ),
    "copied on write": ("", "'delta.enableDeletionVectors'='false'", {}),
    "some partitions": (
        "PARTITIONED BY (p)", "'delta.enableDeletionVectors'='true'", {"where": "p = 1"},
    ),
    "purge, mapped by id": (
        "",
        "'delta.enableDeletionVectors'='true', 'delta.columnMapping.mode'='id'",
        {"purge": True},
    ),
}  # fmt: skip


def test_ids_stay_where_only_some_rows_hold_theirs(
    spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    features = [*TRACKED, "deletionVectors"]
    table = TableBuilder(tmp_path).create(features=features, configuration={ON: "true"} | NAMES)
    table.add("a.parquet", baseRowId=0, defaultRowCommitVersion=1)
    ids, versions = [None, 90, None, 91], [7, None, None, 8]
    materialised(table, "b.parquet", ids, versions, baseRowId=10, defaultRowCommitVersion=2)
    materialised(table, "c.parquet", ids, versions, baseRowId=20, defaultRowCommitVersion=3)
    table.delete_rows("c.parquet", 1, 3)
    mark = {"domain": "delta.rowTracking", "configuration": '{"rowIdHighWaterMark":99}'}
    table.commit([{"domainMetadata": mark | {"removed": False}}])

    done = compacting(tmp_path).compact().done

    assert done is not None and (done.files_removed, done.files_added) == (3, 1)
    (added,) = of_kind(tmp_path, done.versions[0], "add")
    assert added["baseRowId"] == 100
    assert row_ids(spark, tmp_path) == [
        (0, 0, 1), (1, 1, 1),
        (2, 10, 7), (3, 90, 2), (4, 12, 2), (5, 91, 8),
        (6, 20, 7), (8, 22, 3),
    ]  # fmt: skip


def materialised(
    table: TableBuilder, name: str, ids: list[int | None], versions: list[int | None], **fields: int
) -> None:
    """Commit a file that contains row ids and commit versions for some of its rows."""
    add = table.added(name, rows=len(ids), **fields)["add"]
    rows = pq.read_table(table.path / name)
    for column, values in zip(NAMES.values(), (ids, versions), strict=True):
        rows = rows.append_column(column, pa.array(values, pa.int64()))
    pq.write_table(rows, table.path / name)
    table.commit([{"add": add | {"size": (table.path / name).stat().st_size}}])


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_ids_stay_after_a_backfill_and_where_only_some_rows_hold_theirs(
    kind: str, spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    clause, properties, settings = KINDS[kind]
    create = f"CREATE TABLE {{t}} (id BIGINT, value STRING, p BIGINT) USING delta {clause}"
    run(
        spark,
        tmp_path,
        f"{create} TBLPROPERTIES ({properties})",
        f"INSERT INTO {{t}} {ROWS.format(0, 5)}",
        f"ALTER TABLE {{t}} SET TBLPROPERTIES ('{ON}' = 'true')",
        MERGED,
        f"INSERT INTO {{t}} {ROWS.format(9, 12)}",
        "DELETE FROM {t} WHERE id IN (0, 3, 7)",
    )
    names = head_of(tmp_path).metadata.configuration
    column = names["delta.rowTracking.materializedRowIdColumnName"]
    assert partly_materialised(tmp_path, str(column)), "else this shows nothing"
    before = row_ids(spark, tmp_path)

    done = compacting(tmp_path, **settings).compact().done

    assert done is not None and done.files_removed > 0 and done.not_committed == {}
    assert row_ids(spark, tmp_path) == before
    (info,) = of_kind(tmp_path, done.versions[0], "commitInfo")
    assert info["tags"] == {"delta.rowTracking.preserved": "true"}
    assert info["isolationLevel"] == "SnapshotIsolation"
    run(
        spark,
        tmp_path,
        "UPDATE {t} SET value = 'x' WHERE id = 4",
        "INSERT INTO {t} VALUES (99, '', 1)",
    )
    again = row_ids(spark, tmp_path)
    compacting(tmp_path).compact()
    assert row_ids(spark, tmp_path) == again
    assert {(row[0], row[1]) for row in before} < {(row[0], row[1]) for row in again}
    assert len({row_id for _, row_id, _ in again}) == len(again)


def partly_materialised(path: Path, column: str) -> bool:
    """Whether a live file contains the ids of only some of its rows."""
    for name in live(path):
        file = pq.ParquetFile(path / name)
        if column in file.schema_arrow.names:
            nulls = file.read([column])[column].null_count
            if 0 < nulls < file.metadata.num_rows:
                return True
    return False


@pytest.mark.long
def test_row_ids_follow_the_tables_properties_and_are_never_assigned_twice(
    spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    table = TableBuilder(tmp_path).create(features=TRACKED)
    table.add("a.parquet", "b.parquet")

    supported = compacting(tmp_path).compact().done

    assert supported is not None
    (added,) = of_kind(tmp_path, supported.versions[0], "add")
    (info,) = of_kind(tmp_path, supported.versions[0], "commitInfo")
    assert (added["baseRowId"], added["defaultRowCommitVersion"], info.get("tags")) == (0, 2, None)
    run(spark, tmp_path, f"ALTER TABLE {{t}} SET TBLPROPERTIES ('{SUSPENDED}' = 'true')")
    run(spark, tmp_path, "INSERT INTO {t} VALUES (10, ''), (11, '')")
    rows = delta_spark.rows(spark, tmp_path)

    suspended = compacting(tmp_path).compact().done

    assert suspended is not None and suspended.files_removed > 1
    (added,) = of_kind(tmp_path, suspended.versions[0], "add")
    assert added.keys().isdisjoint({"baseRowId", "defaultRowCommitVersion"})
    assert of_kind(tmp_path, suspended.versions[0], "domainMetadata") == []
    assert delta_spark.rows(spark, tmp_path) == rows
    run(spark, tmp_path, f"ALTER TABLE {{t}} UNSET TBLPROPERTIES ('{SUSPENDED}')")
    run(spark, tmp_path, f"ALTER TABLE {{t}} SET TBLPROPERTIES ('{ON}' = 'true')")
    run(spark, tmp_path, "INSERT INTO {t} VALUES (12, '')")
    before = row_ids(spark, tmp_path)
    assert min(row_id for _, row_id, _ in before) == 4, "behind the mark of the first compaction"
    assert len({row_id for _, row_id, _ in before}) == len(before) == 7
    compacting(tmp_path).compact()
    assert row_ids(spark, tmp_path) == before


@pytest.mark.parametrize("properties", [{ON: "true", SUSPENDED: "true"}, {ON: "true"}])
def test_tracking_that_is_on_and_cannot_be_is_refused(
    properties: dict[str, str], tmp_path: Path, compacting: Compacting
) -> None:
    features = TRACKED if SUSPENDED in properties else []
    TableBuilder(tmp_path).create(features=features, configuration=properties | NAMES).add("a", "b")

    with pytest.raises(UnsupportedFeatureError, match="row tracking is enabled"):
        compacting(tmp_path).compact()
