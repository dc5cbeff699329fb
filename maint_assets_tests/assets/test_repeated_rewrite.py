"""A rewrite that Dagster retries within its run, after its commit: nothing is lost or left over."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from maint_assets.assets.factory import RESOURCE, build_maintenance_assets
from maint_assets.assets.jobs import executed_keys, stage_store
from maint_assets.compaction import execution
from maint_assets.config import CompactionSettings, Maintenance, TableSettings
from maint_assets_tests.oracles import delta_spark
from maint_assets_tests.support.builder import TableBuilder


@pytest.mark.parametrize("fails", ["before its commit", "after its commit"])
def test_it_rewrites_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    path = tmp_path / "t"
    built = TableBuilder(path).at(days_ago=3).create(partition_columns=["p"])
    for number in range(3):
        built.add(f"a{number}", partition={"p": "1"}).add(f"b{number}", partition={"p": "2"})
    before = delta_spark.rows(spark, path)
    table = TableSettings(name="t", uri=str(path), compaction=CompactionSettings(approval="auto"))
    settings = Maintenance(workspace=str(tmp_path / "ws"), tables=(table,))
    commit, calls = execution.commit_rewrites, list[str]()

    def committing(*args: Any, **kwargs: Any) -> Any:
        calls.append("commit")
        if len(calls) > 1:
            return commit(*args, **kwargs)
        if fails.startswith("after"):
            commit(*args, **kwargs)
        raise RuntimeError("the network had a hiccup")

    monkeypatch.setattr(execution, "commit_rewrites", committing)
    job = dg.define_asset_job(
        "job",
        dg.AssetSelection.assets(*executed_keys(table, settings.key_prefix)),
        op_retry_policy=dg.RetryPolicy(max_retries=1),
    )
    definitions = dg.Definitions(
        build_maintenance_assets(table, retries=None),
        jobs=[job],
        resources={RESOURCE: stage_store(settings)},
    )
    with dg.DagsterInstance.ephemeral() as instance:
        run = definitions.resolve_job_def("job").execute_in_process(
            instance=instance, raise_on_error=False
        )

    assert (run.success, calls) == (True, ["commit", "commit"])
    assert DeltaTable(path).version() == built.version + 1
    assert delta_spark.rows(spark, path) == before
    left = {file.name for file in path.rglob("part-*.parquet")}
    live = {Path(file).name for file in DeltaTable(path).file_uris()}
    assert len(live) == 2
    # What an attempt wrote whose commit is not known is left to VACUUM.
    assert len(left - live) == (2 if fails.startswith("before") else 0)
