"""One stage in one run: its inputs by name, its output dataset, the clock and the session."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import dagster as dg

from maint_assets.assets.spark import parallelism

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import types as T

    from maint_assets.assets.store import StageDataset, StageStore
    from maint_assets.config import TableSettings

Summary = TypeVar("Summary")


@dataclass(frozen=True)
class StageRun:
    """What a stage needs to read its upstream, to compute and to write."""

    table: TableSettings
    stage: str
    key: dg.AssetKey
    store: StageStore
    instance: dg.DagsterInstance
    run_ids: tuple[str, ...]

    @property
    def spark(self) -> SparkSession:
        """The session of the run."""
        return self.store.spark

    @property
    def parallelism(self) -> int:
        """How many tasks run at once."""
        return parallelism(self.spark)

    @property
    def output(self) -> StageDataset:
        """The dataset that this stage writes."""
        return self.store.dataset(self.table.name, self.stage, self.run_ids[0])

    def now_ms(self) -> int:
        """The time now in ms."""
        return self.store.now_ms if self.store.now_ms is not None else int(time.time() * 1000)

    def upstream(self, stage: str) -> StageDataset:
        """The newest dataset of another stage of the table."""
        return self.store.latest(self.instance, self._key(stage))[1]

    def run_of(self, stage: str) -> str:
        """The run that made the newest dataset of another stage."""
        return self.store.latest(self.instance, self._key(stage))[0]

    def is_of_this_run(self, stage: str) -> bool:
        """Whether the newest dataset of a stage is of this run, or of the one it re-executes."""
        return self.run_of(stage) in self.run_ids

    def rows(self, stage: str, schema: T.StructType) -> DataFrame:
        """The rows of the newest dataset of another stage."""
        return self.upstream(stage).rows(self.spark, schema)

    def summary(self, stage: str, kind: type[Summary]) -> Summary:
        """The summary of the newest dataset of another stage."""
        return self.upstream(stage).summary(kind)

    def _key(self, stage: str) -> dg.AssetKey:
        return dg.AssetKey([*self.key.path[:-1], stage])
