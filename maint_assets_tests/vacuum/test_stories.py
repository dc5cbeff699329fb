"""Random stories of a table; at the end of each, delta-spark and we must plan the same deletion.

Every test run plays the same few; ``make stories N=2000`` plays others.
"""

import logging
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import ClassVar
from urllib.parse import unquote

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from pyspark.sql import SparkSession

from maint_assets.delta.deletion_vectors import file_path
from maint_assets.delta.paths import TableRoot
from maint_assets_tests.oracles import delta_spark
from maint_assets_tests.support.builder import DAY_MS, Action, TableBuilder
from maint_assets_tests.support.chain import Chain
from maint_assets_tests.vacuum.planning import planned

logger = logging.getLogger(__name__)

STORIES = int(os.environ.get("STORIES", "4"))
EXECUTED_OF = 25
"""One story in this many is also executed: by us, and on a copy by delta-spark."""

LOGGED_OF = 50

RETENTION_DAYS = 7
START_DAYS = 30.5
"""Half a day, so that no wait ends exactly at the retention: the plans are made seconds later."""

NAMES = st.sampled_from(["a", "b", "c d", "é%", "x=1", "_u", "#1", "p+q"])
PARTITIONS = st.sampled_from(["1", "a b", "50%", "é/ü", None])
AGES = st.sampled_from([0, 6, 8, 20])
PLACES = st.sampled_from(["", "d/", "d/e/", "p=1/", "_hidden/", "d/.h/"])
CHECKPOINTS = st.sampled_from([("classic", 1), ("classic", 3), ("v2-json", 2), ("v2-parquet", 1)])


class Story(RuleBasedStateMachine):
    """The steps of a table's life, in days before now."""

    spark: ClassVar[SparkSession]
    told: ClassVar[int] = 0
    executed: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp(prefix="story-"))
        self.needed: dict[int, set[str]] = {0: set()}
        self.days_ago = START_DAYS
        self.added: dict[str, Action] = {}
        self.deleted: dict[str, int] = {}
        self.written = 0

    @initialize()
    def create(self) -> None:
        features = ["deletionVectors", "v2Checkpoint"]
        self.table = TableBuilder(self.path / "t").at(days_ago=self.days_ago)
        self.table.create(partition_columns=["p"], features=features)
        self.table.add("first", partition={"p": "1"})

    @rule(name=NAMES, value=PARTITIONS)
    def write(self, name: str, value: str | None) -> None:
        """Write a file with a new name."""
        self.written += 1
        self.table.add(f"{name}{self.written}", partition={"p": value})

    @precondition(lambda self: self.table.live)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        path = data.draw(st.sampled_from(sorted(self.table.live)))
        self.added[path] = self.table.live[path]
        self.table.commit([self.table.removed(path, self.table.clock_ms)], operation="DELETE")

    @precondition(lambda self: any(n < 2 for p, n in self.counts().items()))
    @rule(data=st.data())
    def delete_rows(self, data: st.DataObject) -> None:
        """Delete one more row of a file by a deletion vector."""
        paths = sorted(path for path, count in self.counts().items() if count < 2)
        path = data.draw(st.sampled_from(paths))
        self.deleted[path] = self.deleted.get(path, 0) + 1
        self.table.delete_rows(path, *range(self.deleted[path]))

    @precondition(lambda self: set(self.added) - set(self.table.live))
    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        """Add a removed file again as it was."""
        path = data.draw(st.sampled_from(sorted(set(self.added) - set(self.table.live))))
        self.table.commit([{"add": self.added[path]}], operation="RESTORE")

    @rule(kind=CHECKPOINTS)
    def checkpoint(self, kind: tuple[str, int]) -> None:
        self.table.checkpoint(kind[0], parts=kind[1])

    @rule(place=PLACES, name=NAMES, days=AGES)
    def stray(self, place: str, name: str, days: float) -> None:
        if not (self.path / "t" / place / f"stray-{name}").exists():
            self.table.stray(f"{place}stray-{name}", age_days=days)

    @rule(days=st.sampled_from([1.0, 5.0, 9.0]))
    def wait(self, days: float) -> None:
        self.days_ago = max(self.days_ago - days, 0.5)
        self.table.at(days_ago=self.days_ago)

    @invariant()
    def remember(self) -> None:
        """Remember the files that this version needs."""
        vectors = (vector_file(add.get("deletionVector")) for add in self.table.live.values())
        needed = {*map(unquote, self.table.live), *(file for file in vectors if file)}
        self.needed[self.table.version] = needed

    def counts(self) -> dict[str, int]:
        return {path: self.deleted.get(path, 0) for path in self.table.live}

    def teardown(self) -> None:
        """Compare the plans at the end of the story; execute some of them."""
        try:
            cutoff_ms = int(time.time() * 1000) - RETENTION_DAYS * DAY_MS  # noqa: TID251
            ours = planned(self.spark, self.path / "t", cutoff_ms=cutoff_ms)
            theirs = delta_spark.planned_files(self.spark, self.path / "t")
            assert ours.files == theirs
            assert not ours.missing
            assert not ours.files & {unquote(path) for path in self.table.live}
            if type(self).told % EXECUTED_OF == 0:
                self.execute(ours.files)
            type(self).told += 1
            if type(self).told % LOGGED_OF == 0:
                logger.info("%s stories told", type(self).told)
        finally:
            shutil.rmtree(self.path)

    def execute(self, goes: set[str]) -> None:
        """Both vacuums leave the same files, so the same versions can be read."""
        mine, theirs = self.path / "t", self.path / "theirs"
        shutil.copytree(mine, theirs)
        before = files_of(mine)
        chain = Chain.of(mine, self.path / "workspace", allow_clock_skew=True)
        assert chain.vacuum().error is None
        chain.launcher.instance.dispose()
        delta_spark.vacuum(self.spark, theirs)
        assert files_of(mine) == files_of(theirs) == before - goes
        readable = [version for version, needed in self.needed.items() if needed <= files_of(mine)]
        found = delta_spark.readable_versions(self.spark, mine)
        assert [version for version in found if version <= self.table.version] == readable
        type(self).executed += 1


def files_of(path: Path) -> set[str]:
    """All files except those of the log."""
    found = (file.relative_to(path) for file in path.rglob("*") if file.is_file())
    return {str(file) for file in found if file.parts[0] != "_delta_log"}


def vector_file(vector: Action | None) -> str | None:
    """The path of a deletion vector that the builder wrote."""
    if vector is None:
        return None
    return file_path(vector["storageType"], vector["pathOrInlineDv"], TableRoot.of("/t"))


@pytest.mark.slow
def test_random_stories_end_with_the_plan_of_delta_spark(spark: SparkSession) -> None:
    Story.spark = spark

    run_state_machine_as_test(
        Story,
        settings=settings(
            max_examples=STORIES,
            stateful_step_count=20,
            deadline=None,
            derandomize="STORIES" not in os.environ,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )

    logger.info("%s stories told, %s of them executed", Story.told, Story.executed)
    assert Story.told >= STORIES
    assert Story.executed >= STORIES // EXECUTED_OF
