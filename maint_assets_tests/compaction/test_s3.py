"""OPTIMIZE of tables on a real S3 server, with the plans and rows of local tables."""

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from maint_assets.cli.compaction import execute_compaction, plan_compaction
from maint_assets.commit import overwriting
from maint_assets.compaction import execution
from maint_assets.config import StorageSettings
from maint_assets.errors import GuardError, OverwrittenError
from maint_assets.storage import write
from maint_assets_tests.oracles import delta_spark
from maint_assets_tests.oracles.feature_tables import FEATURE_TABLES
from maint_assets_tests.support import s3
from maint_assets_tests.support.builder import TableBuilder
from maint_assets_tests.support.chain import Chain

pytestmark = [pytest.mark.jvm]

EACH_TIME = {"deletionVectors", "columnMapping"}
"""What CI runs; the others run in ``make stories``."""


def exclusive(server: s3.Server) -> StorageSettings:
    return server.settings.model_copy(update={"commit": "exclusive"})


@pytest.mark.slow
@pytest.mark.oracle
@pytest.mark.parametrize(
    "feature",
    [pytest.param(n, marks=[] if n in EACH_TIME else [pytest.mark.long]) for n in FEATURE_TABLES],
)
def test_rows_of_every_feature_are_the_same_as_delta_reads_them(
    feature: str, spark: SparkSession, s3_server: s3.Server, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    FEATURE_TABLES[feature](spark, path)
    name = "`the name`" if feature == "columnMapping" else "name"
    for number in (40, 41):
        spark.sql(f"INSERT INTO {delta_spark.table(path)} (id, {name}) VALUES ({number}, 'new')")
    rows = delta_spark.rows(spark, path)
    uri = s3_server.upload(path, f"features-{feature}")
    on_disk = Chain.compacting(path, tmp_path / "disk", verify_rows="full").compact()
    chain = Chain.compacting_store(uri, tmp_path / "ws", exclusive(s3_server), verify_rows="full")

    report, again = chain.compact(), chain.compact()

    assert report.error is None and report.done is not None and on_disk.done is not None
    assert report.planned.plan.files == on_disk.planned.plan.files > 0
    assert report.planned.plan.left_out == on_disk.planned.plan.left_out
    assert report.done.bins_by_engine == on_disk.done.bins_by_engine
    assert report.done.not_committed == {}
    after = s3_server.download(f"features-{feature}", tmp_path / "after")
    assert repr(delta_spark.rows(spark, after)) == repr(rows) != "[]"  # variants have no ==
    assert again.planned.plan.bins == 0


@pytest.mark.slow
@pytest.mark.oracle
def test_rows_are_ordered_by_a_curve_as_on_a_disk(
    spark: SparkSession, s3_server: s3.Server, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    for part in range(4):
        numbers = pa.array([(part + 1) * value * 37 % 1009 for value in range(2_000)])
        table = pa.table({"x": numbers, "y": pa.array([v * 17 % 251 for v in range(2_000)])})
        write_deltalake(path, table, mode="append")
    rows = delta_spark.rows(spark, path)
    uri = s3_server.upload(path, "ordered")
    chain = Chain.compacting_store(uri, tmp_path / "ws", s3_server.settings, zorder_by=["x", "y"])

    report, again = chain.compact(), chain.compact()

    assert report.error is None and report.done is not None and report.done.bins == 1
    assert delta_spark.rows(spark, s3_server.download("ordered", tmp_path / "after")) == rows
    assert again.planned.plan.bins == 0


@pytest.mark.slow
@pytest.mark.oracle
def test_deltalake_goes_on_after_a_rewrite(
    spark: SparkSession, s3_server: s3.Server, tmp_path: Path
) -> None:
    uri, options = f"s3://{s3.BUCKET}/goes-on", s3_server.deltalake
    for part in range(5):
        new = pa.table({"id": [part, part + 100], "p": ["a/b", "c d%"]})
        write_deltalake(uri, new, mode="append", partition_by=["p"], storage_options=options)
    before = DeltaTable(uri, storage_options=options).to_pyarrow_table().sort_by("id")
    chain = Chain.compacting_store(uri, tmp_path / "ws", s3_server.settings)

    report = chain.compact()

    assert report.error is None and report.done is not None
    assert (report.done.files_removed, report.done.files_added, report.done.versions) == (
        10,
        2,
        [5],
    )
    table = DeltaTable(uri, storage_options=options)
    assert table.to_pyarrow_table().sort_by("id") == before
    filtered = table.to_pyarrow_table(filters=[("p", "=", "c d%"), ("id", ">", 102)])
    assert sorted(filtered["id"].to_pylist()) == [103, 104]
    table.delete("id = 3")
    write_deltalake(uri, before.slice(0, 1), mode="append", storage_options=options)
    assert chain.compact().error is None
    after = DeltaTable(uri, storage_options=options).to_pyarrow_table()
    kept = {*before["id"].to_pylist()} - {3}
    assert sorted(after["id"].to_pylist()) == sorted([*kept, 0])


@pytest.fixture
def table(tmp_path: Path) -> TableBuilder:
    """A table with files to compact, all commits of which name no writer."""
    return TableBuilder(tmp_path / "t").create().add("a", "b", "c")


@pytest.mark.parametrize(
    ("engine", "found"),
    [
        ("Apache-Spark/4.2.0 Delta-Lake/4.4.0", "was written by Apache-Spark/4.2.0"),
        ("Kernel-4.0.0/flink", "was written by Kernel-4.0.0/flink"),
        ("delta-rs:py-1.1.4", "was written by delta-rs:py-1.1.4"),
        (None, "does not name its writer"),
    ],
)
def test_beside_a_writer_that_overwrites_commits_nothing_is_rewritten(
    spark: SparkSession,
    s3_server: s3.Server,
    tmp_path: Path,
    engine: str | None,
    found: str,
) -> None:
    path, prefix = tmp_path / "t", f"beside-{str(engine)[:5]}"
    for number in range(3):
        write_deltalake(path, pa.table({"id": [number]}), mode="append")
    (path / "_delta_log/00000000000000000003.json").write_text(
        json.dumps({"commitInfo": {"timestamp": 0} | ({"engineInfo": engine} if engine else {})})
    )
    uri = s3_server.upload(path, prefix)
    keys = s3_server.keys(prefix)
    chain = Chain.compacting_store(uri, tmp_path / "ws", s3_server.settings)

    with pytest.raises(GuardError, match=f"version 3 {found}.*set storage.commit to exclusive"):
        chain.compact()

    assert s3_server.keys(prefix) == keys
    allowed = Chain.compacting_store(uri, tmp_path / "ws2", exclusive(s3_server)).compact()
    assert allowed.done is not None and allowed.done.versions == [4]


@pytest.mark.parametrize("trace", [".tmp/00000000000000000001.json.4f", "_commit_82e2.json.tmp"])
def test_beside_a_writer_that_uses_dynamodb_nothing_is_rewritten(
    spark: SparkSession, s3_server: s3.Server, table: TableBuilder, tmp_path: Path, trace: str
) -> None:
    uri = s3_server.upload(table.path, f"dynamo{trace[:2]}")
    s3_server.put(f"dynamo{trace[:2]}/_delta_log/{trace}")
    keys = s3_server.keys(f"dynamo{trace[:2]}")

    with pytest.raises(GuardError, match="coordinates its commits by DynamoDB"):
        Chain.compacting_store(uri, tmp_path / "ws", exclusive(s3_server)).compact()

    assert s3_server.keys(f"dynamo{trace[:2]}") == keys


def test_a_store_that_ignores_conditions_gets_no_rewrite(
    spark: SparkSession,
    s3_server: s3.Server,
    table: TableBuilder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    uri = s3_server.upload(table.path, "ignores")
    keys = s3_server.keys("ignores")
    put = obstore.put
    monkeypatch.setattr(write.obstore, "put", lambda store, path, body, **_: put(store, path, body))

    with pytest.raises(GuardError, match="ignores the condition of a put-if-absent"):
        Chain.compacting_store(uri, tmp_path / "ws", exclusive(s3_server)).compact()

    assert s3_server.keys("ignores") == keys


def test_a_commit_that_another_writer_overwrites_is_told(
    spark: SparkSession,
    s3_server: s3.Server,
    table: TableBuilder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    uri = s3_server.upload(table.path, "overwritten")
    commit = execution.commit_rewrites
    body = json.dumps({"commitInfo": {"engineInfo": "Apache-Spark/4.2.0", "txnId": "theirs"}})

    def overwritten(*arguments: Any) -> Any:
        done = commit(*arguments)
        key = f"overwritten/_delta_log/{done.version:020}.json"
        s3_server.put(key, body=body.encode())
        return done

    monkeypatch.setattr(execution, "commit_rewrites", overwritten)
    chain = Chain.compacting_store(uri, tmp_path / "ws", exclusive(s3_server))

    report = chain.compact()

    assert isinstance(report.error, OverwrittenError)
    assert "version 2, which this run committed, was overwritten by another" in str(report.error)
    assert "Apache-Spark/4.2.0" in str(report.error)


def test_a_commit_of_ours_that_is_gone_was_cleaned_up(s3_server: s3.Server) -> None:
    overwriting.refuse_overwritten(s3_server.location("gone"), {7: "txn"})


def test_files_of_another_table_in_the_bucket_are_read_by_a_clone(
    spark: SparkSession, s3_server: s3.Server, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    for number in range(3):
        write_deltalake(source, pa.table({"id": [number]}), mode="append")
    s3_server.upload(source, "source")
    clone = tmp_path / "clone"
    shutil.copytree(source / "_delta_log", clone / "_delta_log")
    for commit in (clone / "_delta_log").glob("*.json"):
        where = f'"path":"s3a://{s3.BUCKET}/source/part'
        commit.write_text(commit.read_text().replace('"path":"part', where))
    uri = s3_server.upload(clone, "clone")
    keys = s3_server.keys("source")

    report = Chain.compacting_store(uri, tmp_path / "ws", s3_server.settings).compact()

    assert report.error is None and report.done is not None
    assert (report.done.files_removed, report.done.rows_added) == (3, 3)
    assert s3_server.keys("source") == keys


@pytest.mark.parametrize("text", [True, False])
def test_an_input_takes_at_most_two_requests(
    spark: SparkSession, s3_server: s3.Server, tmp_path: Path, text: bool
) -> None:
    """One for the footer, where dictionaries may pass through, and one for all the rest."""
    path, inputs = tmp_path / "t", 40
    values = ["a", "b"] if text else [1.5, 2.5]
    for _ in range(inputs):
        write_deltalake(path, pa.table({"x": values}), mode="append")
    table = s3_server.upload(path, f"requests-{text}")
    with s3_server.proxied() as proxy:
        settings = s3_server.settings.model_copy(update={"endpoint": proxy.endpoint})
        chain = Chain.compacting_store(table, tmp_path / "ws", settings, verify_rows="off")
        planned = plan_compaction(chain.launcher, chain.table)
        before = proxy.requests.copy()

        done = execute_compaction(chain.launcher, chain.table, planned, by="a test")

        assert done.error is None and done.done is not None
        assert done.done.files_removed == inputs
        targets = proxy.targets[sum(before.values()) :]
    files = Counter(target for target in targets if "/part-" in target and "GET " in target)
    assert len(files) == inputs
    assert max(files.values()) <= (2 if text else 1)
    assert sum("_delta_log" not in target for target in targets) <= sum(files.values()) + 8
