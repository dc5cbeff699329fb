"""Checkpoints of tables on a real S3 server, as other engines read them."""

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from maint_assets.commit.checkpoint.writer import WrittenCheckpoint, write_checkpoint
from maint_assets.errors import CommitError
from maint_assets.snapshot.head import table_head
from maint_assets_tests.oracles import delta_spark
from maint_assets_tests.support import s3
from maint_assets_tests.support.builder import TableBuilder
from maint_assets_tests.support.faulty import LostAnswer

pytestmark = [pytest.mark.jvm]

V2: dict[str, Any] = {
    "features": ["v2Checkpoint"],
    "configuration": {"delta.checkpointPolicy": "v2"},
}


def written(
    spark: SparkSession, server: s3.Server, prefix: str, scratch: Path
) -> WrittenCheckpoint:
    head = table_head(server.location(prefix))
    return write_checkpoint(spark, head, parallelism=2, scratch=str(scratch), now_ms=None)


@pytest.mark.parametrize("policy", ["classic", "v2"])
def test_a_checkpoint_alone_gives_readers_the_table(
    spark: SparkSession, s3_server: s3.Server, tmp_path: Path, policy: str
) -> None:
    table = TableBuilder(tmp_path / "t").create(**(V2 if policy == "v2" else {}))
    table.add("a", "b", "c").remove("b").add("d")
    rows, prefix = delta_spark.rows(spark, table.path), f"checkpoint-{policy}"
    uri = s3_server.upload(table.path, prefix)

    done = written(spark, s3_server, prefix, tmp_path / "scratch")
    again = written(spark, s3_server, prefix, tmp_path / "scratch")

    assert (done.version, done.made, done.adds, done.tombstones) == (3, True, 3, 1)
    assert (done.hint_moved, again.made) == (True, False)
    hint = json.loads(s3_server.get(f"{prefix}/_delta_log/_last_checkpoint"))
    assert (hint["version"], hint["sizeInBytes"]) == (3, done.size)
    copy = s3_server.download(prefix, tmp_path / "after")
    for version in range(3):
        (copy / f"_delta_log/{version:020}.json").unlink()
    assert delta_spark.rows(spark, copy) == rows
    files = DeltaTable(uri, storage_options=s3_server.deltalake).file_uris()
    assert sorted(file.rpartition("/")[2] for file in files) == ["a", "c", "d"]


def test_a_lost_response_is_no_other_writer(
    spark: SparkSession, s3_server: s3.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = TableBuilder(tmp_path / "t").create().add("a")
    s3_server.upload(table.path, "lost-response")
    LostAnswer(monkeypatch)

    done = written(spark, s3_server, "lost-response", tmp_path / "scratch")

    assert (done.made, done.hint_moved) == (True, True)


def test_a_damaged_checkpoint_that_is_there_is_not_replaced(
    spark: SparkSession, s3_server: s3.Server, tmp_path: Path
) -> None:
    table = TableBuilder(tmp_path / "t").create().add("a")
    s3_server.upload(table.path, "damaged")
    key = f"damaged/_delta_log/{1:020}.checkpoint.parquet"
    s3_server.put(key, body=b"damaged")

    with pytest.raises(CommitError, match="exists already and cannot be read"):
        written(spark, s3_server, "damaged", tmp_path / "scratch")

    assert s3_server.get(key) == b"damaged"
