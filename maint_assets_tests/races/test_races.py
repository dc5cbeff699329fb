"""A race against delta-spark in another process; no row is lost or doubled, no bin commits twice.

The suite plays 20 rounds, ``make races`` 200, ``make races N=2000`` more.
"""

import logging
import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from maint_assets_tests.oracles import delta_spark
from maint_assets_tests.races.history import History
from maint_assets_tests.races.racing import Other, Racing, Tally, Window
from maint_assets_tests.races.writer import Report

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

logger = logging.getLogger(__name__)

RACES = int(os.environ.get("RACES", "20"))
MANY = 200
"""In fewer rounds the other process may happen not to conflict."""

SEED = int(os.environ.get("RACES_SEED", "1"))

CREATE = """
CREATE TABLE {t} (id BIGINT, value BIGINT, p STRING) USING delta PARTITIONED BY (p) TBLPROPERTIES (
  'delta.enableDeletionVectors' = 'true', 'delta.enableInCommitTimestamps' = 'true',
  'delta.checkpointInterval' = '10', 'delta.deletedFileRetentionDuration' = 'interval 60 seconds')
"""

CLOSING = {
    "closing": "property delta.dataskippingnumindexedcols changed from None to 33",
    "add column": "the schema changed",
    "track": "feature rowTracking was added",
}
"""The operation of the other process, and the error with which our round then ends."""


@dataclass(repr=False)
class Race:
    """The results after both sides have ended; ``closed`` are the errors that ended our rounds."""

    table: Path
    tally: Tally
    closed: dict[str, list[str]]
    other: Report
    history: History


@pytest.fixture(scope="module")
def race(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Race]:
    folder = tmp_path_factory.mktemp("races")
    table = folder / "table"
    spark.sql(CREATE.format(t=delta_spark.table(table))).collect()
    other = Other(table, folder / "other", seed=SEED)
    try:
        ours = Racing(spark, table, folder / "workspace", other, seed=SEED)
        started = time.monotonic()
        closed: dict[str, list[str]] = {}
        for asked, share in zip(CLOSING, (0.2, 0.8, 1), strict=True):
            closed[asked] = errors_of_change(ours, asked)
            ours.play(int(RACES * share))
        seconds = time.monotonic() - started
        report = other.end()
    finally:
        other.kill()
    assert report.failure is None, report.failure
    while ours.rewrite("compaction", window=Window.ANY):
        pass
    found = Race(table, ours.tally, closed, report, History.of(table))
    logger.info("%.0f s: %s", seconds, described(found))
    yield found


def errors_of_change(ours: Racing, asked: str) -> list[str]:
    """The errors that ended the round of this operation and the rounds after it."""
    before = len(ours.tally.closed)
    ours.other.ask("hold")
    for kind, then in (("zorder", asked), ("compaction", "delete by vector"), ("zorder", "insert")):
        ours.other.ask("insert")
        ours.other.ask("insert")
        ours.rewrite(kind, window=Window.WRITTEN, then=then)
    ours.other.ask("go on")
    return ours.tally.closed[before:]


def described(race: Race) -> str:
    ours, theirs, tally = race.history.ours, race.history.theirs, race.tally
    return (
        f"{tally.rounds.total()} rounds ({tally.contested} contested) {dict(tally.rounds)}, "
        f"windows {dict(tally.windows)}; "
        f"{len(ours)} commits of ours, {len(theirs)} of theirs; bins {dict(tally.bins)}; "
        f"{len(tally.closed)} rounds ended by a change of the table; "
        f"{tally.checkpoints} checkpoints, {dict(tally.vacuumed)}; "
        f"they: {dict(race.other.operations)}, conflicts {dict(race.other.conflicts)}, "
        f"{len(race.other.rows)} rows, {len(race.other.appended)} streamed, "
        f"{race.other.stream_restarts} restarts"
    )


def test_there_was_a_race(race: Race) -> None:
    assert race.tally.bins["committed"] and race.tally.bins["dropped"]
    assert race.other.conflicts or RACES < MANY
    assert not race.tally.bins["failed"] and not race.tally.bins["refused"]
    assert race.tally.rounds.total() >= RACES and race.tally.contested >= RACES // 3


def test_no_row_is_lost_or_doubled(spark: SparkSession, race: Race) -> None:
    rows = [(row["id"], row["value"], row["p"]) for row in delta_spark.rows(spark, race.table)]
    assert sorted(rows) == [tuple(row) for row in race.other.rows]


def test_no_file_is_added_twice_or_removed_twice(race: Race) -> None:
    assert race.history.faults == []
    ids = [commit.info["txnId"] for commit in race.history.ours]
    assert len(set(ids)) == len(ids)


def test_no_commit_of_ours_changes_data(race: Race) -> None:
    assert race.history.ours
    assert not [commit.version for commit in race.history.ours if commit.changes_data]


def test_no_new_file_of_a_lost_race_is_left(race: Race) -> None:
    assert race.history.own_orphans() == []


def test_lost_bins_are_planned_again(race: Race) -> None:
    committed_later = race.tally.lost & race.history.removed_by_us
    assert committed_later
    assert set(race.history.files_by_partition.values()) <= {1}


@pytest.mark.parametrize("asked", CLOSING)
def test_a_change_of_the_table_ends_one_round(asked: str, race: Race) -> None:
    (error,) = race.closed[asked]
    assert CLOSING[asked] in error and "plan the rewrite again" in error


def test_a_stream_sees_each_appended_row_once(race: Race) -> None:
    assert race.other.streamed == sorted(race.other.appended)
    assert race.other.stream_restarts


def test_row_ids_stay(spark: SparkSession, race: Race) -> None:
    delta_spark.forget(spark)
    rows = spark.read.format("delta").load(str(race.table))
    found = rows.selectExpr("id", "_metadata.row_id AS row_id").collect()
    ids = {str(row.id): row.row_id for row in found}
    kept = ids.keys() & race.other.row_ids.keys()
    assert {key: ids[key] for key in kept} == {key: race.other.row_ids[key] for key in kept}
    assert Counter(ids.values()).most_common(1)[0][1] == 1
