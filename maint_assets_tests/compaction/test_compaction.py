"""Stories of a compaction: what is merged, what is refused, what other writers do meanwhile."""

import json
import logging
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from maint_assets.cli.compaction import execute_compaction, plan_compaction
from maint_assets.commit.rewrite.committing import commit_rewrites
from maint_assets.compaction.execution import rewrite_batch
from maint_assets.datasets.parts import Target, Written
from maint_assets.errors import (
    ConflictError,
    GuardError,
    PredicateError,
    RewriteError,
    StalePlanError,
    StoppedError,
    StorageError,
)
from maint_assets_tests.compaction.conftest import Compacting
from maint_assets_tests.oracles import delta_spark
from maint_assets_tests.support.builder import TableBuilder, tree
from maint_assets_tests.support.chain import Chain, change_plan, planned_rows
from maint_assets_tests.support.rewriting import live


def small_files(path: Path, *, days: int = 2, files: int = 3, **create: Any) -> TableBuilder:
    """A table with a few small files a day."""
    table = TableBuilder(path).at(days_ago=9).create(partition_columns=["day"], **create)
    for day in range(days):
        for file in range(files):
            table.add(f"{file}.parquet", partition={"day": f"2026-01-0{day + 1}"})
    return table


def commit(path: Path, version: int) -> list[dict[str, Any]]:
    """The actions of a commit."""
    text = (path / "_delta_log" / f"{version:020}.json").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def removed_by(path: Path, version: int) -> set[str]:
    """The files that a commit removes."""
    return {each["remove"]["path"] for each in commit(path, version) if "remove" in each}


def files(path: Path) -> set[str]:
    return {str(file.relative_to(path)) for file in path.rglob("*.parquet")}


def rows(path: Path) -> list[Any]:
    """The rows as delta-rs reads them."""
    found = DeltaTable(path).to_pyarrow_table().to_pylist()
    return sorted(found, key=repr)


def test_files_of_a_partition_become_one(tmp_path: Path, compacting: Compacting) -> None:
    table = small_files(tmp_path)
    before = rows(tmp_path)

    done = compacting(tmp_path).compact().done

    assert done is not None
    assert (done.bins, done.files_removed, done.files_added) == (2, 6, 2)
    assert done.rows_removed == done.rows_added == len(before)
    assert done.versions == [table.version + 1]
    assert rows(tmp_path) == before
    actions = commit(tmp_path, done.versions[0])
    changes = [
        *(a["add"] for a in actions if "add" in a),
        *(a["remove"] for a in actions if "remove" in a),
    ]
    assert len(changes) == 8 and not any(change["dataChange"] for change in changes)
    assert actions[0]["commitInfo"]["operation"] == "OPTIMIZE"
    assert {tuple(a["add"]["partitionValues"].items()) for a in actions if "add" in a} == {
        (("day", "2026-01-01"),), (("day", "2026-01-02"),),
    }  # fmt: skip


def test_a_plan_changes_nothing(tmp_path: Path, compacting: Compacting) -> None:
    small_files(tmp_path)
    before = files(tmp_path)
    chain = compacting(tmp_path)

    report = plan_compaction(chain.launcher, chain.table)

    assert report.planned.plan.bins == 2 and report.planned.by_reason == {"small": 6}
    assert files(tmp_path) == before
    assert len(list((tmp_path / "_delta_log").iterdir())) == 7


@pytest.mark.parametrize(
    ("where", "bins"),
    [
        ("day = '2026-01-01'", 1),
        ("day >= '2026-01-01' and day < '2026-02-01'", 2),
        ("DAY like '%02'", 1),
        ("day is null", 0),
    ],
)
def test_only_partitions_that_match_are_rewritten(
    where: str, bins: int, tmp_path: Path, compacting: Compacting
) -> None:
    small_files(tmp_path)
    before = rows(tmp_path)

    report = compacting(tmp_path, where=where).compact()

    plan = report.planned.plan
    assert plan.bins == bins
    assert plan.considered_files == 3 * bins
    assert plan.left_out.get("other_partition", 0) == 6 - 3 * bins
    assert rows(tmp_path) == before


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("id = 1", "day"),
        ("day = (select max(day) from x)", "subquery"),
        ("day = (values '1')", "subquery"),
        ("day in ( FROM values('1'))", "subquery"),
        ("exists(table x)", "subquery"),
        ("day = (/* one */ values '1')", "subquery"),
        ("day > '1' or rand() < 0.5", "uses rand"),
        ("day = max(day) over ()", "uses over"),
        ("__maint_assets_file is not null", "internal"),
        ("day =", "not valid"),
        ("day", "type string"),
        ("path = 'x'", "day"),
    ],
)
def test_predicates_of_anything_else_are_refused(
    where: str, message: str, tmp_path: Path, compacting: Compacting
) -> None:
    small_files(tmp_path, files=1)

    with pytest.raises(PredicateError, match=message):
        compacting(tmp_path, where=where).compact()


@pytest.mark.parametrize("where", ["cast(day as int) = 1", "assert_true(day > '9') is null"])
@pytest.mark.parametrize("files", [1, 2])
def test_a_predicate_that_fails_on_a_value_is_reported(
    where: str, files: int, spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    small_files(tmp_path, files=files)

    with pytest.raises(PySparkException):
        delta_spark.forget(spark)
        spark.sql(f"OPTIMIZE {delta_spark.table(tmp_path)} WHERE {where}")
    with pytest.raises(PredicateError, match=r"fails on a partition value \(\["):
        compacting(tmp_path, where=where).compact()


def test_sql_errors_stay_what_they_are_after_a_plan_with_a_predicate(
    spark: SparkSession, tmp_path: Path, compacting: Compacting, monkeypatch: pytest.MonkeyPatch
) -> None:
    loggers = {
        k: v for k, v in logging.Logger.manager.loggerDict.items() if "QueryContext" not in k
    }
    monkeypatch.setattr(logging.Logger.manager, "loggerDict", loggers)
    small_files(tmp_path)

    compacting(tmp_path, where="day = '1'").compact()

    with pytest.raises(AnalysisException, match="UNRESOLVED_COLUMN"):
        spark.sql("SELECT nothing")


def test_partition_values_are_compared_as_their_type(
    tmp_path: Path, compacting: Compacting
) -> None:
    table = TableBuilder(tmp_path).create(
        partition_columns=["n"], fields={"id": "long", "value": "string", "n": "integer"}
    )
    table.add("a/1.parquet", partition={"n": "7"}).add("a/2.parquet", partition={"n": "07"})
    before = rows(tmp_path)

    done = compacting(tmp_path).compact().done

    assert done is not None and done.files_added == 1
    assert DeltaTable(tmp_path).get_add_actions().num_rows == 1
    assert rows(tmp_path) == before


def test_a_file_with_many_deleted_rows_is_rewritten_alone(
    spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    table = TableBuilder(tmp_path).create(features=["deletionVectors"])
    table.add("a.parquet", rows=20).delete_rows("a.parquet", 0, 19)
    before = delta_spark.rows(spark, tmp_path)
    spark.sql(f"OPTIMIZE {delta_spark.table(tmp_path)}")
    assert DeltaTable(tmp_path).version() == table.version, "delta-spark leaves it"

    done = compacting(tmp_path).compact().done

    assert done is not None
    assert (done.files_removed, done.files_added, done.vectors_removed) == (1, 1, 1)
    assert (done.rows_removed, len(before)) == (18, 18)
    assert delta_spark.rows(spark, tmp_path) == before


def test_files_whose_rows_are_all_deleted_go_without_a_new_one(
    tmp_path: Path, compacting: Compacting
) -> None:
    table = TableBuilder(tmp_path).create(features=["deletionVectors"])
    table.add("a.parquet").delete_rows("a.parquet", 0, 1)
    before = files(tmp_path)

    done = compacting(tmp_path).compact().done

    assert done is not None and done.versions == [table.version + 1]
    assert (done.files_removed, done.files_added) == (1, 0)
    assert files(tmp_path) == before
    assert DeltaTable(tmp_path).get_add_actions().num_rows == 0


def test_purge_rewrites_files_with_deleted_rows_only(
    tmp_path: Path, compacting: Compacting
) -> None:
    table = TableBuilder(tmp_path).create(features=["deletionVectors"])
    table.add("a.parquet", rows=100).delete_rows("a.parquet", 5)
    table.add("b.parquet").add("c.parquet")

    report = compacting(tmp_path, purge=True).compact()

    assert report.done is not None and report.done.files_removed == 1
    assert report.planned.plan.left_out == {"whole": 2}
    info = commit(tmp_path, report.done.versions[0])[0]["commitInfo"]
    assert info["operation"] == "REORG"
    assert info["operationParameters"]["applyPurge"] in {True, "true"}


def planned(chain: Chain) -> Any:
    return plan_compaction(chain.launcher, chain.table)


def executed(chain: Chain, report: Any) -> Any:
    return execute_compaction(chain.launcher, chain.table, report, by="a test")


def test_a_bin_whose_file_went_meanwhile_is_dropped_alone(
    tmp_path: Path, compacting: Compacting
) -> None:
    table = small_files(tmp_path)
    chain = compacting(tmp_path)
    report = planned(chain)
    table.remove("day=2026-01-01/1.parquet").add("new.parquet", partition={"day": "2026-01-02"})
    before, on_disk = rows(tmp_path), files(tmp_path)

    done = executed(chain, report).done

    assert (done.bins, done.dropped, done.files_removed) == (1, 1, 3)
    assert rows(tmp_path) == before
    assert len(files(tmp_path) - on_disk) == 1, "the new file of the dropped bin is gone"
    again = chain.compact()
    assert again.planned.plan.bins == 2 and again.done is not None
    assert rows(tmp_path) == before


def test_a_removal_of_a_file_that_is_no_input_is_no_conflict_as_it_is_for_delta_rs(
    tmp_path: Path, compacting: Compacting
) -> None:
    """A whole partition is deleted while another one is rewritten."""
    for name in ("ours", "theirs"):
        small_files(tmp_path / name)
    chain = compacting(tmp_path / "ours", where="day = '2026-01-01'")
    report, stale = planned(chain), DeltaTable(tmp_path / "theirs")
    for name in ("ours", "theirs"):
        DeltaTable(tmp_path / name).delete("day = '2026-01-02'")

    with pytest.raises(CommitFailedError):
        stale.optimize.compact(partition_filters=[("day", "=", "2026-01-01")])
    done = executed(chain, report).done

    assert (done.bins, done.dropped, done.files_removed) == (1, 0, 3)
    assert rows(tmp_path / "ours") == rows(tmp_path / "theirs")


def test_a_change_of_the_schema_is_a_conflict(tmp_path: Path, compacting: Compacting) -> None:
    table = small_files(tmp_path)
    chain = compacting(tmp_path)
    report = planned(chain)
    schema = json.loads(table.metadata["schemaString"])
    schema["fields"].append({"name": "more", "type": "long", "nullable": True, "metadata": {}})
    table.commit([{"metaData": table.metadata | {"schemaString": json.dumps(schema)}}])
    on_disk = files(tmp_path)

    with pytest.raises(ConflictError):
        executed(chain, report)

    assert files(tmp_path) == on_disk
    assert DeltaTable(tmp_path).version() == table.version
    assert chain.compact().error is None


def test_a_file_that_cannot_be_read_fails_its_bin_alone(
    tmp_path: Path, compacting: Compacting
) -> None:
    small_files(tmp_path)
    damaged = tmp_path / "day=2026-01-01/1.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-20])
    on_disk = files(tmp_path)

    report = compacting(tmp_path).compact()

    assert isinstance(report.error, RewriteError) and "1 of 2 bins failed" in str(report.error)
    assert report.done is not None and (report.done.bins, report.done.failed) == (1, 1)
    assert "1.parquet" in next(iter(report.done.not_committed))
    assert len(files(tmp_path) - on_disk) == 1


def test_a_flipped_bit_fails_its_bin_while_delta_rs_gives_it_a_new_checksum(
    tmp_path: Path, spark: SparkSession, compacting: Compacting
) -> None:
    written = spark.range(0, 4, 1, 4).selectExpr("concat('text ', id) AS text")
    written.write.format("delta").option("compression", "none").save(str(tmp_path / "ours"))
    damaged = next(f for f in (tmp_path / "ours").glob("*.parquet") if b"text 2" in f.read_bytes())
    page, *rest = damaged.read_bytes().split(b"text 2")
    damaged.write_bytes(page + b"text Z" + b"text 2".join(rest))
    # Hadoop's checksum, which other writers do not leave, would make Spark fail.
    damaged.with_name(f".{damaged.name}.crc").unlink()
    shutil.copytree(tmp_path / "ours", tmp_path / "theirs")

    report = compacting(tmp_path / "ours").compact()
    theirs = DeltaTable(tmp_path / "theirs")
    theirs.optimize.compact()

    assert report.done is not None and (report.done.bins, report.done.failed) == (0, 1)
    assert "CRC checksum verification failed" in next(iter(report.done.not_committed))
    assert {"text": "text Z"} in delta_spark.rows(spark, tmp_path / "ours")
    new = [tmp_path / "theirs" / path for path in DeltaTable(tmp_path / "theirs").file_uris()]
    found = [pq.read_table(path)["text"].to_pylist() for path in new]
    assert [sorted(texts) for texts in found] == [["text 0", "text 1", "text 3", "text Z"]]


def test_a_file_with_other_rows_than_the_log_says_is_left(
    tmp_path: Path, compacting: Compacting
) -> None:
    table = small_files(tmp_path, days=1)
    wrong = json.dumps({"numRecords": 9})
    table.add("wrong.parquet", partition={"day": "2026-01-01"}, stats=wrong)
    before, on_disk = rows(tmp_path), files(tmp_path)

    reports = [compacting(tmp_path).compact() for _ in range(2)]

    first, second = (report.done for report in reports)
    assert first is not None and second is not None
    assert (first.bins, first.refused, first.files_removed, first.files_added) == (1, 1, 3, 1)
    assert "the log says 9 rows" in next(iter(first.not_committed))
    assert (second.bins, second.refused, second.versions) == (0, 1, []), "one file is no rewrite"
    assert len(files(tmp_path) - on_disk) == 1 and rows(tmp_path) == before


@pytest.mark.parametrize(("claimed", "read"), [("a byte less", 8), ("a byte more", 8), ("few", 6)])
def test_a_file_of_other_bytes_than_the_log_says_is_left(
    spark: SparkSession, tmp_path: Path, compacting: Compacting, claimed: str, read: int
) -> None:
    """deltalake looks for the footer in the wrong place; delta-spark reads the bytes it finds."""
    table = small_files(tmp_path / "t", days=1)
    added = table.added("wrong.parquet", partition={"day": "2026-01-01"})
    size = added["add"]["size"]
    wrong = {"a byte less": size - 1, "a byte more": size + 1, "few": 10}[claimed]
    added["add"]["size"] = wrong
    table.commit([added])
    before = delta_spark.rows(spark, tmp_path / "t")

    assert len(before) == read
    with pytest.raises(pa.ArrowInvalid):
        rows(tmp_path / "t")
    report = compacting(tmp_path / "t").compact()

    assert report.done is not None and (report.done.refused, report.done.bins) == (1, 1)
    reason = next(iter(report.done.not_committed))
    assert f"wrong.parquet: the log says {wrong} bytes, the file has {size}" in reason
    assert delta_spark.rows(spark, tmp_path / "t") == before
    assert added["add"]["path"] in live(tmp_path / "t")


def test_commits_are_as_large_as_asked(tmp_path: Path, compacting: Compacting) -> None:
    table = small_files(tmp_path, days=5)
    before = rows(tmp_path)
    chain = compacting(tmp_path, max_bytes_per_commit=1)

    done = chain.compact().done

    assert done is not None and done.bins == 5
    assert done.versions == [table.version + n for n in range(1, 6)]
    assert rows(tmp_path) == before


def test_a_run_rewrites_as_much_as_asked_and_the_next_one_goes_on(
    tmp_path: Path, compacting: Compacting
) -> None:
    small_files(tmp_path, days=3)
    before = rows(tmp_path)
    day = sum(file.stat().st_size for file in (tmp_path / "day=2026-01-01").iterdir())
    chain = compacting(tmp_path, max_bytes_per_run=day * 3 // 2)

    reports = [chain.compact() for _ in range(4)]

    assert [report.planned.plan.bins for report in reports] == [1, 1, 1, 0]
    assert reports[0].planned.plan.left_out == {"postponed": 6}
    assert rows(tmp_path) == before


def test_bins_that_are_refused_each_time_do_not_stop_the_others(
    tmp_path: Path, compacting: Compacting
) -> None:
    table = TableBuilder(tmp_path).at(days_ago=9).create(partition_columns=["day"])
    for name in "xy":
        wrong = json.dumps({"numRecords": 9})
        table.add(f"{name}.parquet", partition={"day": "0"}, stats=wrong)
    for name, day in zip("abcdef", "011122", strict=True):
        table.add(f"{name}.parquet", partition={"day": day})
    (tmp_path / "day=2" / "f.parquet").unlink()
    whole = max(sum(f.stat().st_size for f in day.iterdir()) for day in tmp_path.glob("day=*"))
    chain = compacting(tmp_path, max_bytes_per_run=whole)

    first, second = chain.compact(), chain.compact()

    assert first.done is not None and (first.done.bins, first.done.refused) == (1, 0)
    assert first.planned.plan.left_out == {"postponed": 5}
    assert second.done is not None and (second.done.bins, second.done.refused) == (0, 1)


def test_an_old_plan_and_another_ones_digest_are_refused(
    tmp_path: Path, compacting: Compacting
) -> None:
    small_files(tmp_path)
    chain = compacting(tmp_path, plan_max_age="0 seconds")
    report = planned(chain)

    late = chain.launcher.execute(
        chain.table, report.planned.plan.digest, "a test", stage="rewritten_files"
    )
    other = chain.launcher.execute(chain.table, "0" * 32, "a test", stage="rewritten_files")

    assert isinstance(late.error, StalePlanError) and "old" in str(late.error)
    assert isinstance(other.error, StalePlanError) and "approved plan" in str(other.error)


@pytest.mark.parametrize(
    ("noted", "message"),
    [(False, "has changed since it was planned"), (True, "not those it was made of")],
)
def test_a_plan_whose_rows_were_changed_is_not_executed(
    tmp_path: Path, compacting: Compacting, noted: bool, message: str
) -> None:
    table = small_files(tmp_path)
    before, chain = rows(tmp_path), compacting(tmp_path)
    report = planned(chain)
    change_plan(report.bins, planned_rows(report.bins).slice(1), noted=noted)

    done = chain.launcher.execute(
        chain.table, report.planned.plan.digest, "a test", stage="rewritten_files"
    )

    assert isinstance(done.error, StalePlanError) and message in str(done.error)
    assert DeltaTable(tmp_path).version() == table.version and rows(tmp_path) == before


def test_a_plan_of_another_release_is_refused_in_one_sentence(
    tmp_path: Path, compacting: Compacting
) -> None:
    table = small_files(tmp_path)
    before, chain = rows(tmp_path), compacting(tmp_path)
    report = planned(chain)
    digest, summary = report.planned.plan.digest, report.bins.location.file("summary.json")

    old_rows = planned_rows(report.bins).drop_columns(["rewrites"])
    change_plan(report.bins, old_rows, noted=True)
    by_rows = chain.launcher.execute(chain.table, digest, "a test", stage="rewritten_files")
    content = json.loads(summary.read_text(encoding="utf-8"))
    del content["plan"]["commit_mark"]
    summary.write_text(json.dumps(content), encoding="utf-8")
    by_summary = chain.launcher.execute(chain.table, digest, "a test", stage="rewritten_files")

    for done in (by_rows, by_summary):
        assert isinstance(done.error, StalePlanError)
        assert "made by another release of maint_assets" in str(done.error)
    assert DeltaTable(tmp_path).version() == table.version and rows(tmp_path) == before


def test_a_plan_whose_execution_dagster_never_heard_of_is_committed_once(
    tmp_path: Path, compacting: Compacting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("maint_assets.assets.stage_run.StageRun.executed_since", lambda *_: None)
    small_files(tmp_path)
    before = rows(tmp_path)
    chain = compacting(tmp_path)
    report = planned(chain)

    first, on_disk = executed(chain, report), files(tmp_path)
    second = executed(chain, report)

    assert (first.done.bins, second.done.bins, second.done.dropped) == (2, 0, 2)
    assert rows(tmp_path) == before
    assert files(tmp_path) == on_disk, "nobody needs what the second one wrote"


def test_a_checkpoint_is_written_at_its_interval(
    spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    table = small_files(tmp_path, configuration={"delta.checkpointInterval": "7"})
    before = rows(tmp_path)

    done = compacting(tmp_path).compact().done

    assert done is not None and done.checkpoint_version == table.version + 1 == 7
    for version in range(7):
        (tmp_path / "_delta_log" / f"{version:020}.json").unlink()
    assert rows(tmp_path) == before
    assert len(delta_spark.rows(spark, tmp_path)) == len(before)


@pytest.mark.parametrize("order", [(), ("id",)])
def test_a_file_that_readers_differ_on_is_left_out(
    spark: SparkSession,
    tmp_path: Path,
    compacting: Compacting,
    caplog: pytest.LogCaptureFixture,
    order: tuple[str, ...],
) -> None:
    """delta-spark rewrites it, and so decides for all readers whether its rows exist."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    table = TableBuilder(ours).create(configuration={"delta.checkpointInterval": "1"})
    table.add("a", "b")
    removed = {"remove": {"path": "both", "dataChange": True}}
    table.commit([removed, table.added("both")])
    shutil.copytree(ours, theirs)

    report = compacting(ours, zorder_by=list(order)).compact()
    spark.sql(f"OPTIMIZE {delta_spark.table(theirs)}")

    done = report.done
    assert done is not None and (done.bins, done.checkpoint_version) == (1, None)
    assert report.planned.plan.left_out == {"disputed": 1}
    assert removed_by(ours, 3) == {"a", "b"}
    assert removed_by(theirs, 3) == {"a", "b", "both"}
    assert "no checkpoint was written" in caplog.text
    assert f"{2:020}.json both adds and removes both" in caplog.text
    assert not list(table.log.glob("*.checkpoint*"))


@pytest.mark.parametrize(
    ("named", "codec"),
    [
        ("SNAPPY", "SNAPPY"),
        ("brotli", "ZSTD"),  # Spark lacks brotli and could no longer read the table
    ],
)
def test_new_files_have_the_codec_that_the_table_names_if_spark_reads_it(
    named: str, codec: str, spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    small_files(tmp_path, configuration={"delta.parquet.compression.codec": named})
    before = delta_spark.rows(spark, tmp_path)

    compacting(tmp_path).compact()

    new = next(tmp_path.rglob("part-*.parquet"))
    assert pq.read_metadata(new).row_group(0).column(0).compression == codec
    assert new.name.endswith(f".{codec.lower()}.parquet")
    assert delta_spark.rows(spark, tmp_path) == before


def test_a_log_that_was_put_back_is_not_the_one_of_the_plan(
    tmp_path: Path, compacting: Compacting
) -> None:
    table = small_files(tmp_path)
    chain = compacting(tmp_path)
    report = planned(chain)
    (tmp_path / "_delta_log" / f"{6:020}.json").unlink()
    other = table.added("day=2026-01-02/other.parquet", partition={"day": "2026-01-02"})
    table.commit([other], version=6)
    on_disk = files(tmp_path)

    with pytest.raises(StalePlanError, match="is not the commit that the plan is based on"):
        executed(chain, report)

    assert files(tmp_path) == on_disk


def test_a_null_may_be_left_out_of_the_partition_values(
    tmp_path: Path, compacting: Compacting
) -> None:
    table = TableBuilder(tmp_path).create(partition_columns=["day"])
    table.add("1.parquet", partition={}).add("2.parquet", partition={})
    before = rows(tmp_path)

    done = compacting(tmp_path).compact().done

    assert done is not None and done.files_added == 1
    assert rows(tmp_path) == before
    added = [action["add"] for action in commit(tmp_path, 3) if "add" in action]
    assert added[0]["partitionValues"] == {"day": None}


def test_a_value_that_is_no_name_of_a_directory_has_a_random_one(
    tmp_path: Path, compacting: Compacting
) -> None:
    table = TableBuilder(tmp_path).create(partition_columns=["day"])
    for name in ("a/1.parquet", "a/2.parquet"):
        table.add(name, partition={"day": "x" * 400})
    before = rows(tmp_path)

    report = compacting(tmp_path).compact()

    assert report.error is None and report.done is not None and report.done.files_added == 1
    assert rows(tmp_path) == before


def test_a_disk_that_takes_no_file_fails_bins_in_one_sentence(
    tmp_path: Path, compacting: Compacting
) -> None:
    table = small_files(tmp_path)
    (tmp_path / "day=2026-01-02").rename(tmp_path / "there")
    (tmp_path / "day=2026-01-02").symlink_to("there/1.parquet")

    report = compacting(tmp_path).compact()

    assert isinstance(report.error, RewriteError)
    assert report.done is not None and (report.done.bins, report.done.failed) == (1, 1)
    assert report.done.versions == [table.version + 1]


def test_commits_before_a_conflict_are_kept_and_reported(
    tmp_path: Path, compacting: Compacting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches are committed one after another: the second one finds a new column."""
    table = small_files(tmp_path)
    chain = compacting(tmp_path, max_bytes_per_commit=1)
    report = planned(chain)
    commits = []

    def then_altered(*arguments: Any) -> Any:
        if commits:
            schema = json.loads(table.metadata["schemaString"])
            schema["fields"].append({"name": "m", "type": "long", "nullable": True, "metadata": {}})
            metadata = table.metadata | {"schemaString": json.dumps(schema)}
            table.commit([{"metaData": metadata}], version=8)
        commits.append(commit_rewrites(*arguments))
        return commits[-1]

    monkeypatch.setattr("maint_assets.compaction.execution.commit_rewrites", then_altered)
    done = executed(chain, report)

    assert isinstance(done.error, ConflictError)
    assert (done.done.bins, done.done.versions) == (1, [7])
    assert done.ledger is not None and list(Path(done.ledger).glob("*.parquet"))


def test_commits_before_a_lost_worker_are_kept_and_reported(
    tmp_path: Path, compacting: Compacting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No Python code fails here, so the error that Spark raises is a Java one."""
    small_files(tmp_path)
    chain = compacting(tmp_path, max_bytes_per_commit=1)
    report = planned(chain)
    commits: list[Any] = []

    def then_lost(spark: SparkSession, *arguments: Any, **more: Any) -> Any:
        if commits:
            spark.range(1).mapInArrow(lambda _: os._exit(1), "id long").collect()
        commits.append(rewrite_batch(spark, *arguments, **more))
        return commits[-1]

    monkeypatch.setattr("maint_assets.assets.stages.compaction.rewrite_batch", then_lost)
    done = executed(chain, report)

    assert "Py4JJavaError" in str(done.error)
    assert (done.done.bins, done.done.versions) == (1, [7])
    assert done.ledger is not None and list(Path(done.ledger).glob("*.parquet"))


def test_nothing_is_rewritten_that_could_not_be_recorded(
    tmp_path: Path, compacting: Compacting
) -> None:
    small_files(tmp_path)
    report = planned(chain := compacting(tmp_path))
    stage = report.bins.location.file("../../rewritten_files").resolve()
    stage.write_text("not a directory")
    before = tree(tmp_path)

    with pytest.raises(StorageError, match="cannot be written"):
        executed(chain, report)

    assert tree(tmp_path) == before


def test_a_batch_whose_ledger_cannot_be_written_counts_and_its_version_is_told(
    tmp_path: Path, compacting: Compacting, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_files(tmp_path)
    chain = compacting(tmp_path, max_bytes_per_commit=1)
    report = planned(chain)
    written, seen = Target.written, list[Target]()

    def full(target: Target, rows: Any) -> Written:
        if "/rewritten_files/" in target.directory:
            seen.append(target)
            if len(seen) == 2:
                raise StorageError(target.directory, "the workspace cannot be written", "make room")
        return written(target, rows)

    monkeypatch.setattr(Target, "written", full)
    done = executed(chain, report)

    assert isinstance(done.error, StorageError)
    assert (done.done.bins, done.done.versions, done.done.files_removed) == (2, [7, 8], 6)


def test_an_executed_plan_is_refused_when_it_is_approved_again(
    tmp_path: Path, compacting: Compacting
) -> None:
    small_files(tmp_path / "t")
    chain = compacting(tmp_path / "t")
    digest = chain.compact().planned.plan.digest
    commits = len(list((tmp_path / "t" / "_delta_log").iterdir()))

    error = chain.launcher.execute(chain.table, digest, "a test", stage="rewritten_files").error

    assert error is not None
    assert "was executed by run " in str(error)
    assert len(list((tmp_path / "t" / "_delta_log").iterdir())) == commits


def test_an_interrupt_before_the_commit_leaves_no_new_file(
    tmp_path: Path, compacting: Compacting, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_files(tmp_path / "t")
    before = {path.name for path in (tmp_path / "t").rglob("*.parquet")}
    written: set[str] = set()

    def interrupted(*_: object) -> None:
        written.update(path.name for path in (tmp_path / "t").rglob("*.parquet"))
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr("maint_assets.compaction.execution._bins", interrupted)

    with pytest.raises(StoppedError):
        compacting(tmp_path / "t").compact()

    assert written > before
    assert {path.name for path in (tmp_path / "t").rglob("*.parquet")} == before


def test_a_clock_that_is_behind_is_refused_before_anything_is_rewritten(
    tmp_path: Path, compacting: Compacting
) -> None:
    """The next VACUUM would take the files removed now for expired."""
    write_deltalake(str(tmp_path / "t"), pa.table({"a": [1]}))
    write_deltalake(str(tmp_path / "t"), pa.table({"a": [2]}), mode="append")
    behind_ms = int(time.time() * 1000) - 30 * 86_400_000  # noqa: TID251
    chain = compacting(tmp_path / "t", now_ms=behind_ms, allow_clock_skew=False)
    before = tree(tmp_path / "t")

    with pytest.raises(GuardError, match="clock"):
        chain.compact()

    assert tree(tmp_path / "t") == before
