"""Streams and change feeds over our commits: as over those of delta-spark's own OPTIMIZE.

Neither ``ignoreChanges`` nor ``skipChangeCommits`` is set: a rewrite changes no data.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from maint_assets_tests.compaction.conftest import Compacting
from maint_assets_tests.oracles import delta_spark
from maint_assets_tests.support.row_tracking import row_ids, run

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

CHANGES = "'delta.enableChangeDataFeed' = 'true'"
VECTORS = f"{CHANGES}, 'delta.enableDeletionVectors' = 'true'"
KINDS = {
    "copied on write": ("", CHANGES),
    "deletion vectors": ("", VECTORS),
    "partitioned": ("PARTITIONED BY (p)", CHANGES),
    "clustered": ("CLUSTER BY (id)", VECTORS),
    "all features": (
        "",
        f"{VECTORS}, 'delta.enableRowTracking' = 'true', 'delta.columnMapping.mode' = 'name', "
        "'delta.enableInCommitTimestamps' = 'true'",
    ),
}
EACH_TIME = "all features"
"""What CI runs; the others run in ``make stories``."""

INSERT = "INSERT INTO {{t}} SELECT /*+ REPARTITION(1) */ {} FROM range({}, {}, 1, 1)"
COLUMNS = "id, concat('v', id), CAST(id % 2 AS INT)"
Options = dict[str, Any]
FEED: Options = {"readChangeFeed": "true"}
STOPPED = "stopped on purpose"
Optimize = Callable[[Path], None]


@dataclass
class Streams:
    """The streams of one table by name: the rows each has received, and its checkpoint."""

    spark: SparkSession
    table: Path
    got: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict[str, Any])

    def read(self, name: str, *, most: int | None = None, **options: object) -> None:
        """Read what is available; fail after ``most`` batches."""
        got, taken = self.got.setdefault(name, []), 0

        def take(rows: DataFrame, _: int) -> None:
            nonlocal taken
            if taken == most:
                raise RuntimeError(STOPPED)
            got.extend(map(tuple, rows.drop("_commit_timestamp").collect()))
            taken += 1

        delta_spark.forget(self.spark)
        texts = {key: str(value) for key, value in options.items()}
        source = self.spark.readStream.format("delta").options(**texts).load(str(self.table))
        state = str(self.table.with_name(f"{self.table.name}-{name}"))
        sink = source.writeStream.foreachBatch(take).option("checkpointLocation", state)
        try:
            sink.trigger(availableNow=True).start().awaitTermination()
        except StreamingQueryException as error:
            if STOPPED not in str(error):
                raise

    def ids(self, name: str) -> list[int]:
        return sorted(row[0] for row in self.got[name])

    def versions(self, name: str) -> set[int]:
        """The commit versions of the changes."""
        return {row[-1] for row in self.got[name]}


BEGUN: dict[str, Options] = {
    "whole": {},
    "halfway": {"maxFilesPerTrigger": 1},
    "feed": {**FEED, "startingVersion": 0},
    "half a feed": {**FEED, "startingVersion": 0, "maxFilesPerTrigger": 1},
    "feed of all": FEED,
}
LATER: dict[str, Options] = {
    "at it": {"startingVersion": 6},
    "feed at it": {**FEED, "startingVersion": 6},
    "before it": {"startingVersion": 5},
}
"""Options of the streams: of those that start before the first rewrite, and after it."""
FEW = "halfway", "feed", "at it"


def played(
    spark: SparkSession, path: Path, kind: str, optimize: Optimize, *, names: Collection[str]
) -> Streams:
    """Run the streams of these names over two rewrites, versions 6 and 8."""
    clause, on = KINDS[kind]
    create = f"CREATE TABLE {{t}} (id BIGINT, value STRING, p INT) USING delta {clause}"
    inserts = [INSERT.format(COLUMNS, *ends) for ends in ((0, 4), (4, 8), (8, 10), (10, 12))]
    run(spark, path, f"{create} TBLPROPERTIES ({on})", *inserts[:2])
    run(spark, path, "DELETE FROM {t} WHERE id = 1", "UPDATE {t} SET value = 'u' WHERE id = 5")
    found = Streams(spark, path)
    begun = {name: options for name, options in BEGUN.items() if name in names}
    for name, options in begun.items():
        found.read(name, most=1 if "half" in name else None, **options)
    run(spark, path, inserts[2])
    optimize(path)
    begun |= {name: options for name, options in LATER.items() if name in names}
    for name, options in begun.items():
        found.read(name, **options)
    run(spark, path, inserts[3])
    optimize(path)
    for name, options in begun.items():
        found.read(name, **options)
    return found


@pytest.fixture
def ours(compacting: Compacting) -> Optimize:
    """Our compaction of the whole table."""

    def optimize(path: Path) -> None:
        done = compacting(path).compact().done
        assert done is not None and len(done.versions) == 1 and done.not_committed == {}

    return optimize


def in_feed(spark: SparkSession, path: Path, **options: object) -> list[tuple[Any, ...]]:
    """The changes that a batch query reads from the change data feed."""
    delta_spark.forget(spark)
    texts = {key: str(value) for key, value in (FEED | options).items()}
    rows = spark.read.format("delta").options(**texts).load(str(path))
    return sorted(map(tuple, rows.drop("_commit_timestamp").collect()), key=repr)


def in_feed_of_delta_rs(path: Path) -> list[tuple[Any, ...]]:
    """The same by delta-rs: versions, types and ids."""
    changes = pa.table(DeltaTable(path).load_cdf(starting_version=0).read_all())
    names = "_commit_version", "_change_type", "id"
    return sorted(tuple(row[name] for name in names) for row in changes.to_pylist())


def test_a_stream_gets_each_row_once_whenever_it_begins(
    spark: SparkSession, tmp_path: Path, ours: Optimize
) -> None:
    path = tmp_path / "t"

    found = played(spark, path, EACH_TIME, ours, names=FEW)

    assert found.ids("halfway") == [0, *range(2, 12)]
    assert found.ids("at it") == [10, 11]
    assert found.versions("feed") == {1, 2, 3, 4, 5, 7}
    assert in_feed(spark, path, startingVersion=6, endingVersion=6) == []
    assert in_feed(spark, path, startingVersion=0) == sorted(found.got["feed"], key=repr)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_streams_and_feeds_get_what_they_get_over_deltas_own_optimize(
    kind: str, spark: SparkSession, tmp_path: Path, ours: Optimize
) -> None:
    def theirs(path: Path) -> None:
        run(spark, path, "OPTIMIZE {t}")

    pair = {tmp_path / "ours": ours, tmp_path / "theirs": theirs}

    one, other = (
        played(spark, path, kind, optimize, names=[*BEGUN, *LATER])
        for path, optimize in pair.items()
    )

    assert {name: sorted(rows, key=repr) for name, rows in one.got.items()} == {
        name: sorted(rows, key=repr) for name, rows in other.got.items()
    }
    assert one.ids("whole") == one.ids("halfway") == [0, *range(2, 12)]
    assert one.ids("before it") == [8, 9, 10, 11] and one.ids("at it") == [10, 11]
    assert sorted(one.got["feed"]) == sorted(one.got["half a feed"])
    for since in (0, 5, 6, 7):
        feeds = [in_feed(spark, path, startingVersion=since) for path in pair]
        assert feeds[0] == feeds[1] and {row[-1] for row in feeds[0]}.isdisjoint({6, 8})
    if kind == EACH_TIME:
        assert row_ids(spark, tmp_path / "ours") == row_ids(spark, tmp_path / "theirs")
    else:  # delta-rs cannot read the change feed with column mapping
        mine, yours = (in_feed_of_delta_rs(path) for path in pair)
        assert mine == yours and len(mine) >= len(one.got["feed"]) - 1
