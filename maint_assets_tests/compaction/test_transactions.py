"""A writer's transactions (``txn``) are kept after a rewrite, its checkpoint, and a cleanup.

A job that is run again writes nothing twice.
"""

from pathlib import Path
from typing import Any

import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql import SparkSession

from maint_assets_tests.compaction.conftest import Compacting
from maint_assets_tests.oracles import delta_spark
from maint_assets_tests.support.builder import DAY_MS
from maint_assets_tests.support.chain import Chain, set_clock
from maint_assets_tests.support.rewriting import of_kind

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

PROPERTIES = "'delta.checkpointInterval' = '6', 'delta.checkpointPolicy' = '{}'"


def written(spark: SparkSession, path: Path, batch: int) -> None:
    """Write a numbered batch of a delta-spark job: once, however often it runs."""
    rows = spark.sql(f"SELECT {batch}L AS id, 'job' AS who").coalesce(1).write.format("delta")
    writer = rows.mode("append").option("txnAppId", "job").option("txnVersion", str(batch))
    delta_spark.forget(spark)
    writer.save(str(path))


def streamed(spark: SparkSession, source: Path, path: Path) -> Path:
    """Stream the new rows of a source into the table; returns the stream's checkpoint directory."""
    delta_spark.forget(spark)
    state = path.with_name("state")
    rows = spark.readStream.format("delta").load(str(source))
    sink = rows.writeStream.format("delta").option("checkpointLocation", str(state))
    sink.trigger(availableNow=True).start(str(path)).awaitTermination()
    return state


def forgotten(state: Path) -> None:
    """Reset a stream to before its last batch, as a kill between both commits does."""
    last = max(state.glob("commits/[0-9]*"), key=lambda file: int(file.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


def cleaned(path: Path, workspace: Path, now_ms: int) -> Any:
    """Clean up the log two months later."""
    chain = Chain.cleaning(
        path, workspace, retention="26 days", allow_short_retention=True, allow_clock_skew=True
    )
    set_clock(chain, now_ms + 60 * DAY_MS)
    try:
        return chain.clean()
    finally:
        chain.launcher.instance.dispose()


@pytest.mark.parametrize("policy", ["classic", pytest.param("v2", marks=pytest.mark.long)])
def test_a_job_that_runs_again_writes_nothing_twice(
    policy: str, spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    path, source, t = tmp_path / "t", tmp_path / "source", delta_spark.table(tmp_path / "t")
    spark.sql(
        f"CREATE TABLE {t} (id BIGINT, who STRING) USING delta "
        f"TBLPROPERTIES ({PROPERTIES.format(policy)})"
    )
    for batch in (1, 2):
        written(spark, path, batch)
    spark.sql("SELECT 50L AS id, 'stream' AS who").write.format("delta").save(str(source))
    state = streamed(spark, source, path)
    properties = CommitProperties(app_transactions=[Transaction("rs", 4, 12345)])
    if policy == "classic":
        write_deltalake(
            path, DeltaTable(path).to_pyarrow_table().slice(0, 0),
            mode="append", commit_properties=properties,
        )  # fmt: skip
    else:
        written(spark, path, 3)
    written(spark, path, 4)
    rows, apps = delta_spark.rows(spark, path), known(spark, path)

    done = compacting(path).compact().done

    assert done is not None and (done.versions, done.checkpoint_version) == ([6], 6)
    assert of_kind(path, 6, "txn") == []
    log = path / "_delta_log"
    report = cleaned(
        path, tmp_path / "ws", max(f.stat().st_mtime_ns for f in log.iterdir()) // 10**6
    )
    assert report.error is None
    assert sorted(file.name for file in log.glob("*.json") if len(file.stem) == 20) == [
        f"{6:020}.json"
    ], "else this shows nothing"
    assert known(spark, path) == apps and apps["job"][0] == 4
    if policy == "classic":
        assert DeltaTable(path).transaction_version("rs") == 4 and apps["rs"] == (4, 12345)
    forgotten(state)
    streamed(spark, source, path)
    for batch in (2, 4):
        written(spark, path, batch)
    assert delta_spark.rows(spark, path) == rows
    written(spark, path, 5)
    assert len(delta_spark.rows(spark, path)) == len(rows) + 1


def known(spark: SparkSession, path: Path) -> dict[str, tuple[int, int | None]]:
    """The last transaction of each application and its time, as Delta reads them."""
    found = delta_spark.snapshot(spark, path).setTransactions()
    every = [found.apply(at) for at in range(found.size())]
    return {
        each.appId(): (
            each.version(), each.lastUpdated().get() if each.lastUpdated().isDefined() else None
        )
        for each in every
    }  # fmt: skip
