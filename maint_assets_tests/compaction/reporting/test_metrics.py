"""The metrics of a compaction against those of delta-spark's OPTIMIZE on a copy of the table."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from maint_assets.cli.compaction import execute_compaction, plan_compaction
from maint_assets_tests.compaction.conftest import Compacting
from maint_assets_tests.oracles import delta_spark
from maint_assets_tests.support.builder import TableBuilder
from maint_assets_tests.support.chain import Chain, set_clock
from maint_assets_tests.support.rewriting import live

AS_DELTA = {"min_file_size": "1GB", "target_file_size": "1GB"}
"""Settings that select the same files as Delta."""

OF_NO_FILES = {"min": None, "max": None, "avg": 0.0, "totalFiles": 0, "totalSize": 0}


def three_days(path: Path, **create: Any) -> TableBuilder:
    """Three files a day for three days, and one file on a fourth day."""
    table = TableBuilder(path).create(partition_columns=["day"], **create)
    for day in range(3):
        for file in range(3):
            table.add(f"{file}", partition={"day": f"2026-01-0{day + 1}"}, rows=9 * file + day + 2)
    return table.add("alone", partition={"day": "2026-01-09"})


def metrics(chain: Chain) -> dict[str, Any]:
    """The metrics of a compaction as the command line shows them."""
    return chain.compact().json()["metrics"]


def by_delta(spark: SparkSession, path: Path, where: str = "") -> dict[str, Any]:
    """The metrics that delta-spark's OPTIMIZE returns for the table itself."""
    delta_spark.forget(spark)
    found = spark.sql(f"OPTIMIZE {delta_spark.table(path)} {where}").collect()
    return found[0]["metrics"].asDict(recursive=True)


def sizes(path: Path, *, version: int) -> list[int]:
    """The sizes on disk of the files that a commit added."""
    text = (path / "_delta_log" / f"{version:020}.json").read_text(encoding="utf-8")
    adds = [json.loads(line).get("add") for line in text.splitlines()]
    return sorted((path / add["path"]).stat().st_size for add in adds if add)


@pytest.mark.oracle
@pytest.mark.parametrize("where", [None, "day < '2026-01-03'"])
def test_numbers_are_those_of_delta(
    where: str | None, spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    """Except for the sizes of the new files, which depend on the writer, and Delta's defects."""
    table = three_days(tmp_path / "ours", features=["deletionVectors"])
    table.delete_rows("day=2026-01-01/1", 0, 3).delete_rows("day=2026-01-02/2", 1)
    shutil.copytree(table.path, tmp_path / "theirs")

    ours = metrics(compacting(table.path, where=where, **AS_DELTA))
    theirs = by_delta(spark, tmp_path / "theirs", f"WHERE {where}" if where else "")

    alike = (
        "numFilesAdded", "numFilesRemoved", "filesRemoved", "partitionsOptimized", "numBins",
        "numBatches", "totalConsideredFiles", "totalFilesSkipped", "deletionVectorStats",
        "numTableColumns",
    )  # fmt: skip
    assert {name: ours[name] for name in alike} == {name: theirs[name] for name in alike}
    assert ours["deletionVectorStats"]["numDeletionVectorRowsRemoved"] == 3
    assert ours["filesAdded"].keys() == theirs["filesAdded"].keys()
    new = sizes(table.path, version=table.version + 1)
    assert ours["filesAdded"] == {
        "min": new[0],
        "max": new[-1],
        "avg": sum(new) / len(new),
        "totalFiles": len(new),
        "totalSize": sum(new),
    }
    assert set(ours) <= set(theirs), "the names are Delta's"


@pytest.mark.oracle
def test_what_is_left_out_are_numbers_of_deltas_engine(
    spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    three_days(tmp_path / "ours")
    shutil.copytree(tmp_path / "ours", tmp_path / "theirs")

    ours = metrics(compacting(tmp_path / "ours", **AS_DELTA))
    theirs = by_delta(spark, tmp_path / "theirs")

    left_out = {name: value for name, value in theirs.items() if name not in ours}
    assert left_out.pop("totalClusterParallelism") > 0
    assert left_out == {
        "autoCompactParallelismStats": None,
        "numBytesSkippedToReduceWriteAmplification": 0,
        "numFilesSkippedToReduceWriteAmplification": 0,
        "preserveInsertionOrder": False,
        "totalScheduledTasks": 0,
    }


@pytest.mark.oracle
def test_metrics_that_delta_gets_wrong_are_right(
    spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    """The times, and the columns with statistics: one of the three is a partition column."""
    table = three_days(tmp_path / "ours", configuration={"delta.dataSkippingNumIndexedCols": "-1"})
    shutil.copytree(table.path, tmp_path / "theirs")
    chain = compacting(table.path, now_ms=None, **AS_DELTA)
    report = plan_compaction(chain.launcher, chain.table)
    set_clock(chain, report.planned.plan.planned_ms + 5_000)

    done = execute_compaction(chain.launcher, chain.table, report, by="a test").done
    theirs = by_delta(spark, tmp_path / "theirs")

    assert done is not None
    ours = done.metrics
    assert (theirs["numTableColumnsWithStats"], ours.num_table_columns_with_stats) == (-1, 2)
    assert (theirs["numTableColumns"], ours.num_table_columns) == (3, 3)
    assert ours.start_time_ms == ours.end_time_ms == report.planned.plan.planned_ms + 5_000
    assert theirs["endTimeMs"] == 0 and theirs["startTimeMs"] > 0


@pytest.mark.oracle
def test_a_run_without_work_has_no_batch(
    spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    """Delta reports one batch, although there is no commit."""
    table = TableBuilder(tmp_path).create().add("a")

    ours, theirs = metrics(compacting(tmp_path, **AS_DELTA)), by_delta(spark, tmp_path)

    assert (theirs["numBatches"], ours["numBatches"]) == (1, 0)
    assert ours["filesAdded"] == ours["filesRemoved"] == theirs["filesAdded"] == OF_NO_FILES
    assert (ours["totalConsideredFiles"], ours["totalFilesSkipped"]) == (1, 1)
    assert table.version == 1


@pytest.mark.parametrize(
    ("indexed", "columns"),
    [
        ({"delta.dataSkippingNumIndexedCols": "0"}, 0),
        ({"delta.dataSkippingNumIndexedCols": "1"}, 1),
        ({"delta.dataSkippingStatsColumns": "value,s.a"}, 2),
        ({}, 3),
    ],
)
def test_columns_with_statistics_are_those_that_new_files_have_them_of(
    indexed: dict[str, str], columns: int, tmp_path: Path, compacting: Compacting
) -> None:
    nested = {"type": "struct", "fields": [_field("a"), _field("b")]}
    table = TableBuilder(tmp_path).create(configuration=indexed).add("a").add("b")
    schema = json.loads(table.metadata["schemaString"])
    schema["fields"].append({**_field("s"), "type": nested})
    table.commit([{"metaData": table.metadata | {"schemaString": json.dumps(schema)}}])

    found = metrics(compacting(tmp_path))

    stats = json.loads(str(next(iter(live(tmp_path).values())).stats))
    assert found["numTableColumnsWithStats"] == columns == len(stats.get("nullCount", {}))


def _field(name: str) -> dict[str, Any]:
    return {"name": name, "type": "long", "nullable": True, "metadata": {}}


def test_numbers_are_those_of_all_commits(tmp_path: Path, compacting: Compacting) -> None:
    """One commit per bin, two bins per day: a day still counts as one partition."""
    table = TableBuilder(tmp_path).create(partition_columns=["day"])
    for day in "12":
        table.add(*"abcd", partition={"day": day}, rows=50)
    two = 2 * max(add["size"] for add in table.live.values()) + 1
    sizes_asked = {"target_file_size": two, "min_file_size": two}

    found = metrics(compacting(tmp_path, **sizes_asked, max_bytes_per_commit=1))

    assert (found["numBins"], found["numBatches"], found["partitionsOptimized"]) == (4, 4, 2)
    assert (found["filesRemoved"]["totalFiles"], found["filesAdded"]["totalFiles"]) == (8, 4)
    every = [add.size for add in live(tmp_path).values()]
    assert found["filesAdded"]["min"] == min(every) and found["filesAdded"]["max"] == max(every)
    assert found["filesAdded"]["totalSize"] == sum(every)


def test_one_partition_in_two_spellings_is_one(tmp_path: Path, compacting: Compacting) -> None:
    table = TableBuilder(tmp_path).create(
        partition_columns=["n"], fields={"id": "long", "value": "string", "n": "integer"}
    )
    for name in "abcd":
        table.add(f"{name}/x", partition={"n": "7" if name in "ab" else "07"}, rows=50)
    two = 2 * max(add["size"] for add in table.live.values()) + 1
    sizes_asked = {"target_file_size": two, "min_file_size": two}

    found = metrics(compacting(tmp_path, **sizes_asked))

    assert (found["numBins"], found["partitionsOptimized"]) == (2, 1)


@pytest.fixture
def interrupted(tmp_path: Path, compacting: Compacting) -> Callable[..., dict[str, Any]]:
    """The metrics of three days: one lost a file since the plan, one has an unreadable file."""

    def run(**settings: Any) -> dict[str, Any]:
        table = three_days(tmp_path)
        chain = compacting(tmp_path, **settings)
        report = plan_compaction(chain.launcher, chain.table)
        table.remove("day=2026-01-01/0")
        (tmp_path / "day=2026-01-02/1").write_bytes(b"no file")
        done = execute_compaction(chain.launcher, chain.table, report, by="a test")
        assert done.done is not None
        assert (done.done.bins, done.done.dropped, done.done.failed) == (1, 1, 1)
        return done.json()["metrics"]

    return run


@pytest.mark.parametrize("settings", [{}, {"max_bytes_per_commit": 1}])
def test_bins_that_were_not_committed_do_not_count(
    settings: dict[str, Any], interrupted: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    found = interrupted(**settings)

    removed = [(tmp_path / f"day=2026-01-03/{file}").stat().st_size for file in range(3)]
    assert found["filesRemoved"] == {
        "min": min(removed),
        "max": max(removed),
        "avg": sum(removed) / 3,
        "totalFiles": 3,
        "totalSize": sum(removed),
    }
    assert (found["numFilesAdded"], found["partitionsOptimized"], found["numBatches"]) == (1, 1, 1)
    assert (found["totalConsideredFiles"], found["totalFilesSkipped"]) == (10, 7)


def test_the_ui_shows_them_under_deltas_names(tmp_path: Path, compacting: Compacting) -> None:
    three_days(tmp_path)
    chain = compacting(tmp_path)

    found = metrics(chain)

    key = dg.AssetKey(["maintenance", "t", "rewritten_files"])
    event = chain.launcher.instance.get_latest_materialization_event(key)
    assert event is not None and event.asset_materialization is not None
    shown = event.asset_materialization.metadata
    assert shown["metrics/numFilesRemoved"].value == found["numFilesRemoved"] == 9
    assert shown["metrics/filesRemoved/avg"].value == found["filesRemoved"]["avg"]
    assert shown["metrics/partitionsOptimized"].value == 3
    assert str(shown["metrics/startTime"].value).endswith("UTC")
