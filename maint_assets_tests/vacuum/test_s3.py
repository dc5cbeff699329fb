"""VACUUM of tables on a real S3 server, with the plans and outcomes of local tables."""

import json
import logging
import os
import shutil
import time
from pathlib import Path
from typing import Any, ClassVar

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from pyspark.sql import SparkSession

from maint_assets.errors import GuardError
from maint_assets.storage import write
from maint_assets_tests.support import s3
from maint_assets_tests.support.builder import DAY_MS, TableBuilder
from maint_assets_tests.support.chain import Chain, files, set_clock
from maint_assets_tests.vacuum import test_stories
from maint_assets_tests.vacuum.planning import planned

logger = logging.getLogger(__name__)

ALL = {"retention": "0 hours", "allow_short_retention": True, "allow_clock_skew": True}


def now_ms() -> int:
    return int(time.time() * 1_000)  # noqa: TID251


def later(chain: Chain) -> Chain:
    """The chain in an hour: all files are older than a retention of nothing then."""
    set_clock(chain, now_ms() + DAY_MS // 24)
    return chain


class StoryOnS3(test_stories.Story):
    """A story that ends with a copy of the table on S3, where all files are as old."""

    server: ClassVar[s3.Server]

    def teardown(self) -> None:
        """Compare the plans of the table and of its copy; execute that of the copy."""
        try:
            mine, prefix = self.path / "t", self.path.name
            keys = test_stories.files_of(mine)
            uri = self.server.upload(mine, prefix)
            for file in mine.rglob("*"):
                os.utime(file)
            cutoff_ms = now_ms() + 2_000
            local = planned(self.spark, mine, cutoff_ms=cutoff_ms)
            stored = planned(self.spark, self.server.location(prefix), cutoff_ms=cutoff_ms)
            assert (stored.files, stored.missing) == (local.files, set())
            assert stored.removed_in == {
                path: version for path, version in local.removed_in.items() if path in local.files
            } | {path: stored.removed_in[path] for path in stored.removed_in.keys() - local.files}
            assert stored.directories == set()
            chain = later(Chain.on_store(uri, self.path / "workspace", self.server.settings, **ALL))
            done = chain.vacuum()
            chain.launcher.instance.dispose()
            assert (done.error, files(done)) == (None, local.files)
            left = {key for key in self.server.keys(prefix) if not key.startswith("_delta_log/")}
            assert left == keys - local.files
            type(self).told += 1
        finally:
            shutil.rmtree(self.path)


@pytest.mark.slow
@pytest.mark.jvm
def test_random_stories_end_alike_on_s3(spark: SparkSession, s3_server: s3.Server) -> None:
    StoryOnS3.spark, StoryOnS3.server = spark, s3_server

    run_state_machine_as_test(
        StoryOnS3,
        settings=settings(
            max_examples=test_stories.STORIES,
            stateful_step_count=20,
            deadline=None,
            derandomize="STORIES" not in os.environ,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )

    assert StoryOnS3.told >= test_stories.STORIES


@pytest.fixture
def table(tmp_path: Path) -> TableBuilder:
    """A table with two live files, a removed one and one that no commit names."""
    made = TableBuilder(tmp_path / "t").at(days_ago=20).create(partition_columns=["p"])
    made.add("a", "b", "c", partition={"p": "1"}).remove("p=1/b").checkpoint()
    return made.stray("p=2/stray").stray("_hidden/x")


GONE = {"p=1/b", "p=2/stray"}


@pytest.mark.jvm
@pytest.mark.parametrize("commit", [None, "conditional", "exclusive"])
def test_a_vacuum_is_recorded_in_the_log_only_if_nobody_overwrites_commits(
    spark: SparkSession, s3_server: s3.Server, table: TableBuilder, tmp_path: Path, commit: Any
) -> None:
    prefix = f"recorded-{commit}"
    uri = s3_server.upload(table.path, prefix)
    keys = s3_server.keys(prefix)
    storage = s3_server.settings.model_copy(update={"commit": commit})
    chain = later(Chain.on_store(uri, tmp_path / "ws", storage, **ALL))

    done = chain.vacuum()

    assert done.error is None and done.done is not None
    assert chain.ledger(done) == dict.fromkeys(GONE, ("deleted", None))
    records = {f"_delta_log/{version:020}.json" for version in (3, 4)} if commit else set[str]()
    assert s3_server.keys(prefix) == keys - GONE | records
    told = [json.loads(s3_server.get(f"{prefix}/{key}")) for key in sorted(records)]
    operations = [each["commitInfo"]["operation"] for each in told]
    assert operations == (["VACUUM START", "VACUUM END"] if commit else [])


@pytest.mark.jvm
def test_a_store_that_ignores_conditions_gets_no_commit(
    spark: SparkSession,
    s3_server: s3.Server,
    table: TableBuilder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    uri = s3_server.upload(table.path, "ignoring")
    keys = s3_server.keys("ignoring")
    storage = s3_server.settings.model_copy(update={"commit": "conditional"})
    put = obstore.put
    monkeypatch.setattr(write.obstore, "put", lambda store, path, body, **_: put(store, path, body))

    with pytest.raises(GuardError, match="ignores the condition of a put-if-absent"):
        later(Chain.on_store(uri, tmp_path / "ws", storage, **ALL)).vacuum()

    assert s3_server.keys("ignoring") == keys


@pytest.mark.jvm
def test_lite_takes_what_the_log_removed(
    spark: SparkSession, s3_server: s3.Server, table: TableBuilder, tmp_path: Path
) -> None:
    uri = s3_server.upload(table.path, "lite")
    chain = later(Chain.on_store(uri, tmp_path / "ws", s3_server.settings, mode="lite", **ALL))

    report = chain.vacuum()

    assert (report.error, files(report)) == (None, {"p=1/b"})
    assert "p=1/b" not in s3_server.keys("lite")


@pytest.mark.jvm
@pytest.mark.parametrize("name", ["b", "other"])
def test_live_files_elsewhere_keep_planned_files_of_their_name_only(
    spark: SparkSession, s3_server: s3.Server, table: TableBuilder, tmp_path: Path, name: str
) -> None:
    """A shallow clone is vacuumed; a table that was copied, with absolute paths, is refused."""
    add = {"path": f"s3a://{s3.BUCKET}/elsewhere/p=1/{name}", "partitionValues": {"p": "1"}}
    table.commit([{"add": add | {"size": 1, "modificationTime": 0, "dataChange": True}}])
    uri = s3_server.upload(table.path, f"clone-{name}")
    chain = later(Chain.on_store(uri, tmp_path / "ws", s3_server.settings, **ALL))

    report = chain.plan()

    if name == "b":
        with pytest.raises(GuardError, match="the log names by another path"):
            chain.execute(report)
    else:
        assert files(chain.execute(report)) == GONE


@pytest.mark.jvm
def test_an_inventory_is_deleted_from_s3(
    spark: SparkSession, s3_server: s3.Server, table: TableBuilder, tmp_path: Path
) -> None:
    uri = s3_server.upload(table.path, "inventory")
    old = [(f"{uri}/{key}".replace("s3:", "s3a:"), 5, False, 0) for key in ("p=1/a", *sorted(GONE))]
    names = ["path", "length", "isDir", "modificationTime"]
    rows = pa.table(dict(zip(names, map(list, zip(*old, strict=True)), strict=True)))
    pq.write_table(rows, tmp_path / "inventory.parquet")
    asked = ALL | {"mode": "inventory", "inventory": str(tmp_path / "inventory.parquet")}

    report = later(Chain.on_store(uri, tmp_path / "ws", s3_server.settings, **asked)).plan()

    assert files(report) == GONE


@pytest.mark.jvm
def test_a_lost_live_file_is_told_and_nothing_is_deleted(
    spark: SparkSession, s3_server: s3.Server, table: TableBuilder, tmp_path: Path
) -> None:
    uri = s3_server.upload(table.path, "lost")
    obstore.delete(s3_server.store(), "lost/p=1/c")
    keys = s3_server.keys("lost")

    with pytest.raises(GuardError, match="1 active files were not found, p=1/c among them"):
        later(Chain.on_store(uri, tmp_path / "ws", s3_server.settings, **ALL)).vacuum()

    assert s3_server.keys("lost") == keys


@pytest.mark.jvm
def test_objects_written_since_the_plan_are_kept(
    spark: SparkSession, s3_server: s3.Server, table: TableBuilder, tmp_path: Path
) -> None:
    uri = s3_server.upload(table.path, "newer")
    chain = later(Chain.on_store(uri, tmp_path / "ws", s3_server.settings, **ALL))
    report = chain.plan()
    s3_server.put("newer/p=2/stray", body=b"longer than before")
    add = {"path": "p=1/b", "partitionValues": {"p": "1"}, "size": 1, "modificationTime": 0}
    body = json.dumps({"add": add | {"dataChange": True}}).encode()
    s3_server.put("newer/_delta_log/00000000000000000003.json", body=body)

    done = chain.execute(report)

    assert done.error is None
    assert chain.ledger(done) == {
        "p=1/b": ("skipped", "named by a commit newer than the plan"),
        "p=2/stray": ("skipped", "changed since it was planned"),
    }


@pytest.mark.jvm
def test_no_secret_is_written_anywhere(
    spark: SparkSession, s3_server: s3.Server, table: TableBuilder, tmp_path: Path
) -> None:
    uri = s3_server.upload(table.path, "secrets")
    secret = s3_server.environment["AWS_SECRET_ACCESS_KEY"].encode()

    chain = later(Chain.on_store(uri, tmp_path / "ws", s3_server.settings, **ALL))
    report = chain.vacuum()

    assert report.error is None
    written = [file.read_bytes() for file in (tmp_path / "ws").rglob("*") if file.is_file()]
    assert len(written) > 5
    assert not any(secret in each for each in written)
    assert secret.decode() not in json.dumps(report.json(paths=True))


@pytest.mark.jvm
def test_a_plan_takes_few_requests(
    spark: SparkSession, s3_server: s3.Server, table: TableBuilder, tmp_path: Path
) -> None:
    uri = s3_server.upload(table.path, "requests")
    with s3_server.proxied() as proxy:
        storage = s3_server.settings.model_copy(update={"endpoint": proxy.endpoint})

        later(Chain.on_store(uri, tmp_path / "ws", storage, **ALL)).plan()

        assert sum(proxy.requests.values()) <= 12, proxy.targets
