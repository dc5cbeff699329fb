"""Where stage outputs lie: one immutable dataset a materialisation, found through the event log."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional, TypeVar

import dagster as dg
import msgspec
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from maint_assets.assets.spark import session
from maint_assets.errors import StageMissingError
from maint_assets.storage.location import Location

Summary = TypeVar("Summary")

_LOW = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Written:
    """A dataset as it was written: number of rows, digest of the rows, observed metrics."""

    rows: int
    digest: str
    metrics: dict[str, Any]


@dataclass(frozen=True, slots=True)
class StageDataset:
    """One materialisation of one stage: ``rows/`` in Parquet and ``summary.json`` beside it."""

    location: Location

    @property
    def rows_location(self) -> Location:
        """The directory of the rows."""
        return self.location.below("rows")

    def rows(self, spark: SparkSession, schema: T.StructType) -> DataFrame:
        """The rows of the dataset."""
        return spark.read.schema(schema).parquet(self.rows_location.path)

    @property
    def is_complete(self) -> bool:
        """Whether the stage got as far as its summary."""
        return self._summary.exists()

    def summary(self, kind: type[Summary]) -> Summary:
        """The summary beside the rows."""
        return msgspec.json.decode(self._summary.read_bytes(), type=kind)

    def write_summary(self, summary: Any) -> None:
        """Writes the summary, last of all: a dataset that has one is complete."""
        self._summary.parent.mkdir(parents=True, exist_ok=True)
        partial = self._summary.with_suffix(".tmp")
        partial.write_bytes(msgspec.json.format(msgspec.json.encode(summary)))
        partial.replace(self._summary)

    def write_rows(self, rows: DataFrame, metrics: Mapping[str, str]) -> Written:
        """Writes the rows in one pass that also counts, digests and measures them.

        ``metrics`` are SQL aggregates by name.
        """
        observation = Observation()
        digest = _digest_metrics(rows.columns)
        every = {"rows": "count(1)", **metrics, **digest}
        observed = rows.observe(observation, *measures(every))
        observed.write.mode("overwrite").parquet(self.rows_location.path)
        found = dict(observation.get)
        return Written(found["rows"], _digest(rows.columns, found, digest), found)

    @property
    def _summary(self) -> Path:
        return self.location.file("summary.json")


class StageStore(dg.ConfigurableResource):
    """The one resource of the chain: the workspace of stage outputs and the Spark session.

    ``base_uri`` lies outside of every table. ``now_ms`` fixes the clock, for tests.
    """

    base_uri: str
    pyspark: dg.ResourceDependency[LazyPySparkResource]
    now_ms: Optional[int] = None  # noqa: UP045 - Dagster reads it on Python 3.10

    @property
    def spark(self) -> SparkSession:
        """The session of the run, started at the first use."""
        return session(self.pyspark)

    def dataset(self, table: str, stage: str, run_id: str) -> StageDataset:
        """The dataset that a stage of a run writes."""
        return StageDataset(Location.of(self.base_uri).below(table, stage, run_id))

    def latest(self, instance: dg.DagsterInstance, key: dg.AssetKey) -> tuple[str, StageDataset]:
        """Run id and dataset of the newest materialisation of a stage, by the event log.

        The same rule in the same run, in a later one and on re-execution. Raises
        StageMissingError.
        """
        event = instance.get_latest_materialization_event(key)
        materialization = event.asset_materialization if event else None
        if event is None or materialization is None or "dataset" not in materialization.metadata:
            raise StageMissingError(
                "/".join(key.path[:-1]),
                f"stage {key.path[-1]} was never run",
                "run the chain first",
            )
        path = str(materialization.metadata["dataset"].value)
        return event.run_id, StageDataset(Location.of(path))


def measures(metrics: Mapping[str, str]) -> list[Column]:
    """SQL aggregates as columns of these names."""
    return [F.expr(f"{sql} as {name}") for name, sql in metrics.items()]


def _digest_metrics(columns: list[str]) -> dict[str, str]:
    """Order-free sums over two 64-bit hashes of each row, in halves that cannot overflow."""
    parts = ", ".join(f"`{name}`, `{name}` is null" for name in columns)
    sums: dict[str, str] = {}
    for seed in ("a", "b"):
        whole = f"xxhash64('{seed}', {parts})"
        sums[f"digest_{seed}_low"] = f"sum({whole} & {_LOW}L)"
        sums[f"digest_{seed}_high"] = f"sum(shiftrightunsigned({whole}, 32))"
    return sums


def _digest(columns: list[str], found: Mapping[str, Any], digest: Mapping[str, str]) -> str:
    parts = [*columns, str(found["rows"]), *(str(found[name]) for name in digest)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]
