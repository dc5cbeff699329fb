"""Our plan against delta-spark and delta-rs on the same log: where they agree, and where not.

Mode ``spark`` deletes exactly what delta-spark does, on random logs; mode ``protocol`` keeps
what PROTOCOL keeps. LOGS=1000 plays more random logs than CI does.
"""

import json
import os
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from deltalake import DeltaTable, PostCommitHookProperties, write_deltalake
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from maint_assets.delta.features import feature_names
from maint_assets.delta.names import commit_name
from maint_assets.delta.timestamps import monotonic
from maint_assets.log_cleanup.expired_logs import Findings, expired_logs
from maint_assets.log_cleanup.plan import DAY_MS, terms
from maint_assets.snapshot.head import table_head
from maint_assets.storage.location import Location
from maint_assets_tests.log_cleanup.conftest import CleaningOf
from maint_assets_tests.log_cleanup.logs import NOW_MS, planned
from maint_assets_tests.log_cleanup.wrong_checkpoints import of_adds, partitioned, top
from maint_assets_tests.oracles import delta_rs, delta_spark
from maint_assets_tests.oracles.log_cleanup import (
    MATRIX,
    NOON_MS,
    TEN,
    Deleted,
    delta_rs_cleanup,
    kinds,
    listing,
    log_of_21_days,
    now_ms,
    spark_cleanup,
)
from maint_assets_tests.support.checkpoint_writing import written
from maint_assets_tests.support.edits import edit_rows
from maint_assets_tests.support.log_builder import LogBuilder
from maint_assets_tests.support.random_log import random_log
from maint_assets_tests.support.row_tracking import row_ids

LOGS = int(os.environ.get("LOGS", "30"))
KEPT = int(os.environ.get("LOGS", "10"))
COMMIT = commit_name(0)

BY_PROTOCOL: dict[str, Deleted] = {
    "compactions and staged commits": {
        "commit": TEN, "checksum": TEN, "checkpoint": [5], "compaction": [0, 6],
        "staged": [1, 9, 10],
    },
    "a checkpoint of the first unexpired version": {"commit": TEN[:5], "checksum": TEN[:5]},
    "parts": {"commit": TEN, "checksum": TEN, "checkpoint part": [5, 5, 5]},
    "a part is missing": {"commit": TEN[:5], "checksum": TEN[:5]},
    "zero bytes": {"commit": TEN[:5], "checksum": TEN[:5]},
    "uuids": {"commit": TEN, "checksum": TEN, "v2 checkpoint": [5], "sidecar": [5]},
}  # fmt: skip


def _planned(log: LogBuilder, mode: str, *, at_ms: int) -> tuple[set[str], Findings]:
    location = Location.of(str(log.path))
    head = table_head(location)
    asked = terms(
        head.properties,
        feature_names(head.protocol),
        planned_ms=at_ms,
        retention_ms=head.properties.log_retention_ms,
        granularity="day",
        mode=mode,
        force=False,
        creates_anchor=False,
        min_keep_version=None,
    )
    rows, found = expired_logs(location, asked)
    return {path.removeprefix("_delta_log/") for path in rows["path"].to_pylist()}, found


def _delete(log: LogBuilder, names: set[str]) -> None:
    for name in names:
        (log.log / name).unlink()


@pytest.mark.parametrize("row", MATRIX)
def test_what_goes_by_protocol_and_what_by_delta_spark(tmp_path: Path, row: str) -> None:
    steps, by_spark, _ = MATRIX[row]
    log = log_of_21_days(tmp_path, NOON_MS, steps)

    assert kinds(_planned(log, "protocol", at_ms=NOON_MS)[0], log) == BY_PROTOCOL[row]
    assert kinds(_planned(log, "spark", at_ms=NOON_MS)[0], log) == by_spark


@pytest.mark.parametrize("row", ["a part is missing", "zero bytes"])
def test_ours_keeps_ten_versions_that_delta_rs_loses(
    spark: SparkSession, tmp_path: Path, row: str
) -> None:
    ours = log_of_21_days(tmp_path / "ours", now_ms(), MATRIX[row][0])
    theirs = log_of_21_days(tmp_path / "theirs", now_ms(), MATRIX[row][0])

    _delete(ours, _planned(ours, "protocol", at_ms=now_ms())[0])
    delta_rs_cleanup(theirs.path)

    for version in (10, 19):
        assert len(delta_spark.rows(spark, ours.path, version)) == version
        with pytest.raises((PySparkException, Py4JJavaError)):
            delta_spark.rows(spark, theirs.path, version)
    assert [len(delta_rs.rows(ours.path, v)) for v in range(5, 21)] == [*range(5, 21)]


def test_ours_keeps_what_repairs_a_checkpoint_of_another_version(
    spark: SparkSession, tmp_path: Path
) -> None:
    def steps(log: LogBuilder) -> LogBuilder:
        log.checkpoint(5).checkpoint(10)
        older, newer = (log.log / f"{version:020d}.checkpoint.parquet" for version in (5, 10))
        newer.write_bytes(older.read_bytes())
        return log.touch(log.commit_ms(10))

    ours, by_spark, by_rs = (
        log_of_21_days(tmp_path / name, now_ms(), steps) for name in ("ours", "spark", "rs")
    )

    names, found = _planned(ours, "protocol", at_ms=now_ms())
    _delete(ours, names)
    spark_cleanup(spark, by_spark.path, now_ms=now_ms())
    delta_rs_cleanup(by_rs.path)

    assert (found.anchor_version, len(found.rejected)) == (5, 1)
    for log in (ours, by_spark, by_rs):
        log.drop(f"{10:020d}.checkpoint.parquet")
    assert len(delta_spark.rows(spark, ours.path, 13)) == 13
    for theirs in (by_spark, by_rs):
        with pytest.raises((PySparkException, Py4JJavaError)):
            delta_spark.rows(spark, theirs.path, 13)


def test_ours_keeps_the_row_ids_that_a_wrong_checkpoint_lost(
    spark: SparkSession, tmp_path: Path
) -> None:
    names = {
        f"delta.rowTracking.materialized{kind}ColumnName": f"_{kind}"
        for kind in ("RowId", "RowCommitVersion")
    }
    keep = {"delta.logRetentionDuration": "interval 26 days"}
    on = {"delta.enableRowTracking": "true", **names, **keep}
    ours, theirs = (
        partitioned(tmp_path / name, 5, 10, configuration=on) for name in ("ours", "theirs")
    )
    right = row_ids(spark, ours.path)
    for table in (ours, theirs):
        edit_rows(top(table, 10), of_adds(baseRowId=700))
    assert row_ids(spark, ours.path) != right

    gone, found = planned(ours.path)
    for name in gone:
        (ours.log / name).unlink()
    spark_cleanup(spark, theirs.path, now_ms=NOW_MS)

    assert (found.anchor_version, len(found.rejected)) == (5, 1)
    assert not (theirs.log / f"{9:020d}.json").exists()
    for table in (ours, theirs):
        top(table, 10).unlink()
        (table.log / "_last_checkpoint").unlink()
    assert row_ids(spark, ours.path) == right
    with pytest.raises((PySparkException, Py4JJavaError)):
        row_ids(spark, theirs.path)


def test_ours_keeps_versions_since_the_cutoff_that_delta_spark_loses(
    spark: SparkSession, tmp_path: Path
) -> None:
    steps = MATRIX["a checkpoint of the first unexpired version"][0]
    ours = log_of_21_days(tmp_path / "ours", NOON_MS, steps)
    theirs = log_of_21_days(tmp_path / "theirs", NOON_MS, steps)

    names, found = _planned(ours, "protocol", at_ms=NOON_MS)
    _delete(ours, names)
    spark_cleanup(spark, theirs.path, now_ms=NOON_MS)

    # Version 13 was the table's state from the cutoff until version 14 was committed.
    assert found.cutoff_version == 13
    assert len(delta_spark.rows(spark, ours.path, 13)) == 13
    with pytest.raises((PySparkException, Py4JJavaError)):
        delta_spark.rows(spark, theirs.path, 13)
    assert len(delta_spark.rows(spark, theirs.path, 14)) == 14


def test_a_late_commit_stays_that_delta_spark_lets_go(spark: SparkSession, tmp_path: Path) -> None:
    log = log_of_21_days(tmp_path, NOON_MS, lambda log: log.checkpoint(5).checkpoint(10))
    log.touch(log.ago_ms(15), commit_name(8))

    names, found = _planned(log, "protocol", at_ms=NOON_MS)
    gone = spark_cleanup(spark, tmp_path, now_ms=NOON_MS)

    # Going by the time of version 8, it and all later ones are at most 15 days old; 26 are kept.
    assert (found.cutoff_version, found.anchor_version) == (7, 5)
    assert commit_name(8) in gone - names


def test_an_unknown_name_of_a_staged_commit_ends_the_cleanup_of_delta_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = log_of_21_days(tmp_path, NOON_MS, lambda log: log.checkpoint(5).checkpoint(10).staged(1))
    (log.log / "_staged_commits" / "notes.txt").write_text("x")

    names, found = _planned(log, "protocol", at_ms=NOON_MS)

    assert (found.anchor_version, len(names & set(map(commit_name, range(10))))) == (10, 10)
    assert "_staged_commits/notes.txt" not in names
    with pytest.raises(Py4JJavaError, match="MatchError"):
        spark_cleanup(spark, tmp_path, now_ms=NOON_MS)


def test_delta_spark_writes_a_classic_checkpoint_for_old_clients_before_a_cleanup(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = log_of_21_days(tmp_path, NOON_MS, MATRIX["uuids"][0])
    log.drop(f"{20:020d}.checkpoint.parquet").checkpoint(20, "v2-json").hint()
    before = listing(tmp_path)

    names, _ = _planned(log, "protocol", at_ms=NOON_MS)
    spark_cleanup(spark, tmp_path, now_ms=NOON_MS)

    written = {name for name in listing(tmp_path) - before if not name.endswith(".crc")}
    assert names
    assert written == {f"{20:020d}.checkpoint.parquet"}


def test_writers_of_others_clean_the_log_as_they_write_and_ours_only_when_asked(
    spark: SparkSession, tmp_path: Path
) -> None:
    for name in ("spark", "delta-rs", "ours"):
        log = LogBuilder(tmp_path / name, configuration={"delta.checkpointInterval": "1"})
        log.commits(range(60, 39, -1)).checkpoint(5).checkpoint(19).hint()
    before = {name: commits_of(tmp_path / name) for name in ("spark", "delta-rs", "ours")}

    spark.sql(f"INSERT INTO {delta_spark.table(tmp_path / 'spark')} VALUES (100, 'x')").collect()
    row = pa.table({"id": [100], "value": ["x"]})
    write_deltalake(tmp_path / "delta-rs", row, mode="append")
    write_deltalake(
        tmp_path / "ours",
        row,
        mode="append",
        post_commithook_properties=PostCommitHookProperties(
            create_checkpoint=False, cleanup_expired_logs=False
        ),
    )
    done = written(spark, tmp_path / "ours")

    left = {name: before[name] - commits_of(tmp_path / name) for name in before}
    assert done.made
    assert left["spark"] >= set(range(5)) <= left["delta-rs"]
    assert left["ours"] == set()


def commits_of(path: Path) -> set[int]:
    """The versions whose commits the log has."""
    return {int(file.stem) for file in (path / "_delta_log").glob("*.json") if file.stem.isdigit()}


def test_delta_spark_deletes_commits_whose_removed_files_are_kept(
    spark: SparkSession, tmp_path: Path, cleaning_of: CleaningOf
) -> None:
    keep = {
        "delta.logRetentionDuration": "interval 1 day",
        "delta.deletedFileRetentionDuration": "interval 26 days",
    }
    log = log_of_21_days(tmp_path, NOON_MS, lambda log: log.checkpoint(5).checkpoint(18))
    log.configure(keep)
    chain = cleaning_of(tmp_path, retention=None, allow_short_retention=False, now_ms=NOON_MS)

    report = chain.plan_cleanup().json()
    gone = spark_cleanup(spark, tmp_path, now_ms=NOON_MS)

    assert report["anchor_version"] == 5
    assert commit_name(17) in gone


@pytest.mark.oracle
def test_random_logs_lose_the_same_by_mode_spark_and_by_delta_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    deleted = 0
    for seed in range(LOGS):
        log = random_log(Random(seed), tmp_path / str(seed), protection=seed % 4 == 0)
        planned = _planned(log, "spark", at_ms=log.now_ms)[0]

        gone = spark_cleanup(spark, log.path, now_ms=log.now_ms)

        assert planned == gone, f"seed {seed}"
        deleted += bool(gone)
    assert deleted > LOGS // 4


@pytest.mark.slow
def test_random_logs_keep_each_version_that_protocol_keeps(tmp_path: Path) -> None:
    deleted = 0
    for seed in range(KEPT):
        log = random_log(Random(seed), tmp_path / str(seed), protection=seed % 4 == 0)
        before = _versions(log)
        names, found = _planned(log, "protocol", at_ms=log.now_ms)
        cutoff = _cutoff_version(log)

        _delete(log, names)

        after = _versions(log)
        lost = before.keys() - after.keys()
        assert not names or cutoff is not None, f"seed {seed}"
        assert all(version < (cutoff or 0) for version in lost), f"seed {seed}"
        assert all(before[version] == after[version] for version in after), f"seed {seed}"
        assert found.stop_reason is not None or min(after) <= (found.anchor_version or 0)
        again = _planned(log, "protocol", at_ms=log.now_ms)
        assert (again[0], bool(again[1].stop_reason)) == (set(), True), f"seed {seed}"
        deleted += bool(names)
    assert deleted > KEPT // 8


def _versions(log: LogBuilder) -> dict[int, list[str]]:
    """The live files of every version that delta-rs can read.

    delta-rs reads an empty checkpoint file as a state without files: versions that need one
    are left out.
    """
    found: dict[int, list[str]] = {}
    for version in range(log.version + 1):
        try:
            table = DeltaTable(log.path, version=version)
        except Exception:  # noqa: BLE001 - delta-rs has many
            continue
        files = table.file_uris()
        if len(files) == version:
            found[version] = sorted(files)
    return found


def _cutoff_version(log: LogBuilder) -> int | None:
    """The newest commit at or before the cutoff, computed independently of our code."""
    head = table_head(Location.of(str(log.path)))
    cutoff_ms = (log.now_ms - head.properties.log_retention_ms) // DAY_MS * DAY_MS
    files = {f.name[:20]: f for f in log.log.glob("[0-9]*.json") if len(f.name) == len(COMMIT)}
    times = monotonic([(int(v), f.stat().st_mtime_ns // 1_000_000) for v, f in files.items()])
    properties = head.properties
    if properties.in_commit_timestamps and cutoff_ms >= (
        properties.in_commit_timestamp_enablement_timestamp_ms or 0
    ):
        first = properties.in_commit_timestamp_enablement_version or 0
        infos = {int(v): json.loads(f.read_text().split("\n")[0]) for v, f in files.items()}
        times = {
            v: info["commitInfo"]["inCommitTimestamp"] for v, info in infos.items() if v >= first
        }
    elif properties.in_commit_timestamps:
        first = properties.in_commit_timestamp_enablement_version or 0
        times = {v: time_ms for v, time_ms in times.items() if v < first}
    return max((v for v, time_ms in times.items() if time_ms <= cutoff_ms), default=None)
