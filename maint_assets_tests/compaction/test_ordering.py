"""Ordered tables: Z-order and clustering, checked by delta-spark on the same tables."""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from maint_assets.assets.display.compaction import skipping_picture
from maint_assets.cli.compaction import CompactionReport, execute_compaction, plan_compaction
from maint_assets.compaction.engines import ordered, sorted_runs
from maint_assets.compaction.ordering.order import Z_CUBE_TAG
from maint_assets.compaction.plan import Selection
from maint_assets.compaction.planning import tasks
from maint_assets.compaction.row_check import RowCheck
from maint_assets.compaction.writing.target import rewriting
from maint_assets.errors import OrderError, RewriteError
from maint_assets_tests.compaction.conftest import Compacting
from maint_assets_tests.oracles import delta_spark
from maint_assets_tests.oracles.delta_spark import table as sql_of
from maint_assets_tests.support.builder import TableBuilder
from maint_assets_tests.support.old_writers import LEGACY, settings, texts
from maint_assets_tests.support.points import points, rows
from maint_assets_tests.support.rewriting import head_of, live

pytestmark = [pytest.mark.oracle, pytest.mark.slow]


def adds(path: Path) -> list[dict[str, Any]]:
    """The adds of the newest commit."""
    newest = max((path / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for line in newest.read_text(encoding="utf-8").splitlines()]
    return [each["add"] for each in actions if "add" in each]


def commit_info(path: Path) -> dict[str, Any]:
    newest = max((path / "_delta_log").glob("*.json"))
    return json.loads(newest.read_text(encoding="utf-8").splitlines()[0])["commitInfo"]


def bounds(path: Path, column: str) -> list[tuple[Any, Any]]:
    """The minimum and maximum of each file in the log."""
    stats = DeltaTable(path).get_add_actions(flatten=True)
    low, high = (pa.chunked_array(stats[f"{name}.{column}"]).to_pylist() for name in ("min", "max"))
    return list(zip(low, high, strict=True))


def files_read(path: Path, column: str, values: Iterable[Any]) -> float:
    """The mean number of files that a lookup has to read, by the statistics in the log."""
    ranges, asked = bounds(path, column), list(values)
    found = [sum(a <= v <= b for a, b in ranges) for v in asked]
    return sum(found) / len(asked)


def overlaps(path: Path, column: str) -> float:
    """The mean number of other files with which a file's range overlaps."""
    ranges = bounds(path, column)
    shared = sum(a <= d and c <= b for a, b in ranges for c, d in ranges) - len(ranges)
    return shared / len(ranges)


@pytest.fixture
def by_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every bin count as large, with small runs and ranges."""
    monkeypatch.setattr(tasks, "TASK_BYTES", 1)
    monkeypatch.setattr(ordered, "SHARE_BYTES", 10_000)
    monkeypatch.setattr(ordered, "SAMPLE_ROWS", 500)


def compacted(report: CompactionReport) -> Any:
    assert report.done is not None
    return report.done


@pytest.mark.parametrize("how", ["in_one_task", "by_jobs"])
def test_rows_stay_and_lookups_by_each_column_read_few_files(
    how: str, tmp_path: Path, compacting: Compacting, request: pytest.FixtureRequest
) -> None:
    if how == "by_jobs":
        request.getfixturevalue(how)
    points(tmp_path, rows=4000)
    before = rows(tmp_path)
    settings = {"zorder_by": ["x", "Y"], "target_file_size": 20_000, "verify_rows": "full"}

    done = compacted(compacting(tmp_path, **settings).compact())

    assert rows(tmp_path) == before
    assert (done.bins, done.verified_bins, done.files_removed) == (1, 1, 4)
    assert done.files_added == len(adds(tmp_path)) >= 10
    assert done.rows_added == 16_000
    sizes = [each["size"] for each in adds(tmp_path)]
    assert max(sizes) < 1.2 * 20_000 and min(sizes) > max(sizes) / 2
    asked = np.random.default_rng(7).integers(0, 10_000, 100).tolist()
    assert files_read(tmp_path, "x", asked) < done.files_added / 2
    assert files_read(tmp_path, "y", [f"text-{each:06}" for each in asked]) < done.files_added / 2


def test_a_second_run_commits_nothing_and_an_append_rewrites_itself_only(
    tmp_path: Path, compacting: Compacting
) -> None:
    points(tmp_path)
    compacting(tmp_path, zorder_by=["x", "y"]).compact()
    version = DeltaTable(tmp_path).version()
    DeltaTable(tmp_path).create_checkpoint()  # delta-rs keeps the tags

    again = compacting(tmp_path, zorder_by=["x", "y"]).compact()
    assert again.is_empty and DeltaTable(tmp_path).version() == version

    points(tmp_path, files=1, rows=100, seed=2)
    before = rows(tmp_path)
    done = compacted(compacting(tmp_path, zorder_by=["x", "y"]).compact())

    assert (done.files_removed, done.rows_added) == (1, 100)
    assert rows(tmp_path) == before
    report = compacting(tmp_path, zorder_by=["x", "y"], full=True).compact()
    assert compacted(report).rows_added == 4100
    assert compacting(tmp_path, zorder_by=["x", "y"], full=True).compact().is_empty
    assert rows(tmp_path) == before


def test_lookups_by_a_column_of_few_values_read_fewer_files_than_after_delta_spark(
    spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    rng = np.random.default_rng(1)
    columns = {"few": rng.integers(0, 4, 20_000), "many": rng.permutation(20_000)}
    for name in ("ours", "theirs"):
        deltalake.write_deltalake(tmp_path / name, pa.table(columns))
    (size,) = (add.size for add in live(tmp_path / "ours").values())
    target = size // 8

    compacting(tmp_path / "ours", zorder_by=["few", "many"], target_file_size=target).compact()
    key = "spark.databricks.delta.optimize.maxFileSize"
    spark.conf.set(key, target)
    try:
        delta_spark.forget(spark)
        spark.sql(f"OPTIMIZE {sql_of(tmp_path / 'theirs')} ZORDER BY (few, many)").collect()
    finally:
        spark.conf.unset(key)

    ours, theirs = (files_read(tmp_path / name, "few", range(4)) for name in ("ours", "theirs"))
    files = len(live(tmp_path / "theirs"))
    assert files >= 8 and theirs > 0.9 * files
    assert ours < 0.7 * len(live(tmp_path / "ours"))


@pytest.mark.long
def test_delta_orders_the_same_table_again_and_again(
    spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    points(tmp_path, files=2, rows=10)
    compacting(tmp_path, zorder_by=["x"]).compact()

    for _ in range(2):
        before = DeltaTable(tmp_path).version()
        delta_spark.forget(spark)
        spark.sql(f"OPTIMIZE {sql_of(tmp_path)} ZORDER BY (x)").collect()
        assert DeltaTable(tmp_path).version() == before + 1


def test_rows_are_sorted_inside_files_and_the_same_input_gives_the_same_files(
    tmp_path: Path, compacting: Compacting
) -> None:
    contents = []
    for name in ("a", "b"):
        path = tmp_path / name
        table = TableBuilder(path).create()
        for number in range(3):
            table.add(f"{number}.parquet", rows=50)
        compacting(path, zorder_by=["id"]).compact()
        (add,) = adds(path)
        contents.append(pq.read_table(path / add["path"]).to_pylist())

    ids = [row["id"] for row in contents[0]]
    assert ids == sorted(ids) and len(ids) == 150
    assert contents[0] == contents[1]


def test_the_commit_info_equals_deltas(
    spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for path in (ours, theirs):
        points(path, files=2, rows=10)
    compacting(ours, zorder_by=["X", "y"]).compact()
    spark.sql(f"OPTIMIZE {sql_of(theirs)} ZORDER BY (x, y)").collect()

    found, expected = commit_info(ours), commit_info(theirs)
    assert found["operation"] == expected["operation"] == "OPTIMIZE"
    assert found["operationParameters"] == expected["operationParameters"]
    (add,) = adds(ours)
    assert json.loads(add["tags"]["MAINT_ASSETS_ZORDER_BY"]) == [["x"], ["y"]]
    (delta_add,) = adds(theirs)
    assert json.loads(add["stats"])["maxValues"] == json.loads(delta_add["stats"])["maxValues"]
    assert json.loads(add["stats"])["minValues"] == json.loads(delta_add["stats"])["minValues"]


def clustered(spark: SparkSession, path: Path, *, files: int = 4, columns: str = "x, s.y") -> None:
    spark.sql(
        f"CREATE TABLE {sql_of(path)} (x BIGINT, s STRUCT<y: STRING, n: INT>, v DOUBLE) "
        f"USING delta CLUSTER BY ({columns})"
    )
    for number in range(files):
        append(spark, path, number)


def append(spark: SparkSession, path: Path, seed: int) -> None:
    delta_spark.forget(spark)
    spark.sql(
        f"INSERT INTO {sql_of(path)} SELECT CAST(rand({seed}) * 1000 AS BIGINT), "
        f"named_struct('y', CAST(rand({seed + 100}) AS STRING), 'n', 1), rand() FROM range(200)"
    )


def test_a_clustered_table_is_clustered_as_delta_does(
    spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for path in (ours, theirs):
        clustered(spark, path)
    before = delta_spark.rows(spark, ours)

    done = compacted(compacting(ours, target_file_size=8_000, verify_rows="full").compact())
    spark.sql(f"OPTIMIZE {sql_of(theirs)}").collect()

    assert delta_spark.rows(spark, ours) == before
    assert done.files_added == len(adds(ours)) > 1
    (delta_add,) = adds(theirs)
    for add in adds(ours):
        assert add["clusteringProvider"] == delta_add["clusteringProvider"] == "liquid"
        assert add["tags"]["ZCUBE_ZORDER_BY"] == delta_add["tags"]["ZCUBE_ZORDER_BY"]
        assert set(add["tags"]) == set(delta_add["tags"])
        assert {"x", "s"} <= set(json.loads(add["stats"])["minValues"])
    assert len({add["tags"]["ZCUBE_ID"] for add in adds(ours)}) == 1
    found, expected = commit_info(ours), commit_info(theirs)
    assert found["operationParameters"] == expected["operationParameters"]
    assert compacting(ours).compact().is_empty
    version = DeltaTable(ours).version()
    delta_spark.forget(spark)
    spark.sql(f"OPTIMIZE {sql_of(ours)}").collect()  # for Delta it is one cube
    assert DeltaTable(ours).version() == version


@pytest.mark.parametrize("names", [["the s", "1a", "ü", "x"], ["a.b", "_x", "tick`s", "123"]])
def test_clustering_columns_are_quoted_as_delta_quotes_them(
    spark: SparkSession, tmp_path: Path, compacting: Compacting, names: list[str]
) -> None:
    """delta-spark clusters files again whose tag has another text."""
    columns = [f"`{name.replace('`', '``')}`" for name in names]
    for path in (tmp_path / "ours", tmp_path / "theirs"):
        spark.sql(
            f"CREATE TABLE {sql_of(path)} ({', '.join(f'{each} INT' for each in columns)}) "
            f"USING delta CLUSTER BY ({', '.join(columns)}) "
            "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
        ).collect()
        for value in (1, 2):
            spark.sql(f"INSERT INTO {sql_of(path)} VALUES ({value}, 2, 3, 4)").collect()

    compacting(tmp_path / "ours").compact()
    spark.sql(f"OPTIMIZE {sql_of(tmp_path / 'theirs')}").collect()

    (ours,), (theirs,) = adds(tmp_path / "ours"), adds(tmp_path / "theirs")
    assert ours["tags"]["ZCUBE_ZORDER_BY"] == theirs["tags"]["ZCUBE_ZORDER_BY"]
    found, expected = commit_info(tmp_path / "ours"), commit_info(tmp_path / "theirs")
    assert found["operationParameters"] == expected["operationParameters"]


def test_one_row_more_makes_delta_rewrite_the_whole_cube_and_us_the_row(
    spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    removed = {}
    for path in (ours, theirs):
        clustered(spark, path, files=2)
        compacting(path).compact()
        delta_spark.forget(spark)
        spark.sql(f"INSERT INTO {sql_of(path)} VALUES (1, named_struct('y', 'a', 'n', 1), 1.0)")
    before = delta_spark.rows(spark, ours)

    removed["ours"] = compacted(compacting(ours).compact()).rows_removed
    delta_spark.forget(spark)
    spark.sql(f"OPTIMIZE {sql_of(theirs)}").collect()
    removed["theirs"] = sum(json.loads(add["stats"])["numRecords"] for add in adds(theirs))

    assert removed == {"ours": 1, "theirs": 401}
    assert delta_spark.rows(spark, ours) == before


@pytest.mark.long
def test_after_the_columns_have_changed_old_cubes_wait_for_full(
    spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    clustered(spark, tmp_path, files=2)
    compacting(tmp_path).compact()
    delta_spark.forget(spark)
    spark.sql(f"ALTER TABLE {sql_of(tmp_path)} CLUSTER BY (v)")
    append(spark, tmp_path, 7)
    before = delta_spark.rows(spark, tmp_path)

    report = compacting(tmp_path).compact()
    assert report.planned.plan.left_out == {"clustered": 1}
    assert compacted(report).rows_added == 200
    report = compacting(tmp_path, full=True).compact()
    assert compacted(report).rows_added == 600
    assert commit_info(tmp_path)["operationParameters"]["isFull"] is True
    assert compacting(tmp_path, full=True).compact().is_empty
    assert delta_spark.rows(spark, tmp_path) == before


@pytest.mark.long
def test_rows_deleted_from_a_lone_cube_go_where_delta_leaves_them(
    spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    clustered(spark, tmp_path, files=2, columns="x")
    spark.sql(
        f"ALTER TABLE {sql_of(tmp_path)} SET TBLPROPERTIES (delta.enableDeletionVectors = true)"
    )
    compacting(tmp_path).compact()
    delta_spark.forget(spark)
    spark.sql(f"DELETE FROM {sql_of(tmp_path)} WHERE x < 500")
    before = delta_spark.rows(spark, tmp_path)
    version = DeltaTable(tmp_path).version()
    spark.sql(f"OPTIMIZE {sql_of(tmp_path)}").collect()
    assert DeltaTable(tmp_path).version() == version

    done = compacted(compacting(tmp_path).compact())

    assert (done.files_added, done.vectors_removed) == (1, 1)
    stats = done.metrics.clustering_stats
    assert stats is not None
    assert (stats.num_output_z_cubes, stats.merged_files.num_files) == (0, 0)
    assert adds(tmp_path)[0]["clusteringProvider"] == "liquid"
    assert delta_spark.rows(spark, tmp_path) == before
    assert compacting(tmp_path).compact().is_empty


def test_row_ids_are_kept(spark: SparkSession, tmp_path: Path, compacting: Compacting) -> None:
    spark.sql(
        f"CREATE TABLE {sql_of(tmp_path)} (x BIGINT) USING delta "
        "TBLPROPERTIES (delta.enableRowTracking = true)"
    )
    for number in range(3):
        spark.sql(f"INSERT INTO {sql_of(tmp_path)} SELECT id * 7 % 50 + {number} FROM range(50)")
    read = "x, _metadata.row_id, _metadata.row_commit_version"
    query = f"SELECT {read} FROM {sql_of(tmp_path)} ORDER BY 1, 2"
    before = spark.sql(query).collect()

    compacting(tmp_path, zorder_by=["x"], verify_rows="full").compact()

    delta_spark.forget(spark)
    assert spark.sql(query).collect() == before


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (["nothing"], "names nothing, which it does not have; its columns are id, value"),
        (["day"], "names the partition column day"),
        (["id", "ID"], "names a column twice"),
    ],
)
def test_columns_that_help_no_reader_are_refused_by_name(
    asked: list[str], message: str, tmp_path: Path, compacting: Compacting
) -> None:
    TableBuilder(tmp_path).create(partition_columns=["day"]).add("a", partition={"day": "1"})
    chain = compacting(tmp_path, zorder_by=asked)

    with pytest.raises(OrderError, match=message):
        plan_compaction(chain.launcher, chain.table)


@pytest.mark.long
def test_columns_without_statistics_or_bounds_are_refused_as_by_delta(
    spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    spark.sql(
        f"CREATE TABLE {sql_of(tmp_path)} (a INT, b INT, c BOOLEAN) USING delta "
        "TBLPROPERTIES (delta.dataSkippingStatsColumns = 'a')"
    )
    spark.sql(f"INSERT INTO {sql_of(tmp_path)} VALUES (1, 2, true)")
    with pytest.raises(Exception, match="DELTA_ZORDERING_ON_COLUMN_WITHOUT_STATS"):
        spark.sql(f"OPTIMIZE {sql_of(tmp_path)} ZORDER BY (b)")

    for column, message in (("b", "have no statistics"), ("c", "Delta skips no files")):
        chain = compacting(tmp_path, zorder_by=[column])
        with pytest.raises(OrderError, match=message):
            plan_compaction(chain.launcher, chain.table)


def test_a_clustered_table_is_not_z_ordered(
    spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    clustered(spark, tmp_path, files=1)
    with pytest.raises(Exception, match="DELTA_CLUSTERING_WITH_ZORDER_BY"):
        spark.sql(f"OPTIMIZE {sql_of(tmp_path)} ZORDER BY (x)")

    chain = compacting(tmp_path, zorder_by=["x"])
    with pytest.raises(OrderError, match="is clustered, so it is not Z-ordered"):
        plan_compaction(chain.launcher, chain.table)


def test_data_skipping_is_reported_before_and_after(tmp_path: Path, compacting: Compacting) -> None:
    points(tmp_path, rows=4000)
    report = compacting(tmp_path, zorder_by=["x", "y"], target_file_size=20_000).compact()
    done = compacted(report)

    x, y = done.skipping
    assert (x.name, y.name) == ("x", "y")
    for column in done.skipping:
        assert (column.before.files, column.after.files) == (4, done.files_added)
        assert column.before.lookup == pytest.approx(4, abs=0.1) and column.before.overlaps == 3
        assert column.after.lookup < column.after.range < done.files_added / 2
    asked = np.random.default_rng(7).integers(0, 10_000, 500).tolist()
    assert x.after.lookup == pytest.approx(files_read(tmp_path, "x", asked), rel=0.15)
    assert x.after.overlaps == pytest.approx(overlaps(tmp_path, "x"), abs=0.01)
    assert report.json()["skipping"][0]["after"]["lookup"] == x.after.lookup
    assert report.json()["zorder_by"] == ["x", "y"]
    picture = skipping_picture(done)
    assert picture is not None and len(picture) < 1000 and "of 4, now " in picture


@pytest.mark.long
def test_rows_that_arrow_would_misread_go_to_spark_and_are_ordered_next_time(
    spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    columns = f"{sql_of(tmp_path)} (x BIGINT, at TIMESTAMP)"
    spark.sql(f"CREATE TABLE {columns} USING delta")
    with settings(spark, LEGACY):
        spark.sql(f"INSERT INTO {sql_of(tmp_path)} VALUES (5, TIMESTAMP'1200-01-01 00:00:00')")
    for number in (3, 1):
        spark.sql(
            f"INSERT INTO {sql_of(tmp_path)} VALUES ({number}, TIMESTAMP'2020-01-01 00:00:00')"
        )
    before = texts(spark, tmp_path)

    done = compacted(compacting(tmp_path, zorder_by=["x"]).compact())

    assert done.bins_by_engine == {"arrow": 1, "spark": 1} and done.rows_added == 3
    assert texts(spark, tmp_path) == before
    assert {Z_CUBE_TAG in add["tags"] for add in adds(tmp_path)} == {False, True}
    done = compacted(compacting(tmp_path, zorder_by=["x"]).compact())
    assert done.bins_by_engine == {"arrow": 1}
    assert compacting(tmp_path, zorder_by=["x"]).compact().is_empty
    assert texts(spark, tmp_path) == before


@pytest.mark.parametrize("how", ["in_one_task", "by_jobs"])
def test_a_file_that_is_gone_fails_its_bin_only_and_leaves_no_new_file(
    how: str, tmp_path: Path, compacting: Compacting, request: pytest.FixtureRequest
) -> None:
    if how == "by_jobs":
        request.getfixturevalue(how)
    table = TableBuilder(tmp_path).create(partition_columns=["day"])
    for day in ("1", "2"):
        for name in ("a", "b"):
            table.add(f"{name}{day}", partition={"day": day}, rows=20)
    (lost,) = tmp_path.rglob("b1*")
    lost.unlink()
    before = set(tmp_path.rglob("*.parquet"))
    chain = compacting(tmp_path, zorder_by=["id"])
    plan = plan_compaction(chain.launcher, chain.table)

    report = execute_compaction(chain.launcher, chain.table, plan, by="a test")

    assert isinstance(report.error, RewriteError)
    done = compacted(report)
    assert (done.bins, done.failed, done.files_added) == (1, 1, 1)
    ((reason, _),) = done.not_committed.items()
    assert "b1" in reason and "is missing" in reason
    new = set(tmp_path.rglob("*.parquet")) - before
    assert [tmp_path / add["path"] for add in adds(tmp_path)] == list(new)


@pytest.mark.parametrize("fault", ["lost", "doubled", "swapped"])
def test_a_bin_whose_new_files_hold_other_rows_is_not_committed(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = TableBuilder(tmp_path).create().add("a", rows=30).add("b", rows=30)
    before = set(tmp_path.rglob("*.parquet"))
    made = sorted_runs._RunFiles._append

    def faulty(self: Any, batch: pa.RecordBatch, positions: Any) -> None:
        if fault == "lost":
            made(self, batch, positions)
            self._held[-1] = self._held[-1].slice(1)
            return
        if fault == "swapped":
            made(self, batch, positions)
            rows = self._held[-1]
            turned = rows.column("value").take(pa.array(range(rows.num_rows))[::-1])
            at = rows.schema.get_field_index("value")
            self._held[-1] = rows.set_column(at, rows.schema.field(at), turned)
            return
        made(self, batch, positions)
        self._held.append(self._held[-1])

    monkeypatch.setattr(sorted_runs._RunFiles, "_append", faulty)
    rewritten = ordered_here(table.path, RowCheck("full"))

    assert {row["state"] for row in rewritten} == {"failed"}
    message = "holds other rows" if fault == "swapped" else "rows, its inputs 60 live"
    assert message in rewritten[0]["reason"]
    assert set(tmp_path.rglob("*.parquet")) == before


def test_an_unexpected_error_fails_its_bin_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = TableBuilder(tmp_path).create().add("a", rows=3)
    before = set(tmp_path.rglob("*.parquet"))

    def broken(*_: Any) -> Any:
        raise OverflowError("too\nlarge")

    monkeypatch.setattr(sorted_runs.Positions, "of_rows", broken)
    (row,) = ordered_here(table.path, RowCheck("full"))
    outcome = ordered._outcome(ordered._File("b", 0), broken)

    reason = "it failed unexpectedly (OverflowError: too large); report this as a bug"
    assert (row["state"], row["reason"], outcome.error) == ("failed", reason, reason)
    assert set(tmp_path.rglob("*.parquet")) == before


@pytest.mark.parametrize("name", ["__maint_assets_position", "__maint_assets_tie"])
@pytest.mark.parametrize("by", ["id", "the name"])
def test_a_column_may_have_any_name(name: str, by: str, tmp_path: Path) -> None:
    for numbers in ([3, 1], [2, 4]):
        columns = {"id": numbers, name: [-each for each in numbers]}
        deltalake.write_deltalake(tmp_path / "t", pa.table(columns), mode="append")

    rewritten = ordered_here(tmp_path / "t", RowCheck("full"), by=name if by == "the name" else by)

    assert {row["state"] for row in rewritten} == {"written"}
    found = pq.read_table(tmp_path / "t" / rewritten[-1]["path"]).to_pydict()
    assert found["id"] == sorted(found["id"], reverse=by != "id") and len(found["id"]) == 4
    assert found[name] == [-each for each in found["id"]]


def ordered_here(path: Path, check: RowCheck, *, by: str = "id") -> list[dict[str, Any]]:
    """The ledger after the table's live files were ordered by a column in this process."""
    found = [msgspec.json.encode(add).decode() for add in live(path).values()]
    columns = {"bin": ["b"] * len(found), "rows": [30] * len(found)}
    columns |= {"live_bytes": [1] * len(found), "reason": ["small"] * len(found), "add": found}
    how = replace(rewriting(head_of(path), Selection(zorder_by=(by,))), row_check=check)
    scratch = str(path.parent / "scratch")
    batches = ordered.rewrite_ordered([pa.RecordBatch.from_pydict(columns)], how, scratch=scratch)
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.long
def test_full_needs_an_order(spark: SparkSession, tmp_path: Path, compacting: Compacting) -> None:
    points(tmp_path, files=1, rows=1)
    with pytest.raises(Exception, match="DELTA_OPTIMIZE_FULL_NOT_SUPPORTED"):
        spark.sql(f"OPTIMIZE {sql_of(tmp_path)} FULL")

    chain = compacting(tmp_path, full=True)
    with pytest.raises(OrderError, match="has nothing to order in full"):
        plan_compaction(chain.launcher, chain.table)


def test_all_rows_deleted_nulls_and_few_values_are_ordered_too(
    tmp_path: Path, compacting: Compacting, by_jobs: None
) -> None:
    nulls = pa.table({"a": pa.array([None] * 50, pa.int64()), "b": ["x"] * 50})
    for _ in range(3):
        deltalake.write_deltalake(tmp_path, nulls, mode="append")

    done = compacted(compacting(tmp_path, zorder_by=["a", "b"], target_file_size=1000).compact())

    assert done.rows_added == 150
    assert done.files_added >= 2  # ties are spread over files
    assert rows(tmp_path) == [{"a": None, "b": "x"}] * 150


@pytest.mark.long
def test_runs_and_ranges_of_a_file_come_together_in_order(
    tmp_path: Path, compacting: Compacting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sorted_runs, "RUN_BYTES", 5_000)
    monkeypatch.setattr(sorted_runs, "RANGE_BYTES", 5_000)
    points(tmp_path, files=3)
    before = rows(tmp_path)

    compacting(tmp_path, zorder_by=["x"], verify_rows="full").compact()

    (add,) = adds(tmp_path)
    found = pq.read_table(tmp_path / add["path"])["x"].to_numpy()
    assert found.tolist() == sorted(found.tolist())
    assert rows(tmp_path) == before


def test_a_file_takes_each_range_of_a_table_exactly(tmp_path: Path, compacting: Compacting) -> None:
    """Delta's own scenario: 100 rows in four interleaved files, then in four of 25."""
    for number in range(4):
        some = pa.table({"id": pa.array(range(number, 100, 4), pa.int64())})
        deltalake.write_deltalake(tmp_path, some, mode="append")
    size = sum(file.stat().st_size for file in tmp_path.glob("*.parquet"))

    compacting(tmp_path, zorder_by=["id"], target_file_size=size // 4 + 1).compact()

    stats = [json.loads(add["stats"]) for add in adds(tmp_path)]
    found = sorted((each["minValues"]["id"], each["maxValues"]["id"]) for each in stats)
    assert found == [(0, 24), (25, 49), (50, 74), (75, 99)]


def test_an_empty_table_has_nothing_to_order(tmp_path: Path, compacting: Compacting) -> None:
    TableBuilder(tmp_path).create()

    assert compacting(tmp_path, zorder_by=["id"]).compact().is_empty


def test_partitions_are_ordered_one_by_one_in_as_many_commits_as_asked(
    tmp_path: Path, compacting: Compacting
) -> None:
    table = TableBuilder(tmp_path).create(partition_columns=["day"])
    for day in ("1", "2", None):
        for number in range(2):
            table.add(f"{day}-{number}", partition={"day": day}, rows=5)
    before = rows(tmp_path)

    settings = {"zorder_by": ["id"], "max_bytes_per_commit": 1}
    done = compacted(compacting(tmp_path, where="day = '1'", **settings).compact())
    assert (done.bins, done.files_added) == (1, 1)
    done = compacted(compacting(tmp_path, **settings).compact())

    assert (len(done.versions), done.files_added) == (2, 2)
    assert rows(tmp_path) == before


@pytest.mark.parametrize(
    "mode", ["name", *(pytest.param(mode, marks=pytest.mark.long) for mode in ("none", "id"))]
)
def test_nested_and_quoted_names_are_found_whatever_files_call_them(
    mode: str, spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    mapping = f"TBLPROPERTIES ('delta.columnMapping.mode' = '{mode}')"
    spark.sql(
        f"CREATE TABLE {sql_of(tmp_path)} (s STRUCT<a: INT, `b.c`: STRING>, `d.e` INT) "
        f"USING delta {mapping}"
    )
    for number in (2, 1):
        spark.sql(
            f"INSERT INTO {sql_of(tmp_path)} SELECT named_struct('a', {number}, 'b.c', 'x'), id "
            "FROM range(3)"
        )
    before = delta_spark.rows(spark, tmp_path)

    done = compacted(compacting(tmp_path, zorder_by=["`d.e`", "S.a", "s.`b.c`"]).compact())

    assert done.files_added == 1
    assert delta_spark.rows(spark, tmp_path) == before
    assert json.loads(commit_info(tmp_path)["operationParameters"]["zOrderBy"]) == [
        "`d.e`", "s.a", "s.`b.c`"
    ]  # fmt: skip
    if mode != "none":
        spark.sql(f"ALTER TABLE {sql_of(tmp_path)} RENAME COLUMN `d.e` TO f")
        assert compacting(tmp_path, zorder_by=["f", "s.a", "s.`b.c`"]).compact().is_empty


@pytest.mark.long
def test_a_clustering_is_the_same_behind_a_checkpoint(
    spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    clustered(spark, tmp_path, files=1, columns="x")
    spark.sql(f"ALTER TABLE {sql_of(tmp_path)} SET TBLPROPERTIES (delta.checkpointInterval = 1)")
    compacting(tmp_path).compact()
    assert list((tmp_path / "_delta_log").glob("*.checkpoint.parquet"))

    assert compacting(tmp_path).compact().is_empty
    version = DeltaTable(tmp_path).version()
    delta_spark.forget(spark)
    spark.sql(f"OPTIMIZE {sql_of(tmp_path)}").collect()
    assert DeltaTable(tmp_path).version() == version


@pytest.mark.long
def test_variants_are_no_order_here_nor_with_delta(
    spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    """Tables with a variant column are not ordered at all: Spark would rewrite them in each run."""
    spark.sql(f"CREATE TABLE {sql_of(tmp_path)} (v VARIANT, id INT) USING delta")
    spark.sql(f"INSERT INTO {sql_of(tmp_path)} SELECT parse_json('1'), 1")
    with pytest.raises(Exception, match=r"(?i)variant|WITHOUT_STATS"):
        spark.sql(f"OPTIMIZE {sql_of(tmp_path)} ZORDER BY (v)").collect()

    for column, message in (("v", "Delta skips no files"), ("id", "has variant columns")):
        chain = compacting(tmp_path, zorder_by=[column])
        with pytest.raises(OrderError, match=message):
            plan_compaction(chain.launcher, chain.table)


@pytest.mark.long
def test_metrics_are_deltas_but_for_the_strategy(
    spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for path in (ours, theirs):
        points(path, files=3, rows=10)
    found = compacting(ours, zorder_by=["x"]).compact().json()["metrics"]["zOrderStats"]
    delta_spark.forget(spark)
    of_delta = spark.sql(f"OPTIMIZE {sql_of(theirs)} ZORDER BY (x)").collect()[0]["metrics"]
    expected = of_delta.asDict(recursive=True)["zOrderStats"]

    assert set(found) <= set(expected)
    assert (found.pop("strategyName"), expected.pop("strategyName")) == ("incremental", "all")
    assert found == {name: expected[name] for name in found}


@pytest.mark.long
def test_metrics_of_a_clustering_are_deltas(
    spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for path in (ours, theirs):
        clustered(spark, path, files=2)
    found = compacting(ours).compact().json()["metrics"]["clusteringStats"]
    delta_spark.forget(spark)
    of_delta = spark.sql(f"OPTIMIZE {sql_of(theirs)}").collect()[0]["metrics"]
    expected = of_delta.asDict(recursive=True)["clusteringStats"]

    assert found.keys() == expected.keys()
    sizes = {"inputOtherFiles", "mergedFiles"}
    assert {name: found[name] for name in found.keys() - sizes} == {
        name: expected[name] for name in found.keys() - sizes
    }
    assert all(found[name]["numFiles"] == expected[name]["numFiles"] for name in sizes)
