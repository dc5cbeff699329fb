"""Log cleanup of tables on a real S3 server, with the plans of local logs."""

from pathlib import Path
from typing import Any

import obstore
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from maint_assets.datasets.ledger import DeletionLocations, tally
from maint_assets.log_cleanup.commit_times import InCommitTimes
from maint_assets.log_cleanup.deletion import Cleaned, delete_planned
from maint_assets.log_cleanup.expired_logs import expired_logs
from maint_assets.log_cleanup.plan import LogCleanupPlan, Terms
from maint_assets.snapshot.commits import commit_mark
from maint_assets.snapshot.head import table_head
from maint_assets.storage import object_writes
from maint_assets.storage.location import Location
from maint_assets_tests.support import s3
from maint_assets_tests.support.builder import DAY_MS
from maint_assets_tests.support.chain import Chain, set_clock
from maint_assets_tests.support.faulty import FaultyDelete
from maint_assets_tests.support.log_builder import IN_COMMIT_TIMESTAMPS, LogBuilder

NOON_MS = 1_800_014_400_000
KINDS = {"classic": 1, "v2-json": 2, "v2-parquet": 2}


def log_of(path: Path, kind: str = "classic") -> LogBuilder:
    """Fifteen daily commits with in-commit timestamps, since a store sets the times of objects."""
    features = ["v2Checkpoint", "inCommitTimestamp"]
    log = LogBuilder(path, now_ms=NOON_MS, features=features, configuration=IN_COMMIT_TIMESTAMPS)
    log.commits(range(40, 25, -1), checksums=True)
    for version in (4, 8, 12):
        log.checkpoint(version, kind, parts=KINDS[kind])
    return log.compaction(2, 5).hint()


def terms(*, days: float = 30, **asked: Any) -> Terms:
    return Terms(
        planned_ms=NOON_MS,
        retention_ms=int(days * DAY_MS),
        table_retention_ms=0,
        has_sidecars=True,
        in_commit=InCommitTimes(0, None),
        **asked,
    )


def executed(location: Location, ledger: Path) -> Cleaned:
    """Plan and execute in this process, without Dagster and Spark."""
    rows, found = expired_logs(location, terms())
    head = table_head(location)
    plan = LogCleanupPlan(
        table=location.uri, table_id=head.metadata.id, version=head.version, mode="protocol",
        cutoff_ms=0, retention_ms=0, table_retention_ms=0, planned_ms=NOON_MS, digest="",
        files=rows.num_rows, bytes=0, anchor_version=found.anchor_version, creates_anchor=False,
        stop_reason=None, earliest_version_before=0, earliest_version_after=found.anchor_version,
        commit_mark=commit_mark(location, head.version),
    )  # fmt: skip
    places = DeletionLocations(location, Location.of(str(ledger)))
    return delete_planned(rows.combine_chunks().to_batches(), plan, places)


@pytest.mark.parametrize("kind", KINDS)
def test_a_log_is_cleaned_as_on_a_disk(kind: str, s3_server: s3.Server, tmp_path: Path) -> None:
    log, prefix = log_of(tmp_path / "t", kind), f"log-{kind}"
    uri = s3_server.upload(log.path, prefix)
    location, keys = s3_server.location(prefix), s3_server.keys(prefix)
    rows, found = expired_logs(Location.of(str(log.path)), terms())

    there, findings = expired_logs(location, terms())
    done = executed(location, tmp_path / "ledger")

    assert there["path"].to_pylist() == rows["path"].to_pylist() != []
    assert (findings.anchor_version, findings.ending) == (8, found.ending)
    assert keys - s3_server.keys(prefix) == set(rows["path"].to_pylist())
    assert (done.count("deleted"), done.earliest_version) == (rows.num_rows, 8)
    assert tally(Location.of(str(tmp_path / "ledger"))).files == {"deleted": rows.num_rows}
    for version in range(8, 15) if kind != "v2-parquet" else ():  # deltalake reads no such top file
        table = DeltaTable(uri, version=version, storage_options=s3_server.deltalake)
        assert len(table.file_uris()) == version


def test_a_commit_within_a_second_of_the_cutoff_is_kept_on_a_store(tmp_path: Path) -> None:
    """Times of objects are cut to seconds: the commit may be as young as the second's end."""
    local = Location.of(str(log_of(tmp_path / "t").path))
    slack_ms = Location("s3://bucket/t").time_slack_ms

    found = [
        expired_logs(local, terms(granularity="minute", time_slack_ms=slack))[1].cutoff_version
        for slack in (local.time_slack_ms, slack_ms)
    ]

    assert found == [10, 9]


def test_checkpoints_go_before_commits_and_the_newest_first(
    s3_server: s3.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3_server.upload(log_of(tmp_path / "t").path, "order")
    delete, requests = obstore.delete, list[list[str]]()

    def recorded(store: Any, paths: list[str]) -> None:
        requests.append(paths)
        delete(store, paths)

    monkeypatch.setattr(object_writes.obstore, "delete", recorded)

    executed(s3_server.location("order"), tmp_path / "ledger")

    names = [sorted(path.rpartition("/")[2] for path in paths) for paths in requests]
    commits = [f"{version:020}.json" for version in range(8)]
    assert names == [
        [f"{2:020}.{5:020}.compacted.json"],
        [f"{4:020}.checkpoint.parquet"],
        commits,
        [f"{version:020}.crc" for version in range(8)],
    ]


def test_a_commit_that_is_locked_keeps_what_comes_after_commits(
    s3_server: s3.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3_server.upload(log_of(tmp_path / "t").path, "locked")
    keys = s3_server.keys("locked")
    held = f"_delta_log/{3:020}.json"
    FaultyDelete(monkeypatch, locked=[held])

    done = executed(s3_server.location("locked"), tmp_path / "ledger")

    assert done.outcomes["commit"] == {"deleted": 7, "failed": 1}
    assert done.outcomes["checksum"] == {"skipped": 8}
    gone = keys - s3_server.keys("locked")
    assert held not in gone
    assert not any(key.endswith(".crc") for key in gone)


@pytest.mark.jvm
def test_the_chain_cleans_a_log_and_writes_the_anchor_that_it_needs(
    spark: SparkSession, s3_server: s3.Server, tmp_path: Path
) -> None:
    features = ["v2Checkpoint", "inCommitTimestamp"]
    log = LogBuilder(
        tmp_path / "t", now_ms=NOON_MS, features=features, configuration=IN_COMMIT_TIMESTAMPS
    ).commits(range(40, 25, -1))
    uri = s3_server.upload(log.path, "chain")
    keys = s3_server.keys("chain")
    asked = {"retention": "30 days", "allow_short_retention": True, "allow_clock_skew": True}
    settings = asked | {"create_anchor_checkpoint": True}
    chain = Chain.cleaning_store(uri, tmp_path / "ws", s3_server.settings, **settings)
    set_clock(chain, NOON_MS)

    report = chain.clean()

    assert report.error is None and report.done is not None
    gone = {f"_delta_log/{version:020}.json" for version in range(9)}
    assert keys - s3_server.keys("chain") == gone
    assert set(chain.ledger(report)) == gone
    assert f"_delta_log/{9:020}.checkpoint.parquet" in s3_server.keys("chain")
    table = DeltaTable(uri, storage_options=s3_server.deltalake)
    assert (table.version(), len(table.file_uris())) == (14, 14)
