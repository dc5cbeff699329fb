"""Whole cleanups of logs with a history: what is kept reads as before, by every reader.

In-commit timestamps enabled midway, protected checkpoints, staged commits, VACUUM LITE afterwards.
"""

import os
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from maint_assets.delta.names import commit_name
from maint_assets.errors import LogTooShortError, StalePlanError
from maint_assets_tests.log_cleanup.conftest import CleaningOf
from maint_assets_tests.log_cleanup.logs import NOW_MS, daily_log, planned
from maint_assets_tests.oracles import delta_rs, delta_spark
from maint_assets_tests.oracles.delta_spark import table as quoted
from maint_assets_tests.support.builder import DAY_MS, TableBuilder
from maint_assets_tests.support.chain import Chain, files
from maint_assets_tests.support.log_builder import LogBuilder

CUTOFF_MS = (NOW_MS - 26 * DAY_MS) // DAY_MS * DAY_MS
"""At this cutoff, versions up to 13 of a daily log have expired."""


RARER = [
    (4, False), (4, True), (12, False), (12, True), (13, True), (14, False), (14, True), (17, True),
]  # fmt: skip


def _enabled_at(path: Path, version: int, *, young: bool = False) -> LogBuilder:
    """A commit at noon every day, with in-commit timestamps from ``version`` on.

    If ``young``, the commit files from then on have today's modification time.
    """
    log = LogBuilder(path, now_ms=NOW_MS, features=["inCommitTimestamp"])
    for number in range(21):
        at_ms = log.ago_ms(40 - number) + 2 * 3_600_000
        if number == version:
            log.enable_in_commit_timestamps(at_ms=at_ms)
        else:
            log.commit(at_ms=at_ms)
    log.checkpoint(5).checkpoint(10).checkpoint(18).hint()
    if young:
        log.touch(NOW_MS, *map(commit_name, range(version, 21)))
    return log


def _version_at(spark: SparkSession, path: Path, at_ms: int) -> int:
    """The version that delta-spark reads for a time: a version has as many rows as its number."""
    at = datetime.fromtimestamp(at_ms / 1000, timezone.utc)
    moment = at.strftime("%Y-%m-%d %H:%M:%S.%f UTC")
    delta_spark.forget(spark)
    query = f"SELECT count(*) FROM {quoted(path)} TIMESTAMP AS OF '{moment}'"
    return spark.sql(query).collect()[0][0]


@pytest.mark.parametrize(
    ("version", "young"),
    [(13, False), *(pytest.param(*each, marks=pytest.mark.long) for each in RARER)],
)
def test_times_since_the_cutoff_have_their_version_where_commits_tell_theirs_from_the_middle_on(
    spark: SparkSession, tmp_path: Path, cleaning_of: CleaningOf, version: int, young: bool
):
    log = _enabled_at(tmp_path, version, young=young)
    moments = [CUTOFF_MS, CUTOFF_MS + DAY_MS, CUTOFF_MS + 3 * DAY_MS + 1, NOW_MS - 20 * DAY_MS]
    before = [_version_at(spark, tmp_path, at_ms) for at_ms in moments]

    report = cleaning_of(tmp_path).clean()

    assert (report.planned.cutoff_version, report.planned.plan.anchor_version) == (13, 10)
    assert [_version_at(spark, tmp_path, at_ms) for at_ms in moments] == before
    assert [len(delta_rs.rows(tmp_path, v)) for v in range(10, 21)] == [*range(10, 21)]
    assert not (log.log / commit_name(9)).exists()


def test_a_plan_made_before_in_commit_timestamps_is_executed_as_it_is(
    tmp_path: Path, cleaning_of: CleaningOf
):
    log = LogBuilder(tmp_path, now_ms=NOW_MS, features=["inCommitTimestamp"])
    log.commits([40.0 - version for version in range(21)]).checkpoint(5).checkpoint(10).hint()
    chain = cleaning_of(tmp_path)
    report = chain.plan_cleanup()
    log.enable_in_commit_timestamps(at_ms=NOW_MS)

    done = chain.clean(report)

    assert done.done and done.done.earliest_version == 10
    assert planned(tmp_path)[1].stop_reason == "nothing_to_delete"


def _dropped_feature(spark: SparkSession, path: Path) -> int:
    """A table whose deletion vectors were dropped by delta-spark; returns the protected version."""
    statements = (
        "CREATE TABLE {t} (id BIGINT) USING delta TBLPROPERTIES "
        "('delta.enableDeletionVectors' = 'true', 'delta.checkpointInterval' = '1000')",
        "INSERT INTO {t} SELECT id FROM range(0, 10, 1, 1)",
        "DELETE FROM {t} WHERE id = 3",
        "ALTER TABLE {t} DROP FEATURE deletionVectors",
        "INSERT INTO {t} SELECT id FROM range(10, 12, 1, 1)",
        "DELETE FROM {t} WHERE id = 4",
    )
    for statement in statements:
        spark.sql(statement.format(t=quoted(path))).collect()
    found = spark.sql(f"SHOW TBLPROPERTIES {quoted(path)}").collect()
    properties = {row.key: row.value for row in found}
    return int(properties["delta.requireCheckpointProtectionBeforeVersion"])


def _aged(path: Path, *, newest: int, now_ms: int) -> None:
    """Make log files up to version ``newest`` 60 days old, and all others one hour."""
    for file in (path / "_delta_log").glob("*.*"):
        number = file.name.lstrip(".").partition(".")[0]
        if number.isdigit():
            ago_ms = 60 * DAY_MS if int(number) <= newest else 3_600_000
            os.utime(file, ns=((now_ms - ago_ms) * 1_000_000,) * 2)


@pytest.mark.long
def test_a_protected_log_by_delta_spark_loses_all_before_its_protection_or_what_is_known(
    spark: SparkSession, tmp_path: Path, cleaning_of: CleaningOf
):
    protected = _dropped_feature(spark, tmp_path)
    versions = sorted(int(p.stem) for p in (tmp_path / "_delta_log").glob("[0-9]*.json"))
    rows = {version: delta_spark.rows(spark, tmp_path, version) for version in versions}
    _aged(tmp_path, newest=versions[-2], now_ms=NOW_MS)
    chain = cleaning_of(tmp_path, retention="30 days")

    report = chain.clean()

    first = report.planned.plan.anchor_version
    assert first is not None and report.done is not None
    assert 0 < first <= protected
    kept = [version for version in versions if version >= first]
    assert {v: delta_spark.rows(spark, tmp_path, v) for v in kept} == {v: rows[v] for v in kept}
    assert chain.plan_cleanup().planned.plan.stop_reason is not None


def test_a_protection_that_came_after_the_plan_is_heeded(tmp_path: Path, cleaning_of: CleaningOf):
    builder = daily_log(tmp_path, checkpoints=(5, 10), features=("checkpointProtection",))
    chain = cleaning_of(tmp_path)
    report = chain.plan_cleanup()
    key = "delta.requireCheckpointProtectionBeforeVersion"
    builder.commit([{"metaData": builder.metadata | {"configuration": {key: "15"}}}])

    with pytest.raises(StalePlanError, match="protection of the table was raised since the plan"):
        chain.clean(report)

    assert (builder.log / commit_name(0)).exists()


def test_staged_commits_up_to_the_anchor_go_and_those_that_changed_stay(
    tmp_path: Path, cleaning_of: CleaningOf
):
    log = LogBuilder(tmp_path, now_ms=NOW_MS).commits([40.0 - version for version in range(21)])
    log.checkpoint(5).checkpoint(10).hint()
    names: dict[int, str] = {}
    for version in (3, 7, 10, 11, 21):
        names[version] = log.staged(version).written[0]
    chain = cleaning_of(tmp_path)
    report = chain.plan_cleanup()
    with (log.log / names[7]).open("a") as file:
        file.write("\n")

    done = chain.clean(report)

    outcomes = chain.ledger(done)
    found = {version: outcomes.get(f"_delta_log/{name}") for version, name in names.items()}
    assert found == {
        3: ("deleted", None), 7: ("skipped", "changed since it was planned"),
        10: ("deleted", None), 11: None, 21: None,
    }  # fmt: skip
    assert {file.name for file in (log.log / "_staged_commits").iterdir()} == {
        Path(names[version]).name for version in (7, 11, 21)
    }


def _vacuums(chain: Chain, path: Path, **vacuum: Any) -> Chain:
    """A chain on the same workspace that runs VACUUM LITE and retains twenty days."""
    settings = {"retention": "20 days", "mode": "lite", "allow_short_retention": True}
    made = Chain.of(path, path, **settings | {"allow_clock_skew": True} | vacuum)
    return Chain(chain.launcher, chain.table.model_copy(update={"vacuum": made.table.vacuum}))


def _removing_log(path: Path) -> TableBuilder:
    """A log of 21 days: each day adds a file and removes that of the day before."""
    table = TableBuilder(path, now_ms=NOW_MS).at(days_ago=40).create()
    for version in range(1, 21):
        table.at(days_ago=40 - version)
        actions = [table.added(f"f{version}")]
        if version > 1:
            actions.append(table.removed(f"f{version - 1}", table.clock_ms))
        table.commit(actions, operation="WRITE")
        if version in {5, 10}:
            table.checkpoint()
    return table.age("f*", 39)


def test_lite_goes_on_after_a_cleanup_of_what_it_has_handled(
    spark: SparkSession, tmp_path: Path, cleaning_of: CleaningOf
):
    table = _removing_log(tmp_path)
    chain = cleaning_of(tmp_path)
    lite = _vacuums(chain, tmp_path)
    first = lite.vacuum()

    cleaned = chain.clean()

    # Version v removed file v - 1, 40 - v days ago; 20 days are retained.
    assert files(first) == {f"f{version - 1}" for version in range(2, 20)}
    assert cleaned.planned.plan.anchor_version == 10
    assert not [note for note in cleaned.planned.notes if "our VACUUM" in note]
    table.version += 2
    table.at(days_ago=19).add("kept").remove("f20").age("_delta_log/*", 19)
    assert files(_vacuums(chain, tmp_path, retention="10 days").vacuum()) == {"f19", "f20"}
    assert len(delta_rs.rows(tmp_path, table.version)) == 2


def test_lite_refuses_after_a_cleanup_of_what_it_has_not_handled_as_deltas_does(
    spark: SparkSession, tmp_path: Path, cleaning_of: CleaningOf
):
    _removing_log(tmp_path)
    chain = cleaning_of(tmp_path)
    chain.clean()
    before = {file.name for file in tmp_path.iterdir()}

    with pytest.raises(LogTooShortError, match="VACUUM LITE cannot delete all"):
        _vacuums(chain, tmp_path).vacuum()
    with pytest.raises(Exception, match="VACUUM LITE cannot delete all"):
        delta_spark.planned_files(spark, tmp_path, retention_hours=20 * 24, what="LITE")

    assert {file.name for file in tmp_path.iterdir()} == before
