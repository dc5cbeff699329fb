"""Execution of a plan: exactly as planned, each file recorded, what is kept stays readable."""

import json
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from maint_assets.assets.stages.log_cleanup import ExpiredLogsSummary
from maint_assets.datasets.columns import arrow_schema
from maint_assets.errors import (
    DeletionFailedError,
    GuardError,
    MaintError,
    RetentionError,
    StalePlanError,
    UnsupportedFeatureError,
)
from maint_assets.log_cleanup.deletion import delete_planned
from maint_assets.log_cleanup.expired_logs import EXPIRED_SCHEMA
from maint_assets.vacuum.handled import Handled, Mark
from maint_assets_tests.log_cleanup.conftest import CleaningOf
from maint_assets_tests.log_cleanup.logs import (
    NOW_MS,
    daily_log,
    locations_of,
    of_versions,
    plan_of,
    sidecar_log,
    single,
)
from maint_assets_tests.oracles import delta_rs, delta_spark
from maint_assets_tests.support.builder import TableBuilder
from maint_assets_tests.support.chain import change_plan, planned_rows, set_clock
from maint_assets_tests.support.edits import rewrite
from maint_assets_tests.support.log_builder import LogBuilder
from maint_assets_tests.support.mounts import read_only

DAY_MS = 86_400_000


def _names(builder: TableBuilder) -> set[str]:
    files = (path for path in builder.log.rglob("*") if path.is_file())
    return {str(path.relative_to(builder.log)) for path in files}


def test_exactly_the_plan_goes_and_all_that_is_kept_reads_as_before(
    spark: SparkSession, tmp_path: Path, cleaning_of: CleaningOf
):
    builder = daily_log(tmp_path, checkpoints=(5, 10, 18))
    before, rows = _names(builder), {v: delta_rs.rows(tmp_path, v) for v in range(10, 21)}
    chain = cleaning_of(tmp_path)

    report = chain.clean()

    gone = of_versions(*range(10)) | {single(5)}
    assert before - _names(builder) == gone
    assert {v: delta_rs.rows(tmp_path, v) for v in rows} == rows
    for version in (10, 11, 13, 20):
        assert delta_spark.rows(spark, tmp_path, version) == rows[version]
    assert {path: found[0] for path, found in chain.ledger(report).items()} == {
        f"_delta_log/{name}": "deleted" for name in gone
    }


@pytest.mark.parametrize(("handled", "is_reported"), [(4, True), (9, False)])
def test_our_own_vacuum_in_mode_lite_that_lags_behind_is_reported(
    tmp_path: Path, cleaning_of: CleaningOf, handled: int, is_reported: bool
):
    daily_log(tmp_path, checkpoints=(5, 10))
    chain = cleaning_of(tmp_path)
    plan = chain.plan_cleanup().planned.plan
    known = Handled(plan.table_id, handled, [Mark(plan.version, plan.commit_mark)])
    chain.launcher.store.write_handled("t", known)

    notes = chain.plan_cleanup().planned.notes

    expected = "maint_assets' VACUUM has handled version 4: run mode full once before mode lite"
    assert (expected in notes) is is_reported


def test_a_plan_whose_rows_were_changed_is_not_executed(tmp_path: Path, cleaning_of: CleaningOf):
    builder = daily_log(tmp_path, checkpoints=(5, 10))
    before = _names(builder)
    chain = cleaning_of(tmp_path)
    report = chain.plan_cleanup()
    planned = planned_rows(report.expired)
    change_plan(report.expired, planned.slice(1))

    with pytest.raises(StalePlanError, match="has changed since it was planned"):
        chain.clean(report)

    assert _names(builder) == before
    assert len(chain.ledger(chain.clean())) == planned.num_rows


def test_a_log_that_was_put_back_since_the_plan_is_left_alone(
    tmp_path: Path, cleaning_of: CleaningOf
):
    builder = daily_log(tmp_path, checkpoints=(5, 10))
    chain = cleaning_of(tmp_path)
    report = chain.plan_cleanup()
    version = report.planned.plan.version
    (builder.log / f"{version:020}.json").unlink()
    builder.commit([], version=version)
    before = _names(builder)

    with pytest.raises(StalePlanError, match="is not the commit that the plan is based on"):
        chain.clean(report)

    assert _names(builder) == before


def test_the_report_has_the_numbers(tmp_path: Path, cleaning_of: CleaningOf):
    daily_log(tmp_path, checkpoints=(5, 10))

    report = cleaning_of(tmp_path).clean().json(paths=True)

    assert report["planned"] == report["deleted"] == {"commit": 10, "checksum": 10, "checkpoint": 1}
    assert (report["failed"], report["missing"], report["skipped"]) == (0, 0, 0)
    assert (report["anchor_version"], report["stop_reason"]) == (10, None)
    assert (report["earliest_version_before"], report["earliest_version_after"]) == (0, 10)
    assert report["cutoff_ms"] == NOW_MS - NOW_MS % DAY_MS - 26 * DAY_MS
    assert len(report["paths"]) == 21
    assert set(report["seconds"]) == {"snapshot", "expired_logs", "deleted_logs"}


def test_a_log_is_planned_where_its_snapshot_was_taken(tmp_path: Path, cleaning_of: CleaningOf):
    """The location of the table in the config may change between the two stages."""
    daily_log(tmp_path / "a", checkpoints=(5,))
    daily_log(tmp_path / "b", checkpoints=(5, 10))
    chain = cleaning_of(tmp_path / "a")
    chain.launcher.plan(chain.table, "log_cleanup", ["snapshot"])
    moved = chain.table.model_copy(update={"uri": str(tmp_path / "b")})

    launched = chain.launcher.plan(moved, "log_cleanup", ["expired_logs"])

    summary = chain.launcher.dataset(moved, "expired_logs", launched).summary(ExpiredLogsSummary)
    assert (summary.plan.table, summary.plan.anchor_version) == (str(tmp_path / "a"), 5)


def test_a_second_run_finds_nothing(tmp_path: Path, cleaning_of: CleaningOf):
    daily_log(tmp_path, checkpoints=(5, 10))
    chain = cleaning_of(tmp_path)
    chain.clean()

    report = chain.clean().json()

    assert (report["stop_reason"], report["deleted"]) == ("nothing_to_delete", {})


def test_a_plan_deletes_nothing(tmp_path: Path, cleaning_of: CleaningOf):
    builder = daily_log(tmp_path, checkpoints=(5, 10))
    before = _names(builder)

    assert not cleaning_of(tmp_path).plan_cleanup().is_empty
    assert _names(builder) == before


def test_deltas_messages_are_logged(
    tmp_path: Path, cleaning_of: CleaningOf, caplog: pytest.LogCaptureFixture
):
    daily_log(tmp_path, checkpoints=(5, 10))
    caplog.set_level(logging.INFO, logger="maint_assets")

    cleaning_of(tmp_path).clean()

    older = "older than 27 Oct 2026 00:00:00 GMT"
    assert f"Starting the deletion of log files {older}" in caplog.messages
    assert f"Deleted 21 log files {older}" in caplog.messages


def test_files_that_changed_or_vanished_meanwhile_are_reported(
    tmp_path: Path, cleaning_of: CleaningOf
):
    builder = daily_log(tmp_path, checkpoints=(5, 10))
    chain = cleaning_of(tmp_path)
    report = chain.plan_cleanup()
    (builder.log / f"{3:020d}.crc").unlink()
    (builder.log / f"{4:020d}.crc").write_text("{}")

    done = chain.clean(report)

    found = done.json()
    assert done.error is None
    assert (found["missing"], found["skipped"], found["failed"]) == (1, 1, 0)
    outcome, error = chain.ledger(done)[f"_delta_log/{4:020d}.crc"]
    assert (outcome, error) == ("skipped", "changed since it was planned")


def test_what_is_left_is_what_is_there(tmp_path: Path, cleaning_of: CleaningOf):
    builder = daily_log(tmp_path, checkpoints=(5, 10), checksums=False)
    chain = cleaning_of(tmp_path)
    report = chain.plan_cleanup()
    for version in range(8):
        (builder.log / f"{version:020d}.json").unlink()

    done = chain.clean(report)

    left = [path.stat().st_size for path in builder.log.glob("0*")]
    found = done.json()
    assert (found["deleted"], found["missing"]) == ({"commit": 2, "checkpoint": 1}, 8)
    assert done.done and (done.done.log_files, done.done.log_bytes) == (len(left), sum(left))
    assert (found["log_files"], found["log_bytes"]) == (len(left), sum(left))


def _lose(builder: TableBuilder) -> None:
    (builder.log / single(10)).unlink()


def _damage(builder: TableBuilder) -> None:
    (builder.log / single(10)).write_bytes(b"PAR1")


def _lose_a_commit(builder: TableBuilder) -> None:
    (builder.log / f"{15:020d}.json").unlink()


def _replace(builder: TableBuilder) -> None:
    builder.commit([{"metaData": builder.metadata | {"id": "another"}}])


def _raise_retention(builder: TableBuilder) -> None:
    settings = {"delta.logRetentionDuration": "interval 90 days"}
    builder.commit([{"metaData": builder.metadata | {"configuration": settings}}])


def _disable(builder: TableBuilder) -> None:
    settings = {"delta.enableExpiredLogCleanup": "false"}
    builder.commit([{"metaData": builder.metadata | {"configuration": settings}}])


def _upgrade(builder: TableBuilder) -> None:
    protocol = builder.protocol | {"minReaderVersion": 1, "minWriterVersion": 7}
    builder.commit([{"protocol": protocol | {"writerFeatures": ["fromTheFuture"]}}])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (_lose, StalePlanError, "cannot begin with checkpoint 10: it is gone"),
        (_damage, StalePlanError, "cannot begin with checkpoint 10: checkpoint"),
        (_lose_a_commit, MaintError, "commit 00000000000000000015.json is missing"),
        (_replace, StalePlanError, "the table id is"),
        (_raise_retention, StalePlanError, "the table's retention was raised"),
        (_disable, StalePlanError, "log cleanup of the table was disabled"),
        (_upgrade, UnsupportedFeatureError, "fromTheFuture"),
    ],
)
def test_nothing_goes_when_the_table_is_another_one_than_was_planned_on(
    tmp_path: Path,
    cleaning_of: CleaningOf,
    change: Callable[[TableBuilder], None],
    error: type[MaintError],
    message: str,
):
    builder = daily_log(tmp_path, checkpoints=(5, 10))
    chain = cleaning_of(tmp_path, retention=None, now_ms=NOW_MS + 4 * DAY_MS)
    report = chain.plan_cleanup()
    change(builder.at(days_ago=0))
    before = _names(builder)

    with pytest.raises(error, match=re.escape(message)):
        chain.clean(report)

    assert _names(builder) == before
    assert len(report.json(paths=True)["paths"]) == 21


def test_an_old_plan_is_refused(tmp_path: Path, cleaning_of: CleaningOf):
    daily_log(tmp_path, checkpoints=(5, 10))
    chain = cleaning_of(tmp_path)
    report = chain.plan_cleanup()
    set_clock(chain, NOW_MS + DAY_MS + 1)

    with pytest.raises(StalePlanError, match="the plan is 1 day"):
        chain.clean(report)


def test_clocks_that_differ_are_refused(tmp_path: Path, cleaning_of: CleaningOf):
    builder = daily_log(tmp_path, checkpoints=(5, 10))
    before = _names(builder)

    with pytest.raises(GuardError, match="clock and this machine's differ"):
        cleaning_of(tmp_path, allow_clock_skew=False).clean()

    assert _names(builder) == before


def test_another_plan_than_the_approved_one_is_refused(tmp_path: Path, cleaning_of: CleaningOf):
    builder = daily_log(tmp_path, checkpoints=(5, 10))
    chain = cleaning_of(tmp_path)
    report = chain.plan_cleanup()
    (builder.log / f"{3:020d}.crc").unlink()
    chain.plan_cleanup()

    with pytest.raises(StalePlanError):
        chain.clean(report)


def test_a_new_checkpoint_that_names_a_planned_sidecar_keeps_it(
    tmp_path: Path, cleaning_of: CleaningOf
):
    builder = sidecar_log(tmp_path, 5, 10, 20, parts=1)
    chain = cleaning_of(tmp_path)
    report = chain.plan_cleanup()
    (old,) = builder.log.glob(f"{5:020d}.checkpoint.*.json")
    (new,) = builder.log.glob(f"{20:020d}.checkpoint.*.json")
    named = next(line for line in old.read_text().splitlines() if '"sidecar"' in line)
    rewrite(new, new.read_text() + named + "\n")

    done = chain.clean(report)

    sidecar = f"_delta_log/_sidecars/{json.loads(named)['sidecar']['path']}"
    assert chain.ledger(done)[sidecar] == ("skipped", "named by a checkpoint that stays")
    assert (tmp_path / sidecar).exists()


@pytest.mark.parametrize(
    ("kind", "version", "name"),
    [
        ("commit", 10, f"_delta_log/{10:020d}.json"),
        ("commit", 3, f"_delta_log/{13:020d}.json"),
        ("checkpoint", 10, f"_delta_log/{single(10)}"),
        ("commit", 3, "_delta_log/../part-00003.parquet"),
        ("temporary", None, "part-00003.parquet"),
        ("sidecar", None, "part-00003.parquet"),
        ("hadoop_checksum", 3, f"_delta_log/{13:020d}.crc"),
    ],
)
def test_what_no_plan_would_name_is_never_deleted(
    tmp_path: Path, kind: str, version: int | None, name: str
):
    path, ledger = tmp_path / "table", tmp_path / "ledger"
    daily_log(path, checkpoints=(5, 10))
    ledger.mkdir()
    at = (path / name).stat()
    size, modified_ms = at.st_size, at.st_mtime_ns // 1_000_000
    row = dict.fromkeys(EXPIRED_SCHEMA.names) | {"path": name, "kind": kind, "version": version}
    row |= {"size": size, "modified_ms": modified_ms, "reason": "none"}
    rows = pa.RecordBatch.from_pylist([row], arrow_schema(EXPIRED_SCHEMA))

    plan = plan_of(path, 1, anchor=10)
    done = delete_planned([rows], plan, locations_of(plan, ledger))

    assert done.outcomes == {kind: {"skipped": 1}}
    assert (path / name).exists()


def test_an_anchor_is_written_first_where_it_is_asked_for(
    spark: SparkSession, tmp_path: Path, cleaning_of: CleaningOf
):
    builder = daily_log(tmp_path, checkpoints=(18,))
    rows = {version: delta_rs.rows(tmp_path, version) for version in range(13, 21)}
    chain = cleaning_of(tmp_path, create_anchor_checkpoint=True)

    report = chain.clean().json()

    assert (report["anchor_version"], report["checkpoint_written"]) == (13, 13)
    assert (builder.log / single(13)).exists()
    assert not (builder.log / f"{12:020d}.json").exists()
    assert json.loads((builder.log / "_last_checkpoint").read_text())["version"] == 18
    assert {version: delta_rs.rows(tmp_path, version) for version in rows} == rows
    assert delta_spark.rows(spark, tmp_path, 13) == rows[13]


def test_an_anchor_that_is_written_keeps_what_newer_versions_still_show(
    spark: SparkSession, tmp_path: Path, cleaning_of: CleaningOf
):
    short, long = "interval 1 days", "interval 365 days"
    properties = ("delta.setTransactionRetentionDuration", "delta.deletedFileRetentionDuration")
    log = LogBuilder(tmp_path, now_ms=NOW_MS, configuration=dict.fromkeys(properties, short))
    log.commits([40, 39, 38])
    at_ms = log.ago_ms(37)
    stream = {"txn": {"appId": "stream", "version": 5, "lastUpdated": at_ms}}
    log.commit(stream, log.table.removed("1.parquet", at_ms), at_ms=at_ms)
    log.commits(range(36, 20, -1)).configure(dict.fromkeys(properties, long))
    before = _shown(spark, tmp_path)

    report = cleaning_of(tmp_path, create_anchor_checkpoint=True).clean().json()

    assert (report["checkpoint_written"], report["deleted"]) == (13, {"commit": 13})
    assert DeltaTable(tmp_path).transaction_version("stream") == 5
    assert _shown(spark, tmp_path) == before


def _shown(spark: SparkSession, path: Path) -> tuple[str, list[str]]:
    """The transactions and tombstones in Delta's newest version."""
    snapshot = delta_spark.log_at(
        spark, path, delta_spark.clock_at(spark, NOW_MS)
    ).unsafeVolatileSnapshot()
    tombstones = snapshot.tombstones().toJSON().collectAsList()
    return snapshot.transactions().toString(), [json.loads(row)["path"] for row in tombstones]


def test_no_anchor_is_written_of_a_version_that_readers_see_differently(
    tmp_path: Path, cleaning_of: CleaningOf
):
    log = LogBuilder(tmp_path, now_ms=NOW_MS).commits([40, 39, 38])
    at_ms = log.ago_ms(37)
    log.commit(
        log.table.removed("2.parquet", at_ms), {"add": log.table.live["2.parquet"]}, at_ms=at_ms
    )
    log.commits(range(36, 20, -1))
    before = _names(log.table)

    report = cleaning_of(tmp_path, create_anchor_checkpoint=True).clean().json()

    assert report["stop_reason"] == "no_checkpoint_before_cutoff"
    assert f"{3:020d}.json both adds and removes 2.parquet" in report["notes"][0]

    assert _names(log.table) == before


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"retention": "-1 days"}, "can't be less than 0"),
        ({"retention": "29 days", "allow_short_retention": False}, "below the table's log ret"),
    ],
)
def test_a_retention_that_is_too_short_is_refused(
    tmp_path: Path, cleaning_of: CleaningOf, asked: dict[str, Any], message: str
):
    daily_log(tmp_path, checkpoints=(5, 10))

    with pytest.raises(RetentionError, match=message):
        cleaning_of(tmp_path, **asked).plan_cleanup()


def test_versions_are_kept_as_long_as_their_removed_files(tmp_path: Path, cleaning_of: CleaningOf):
    settings = {
        "delta.logRetentionDuration": "interval 1 day",
        "delta.deletedFileRetentionDuration": "interval 26 days",
    }
    daily_log(tmp_path, checkpoints=(5, 10, 18), configuration=settings)
    asked = {"retention": None, "allow_short_retention": False}

    report = cleaning_of(tmp_path, **asked).plan_cleanup().json()

    assert report["anchor_version"] == 10
    assert "26 days" in report["notes"][0]


def test_unknown_features_are_refused_by_name(tmp_path: Path, cleaning_of: CleaningOf):
    builder = daily_log(tmp_path, checkpoints=(5, 10))
    _upgrade(builder)

    with pytest.raises(UnsupportedFeatureError, match="fromTheFuture"):
        cleaning_of(tmp_path).plan_cleanup()


@pytest.mark.parametrize("feature", ["catalogManaged", "catalogOwned-preview"])
def test_a_table_of_a_catalog_is_left_to_it(tmp_path: Path, cleaning_of: CleaningOf, feature: str):
    daily_log(tmp_path, checkpoints=(5, 10), features=("inCommitTimestamp", feature))

    with pytest.raises(UnsupportedFeatureError, match="the catalog owns the commits"):
        cleaning_of(tmp_path).plan_cleanup()


@pytest.mark.slow
def test_what_cannot_be_deleted_fails_the_run_and_the_next_one_ends_it(
    tmp_path: Path, cleaning_of: CleaningOf
):
    builder = sidecar_log(tmp_path, 5, 10)
    chain = cleaning_of(tmp_path)

    with read_only(builder.log / "_sidecars"):
        done = chain.clean()

    assert isinstance(done.error, DeletionFailedError)
    assert (done.json()["failed"], done.json()["deleted"]["commit"]) == (2, 10)
    assert chain.clean().json()["deleted"] == {"sidecar": 2}


def test_an_executed_plan_is_refused_when_it_is_approved_again_and_nothing_is_written(
    tmp_path: Path, cleaning_of: CleaningOf
):
    builder = daily_log(tmp_path, checkpoints=(5, 10))
    chain = cleaning_of(tmp_path)
    report = chain.clean()
    run_id = chain.launcher.instance.get_runs(limit=1)[0].run_id
    builder.write_log(f"{2:020d}.crc", "{}").age(f"_delta_log/{2:020d}.crc", 40)
    before = _names(builder)

    with pytest.raises(StalePlanError, match=f"was executed by run {run_id} at 20"):
        chain.clean(report)

    assert _names(builder) == before
    refused = chain.launcher.instance.get_runs(limit=1)[0].run_id
    written = chain.launcher.store.dataset("t", "deleted_logs", refused)
    assert not Path(written.location.path).exists()


@pytest.mark.slow
def test_a_plan_whose_execution_failed_may_be_executed_again(
    tmp_path: Path, cleaning_of: CleaningOf
):
    builder = sidecar_log(tmp_path, 5, 10)
    chain = cleaning_of(tmp_path)
    report = chain.plan_cleanup()
    with read_only(builder.log / "_sidecars"):
        assert isinstance(chain.clean(report).error, DeletionFailedError)

    again = chain.clean(report)

    assert again.error is None
    assert again.json()["deleted"] == {"sidecar": 2}
    with pytest.raises(StalePlanError, match="was executed by run"):
        chain.clean(report)


def test_a_directory_in_the_place_of_a_file_is_left(tmp_path: Path, cleaning_of: CleaningOf):
    builder = daily_log(tmp_path, checkpoints=(5, 10))
    chain = cleaning_of(tmp_path)
    report = chain.plan_cleanup()
    (builder.log / f"{3:020d}.json").unlink()
    (builder.log / f"{3:020d}.json").mkdir()

    done = chain.clean(report)

    assert "is a directory, a device or a dangling link, not a commit file" in str(done.error)
    assert chain.ledger(done)[f"_delta_log/{3:020d}.json"][0] == "skipped"
