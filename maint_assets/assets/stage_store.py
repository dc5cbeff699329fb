"""The workspace: one immutable dataset for each materialisation, found through the event log."""

import contextlib
import hashlib
import itertools
import logging
import shutil
import time
import uuid
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import dagster as dg
import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from maint_assets.assets.spark_resource import session
from maint_assets.datasets.columns import arrow_schema
from maint_assets.datasets.parts import (
    Measures,
    Part,
    Target,
    Written,
    add_sums,
    as_storage_error,
    columns_of,
)
from maint_assets.datasets.rows import Rows
from maint_assets.errors import StageMissingError, StalePlanError, one_line
from maint_assets.storage.location import Location
from maint_assets.vacuum.handled import Handled

Summary = TypeVar("Summary")

logger = logging.getLogger(__name__)

LEFT_SECONDS = 86_400
"""Scratch directories without a write for this long were left by a killed run."""


class Manifest(msgspec.Struct, frozen=True):
    """The rows of a dataset: their number, digest, parts, and the largest of them."""

    rows: int
    digest: str
    parts: list[Part]
    largest: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Dataset:
    """A written dataset: number of rows, digest of the rows, measures."""

    rows: int
    digest: str
    metrics: dict[str, Any]


@dataclass(frozen=True, slots=True)
class StageDataset:
    """One materialisation of one stage: ``rows/`` in Parquet, ``summary.json`` beside it.

    ``rows.json`` names the parts that belong to it.
    """

    location: Location

    @property
    def rows_location(self) -> Location:
        """The directory of the rows."""
        return self.location.below("rows")

    @property
    def is_complete(self) -> bool:
        """Whether the stage wrote its summary, which it does last."""
        return self._summary.exists()

    def parts(self) -> list[Part]:
        """The files that hold the rows."""
        named, place = self._read_manifest().parts, self.rows_location
        return [msgspec.structs.replace(part, path=str(place.file(part.path))) for part in named]

    def digest_of_parts(self, schema: T.StructType) -> str | None:
        """The digest of the rows by the sums of their parts; None if those are unknown."""
        rows, sums = 0, [0, 0]
        for part in self._read_manifest().parts:
            if part.sums is None:
                return None
            rows, sums = rows + part.rows, add_sums(sums, part.sums)
        return _digest(schema.names, rows, sums)

    def refuse_damaged(self) -> None:
        """Raise StalePlanError if a part is gone or has other than its rows. Reads footers only."""
        for part in self.parts():
            try:
                rows = pq.read_metadata(part.path).num_rows
            except (OSError, pa.ArrowException) as error:
                raise self._damaged(Path(part.path), error) from error
            if rows != part.rows:
                found = f"{Path(part.path).name} of the plan has changed since it was planned"
                raise StalePlanError(self.location.uri, found, "plan again")

    def has_columns(self, schema: T.StructType) -> bool:
        """Whether the rows have the columns of a schema; True if they cannot be read."""
        known = (columns_of(part) for part in self.parts())
        return all(names in {None, tuple(schema.names)} for names in known)

    def largest(self) -> list[dict[str, Any]]:
        """The largest rows, for the preview."""
        return self._read_manifest().largest

    def summary(self, kind: type[Summary]) -> Summary:
        """The summary beside the rows.

        Raises StalePlanError if it is gone or damaged, msgspec.ValidationError if it lacks fields.
        """
        return self._read(self._summary, kind)

    def write_summary(self, summary: Any) -> None:
        """Write the summary, last: a dataset that has one is complete."""
        _write(self._summary, summary)

    def executed(self, kind: type[Summary]) -> Summary | None:
        """The execution that is recorded beside a plan; None if there is none."""
        if not self._executed.exists():
            return None
        try:
            return self._read(self._executed, kind)
        except msgspec.ValidationError as error:
            raise self._damaged(self._executed, error) from error

    def write_executed(self, execution: Any) -> None:
        """Record the execution of this plan."""
        _write(self._executed, execution)

    def write_rows(
        self,
        rows: Iterable[Rows],
        schema: T.StructType,
        measures: Measures,
        *,
        keep: pc.Expression | None = None,
    ) -> Dataset:
        """Write rows in one pass that also counts, digests and measures them.

        Rows that ``keep`` leaves out are only measured.
        """
        target = Target(self.rows_location.path, arrow_schema(schema), measures, keep)
        total = target.empty()
        for some in rows:
            total = total.plus(some.write(target), measures)
        return self.written_rows(total, schema)

    def written_rows(self, total: Written, schema: T.StructType) -> Dataset:
        """Write the manifest of rows that tasks have written already."""
        digest = _digest(schema.names, total.rows, total.sums)
        made = Dataset(total.rows, digest, total.measured)
        self.write_manifest(made, total.parts, total.largest)
        return made

    @contextlib.contextmanager
    def scratch(self) -> Generator[str, None, None]:
        """Context with a scratch directory for shuffled rows, removed at the end.

        Those that killed runs of the table left are removed after LEFT_SECONDS.
        """
        every = Path(self.location.path).parents[1] / "scratch"
        for left in _left_in(every):
            shutil.rmtree(left, ignore_errors=True)
        made = every / str(uuid.uuid4())
        try:
            yield str(made)
        finally:
            shutil.rmtree(made, ignore_errors=True)

    def write_manifest(
        self, made: Dataset, parts: Iterable[Part], largest: list[dict[str, Any]]
    ) -> None:
        """Write the manifest: which parts hold the rows."""
        named = [msgspec.structs.replace(part, path=Path(part.path).name) for part in parts]
        _write(self._manifest, Manifest(made.rows, made.digest, named, largest))

    def _read_manifest(self) -> Manifest:
        try:
            return self._read(self._manifest, Manifest)
        except msgspec.ValidationError as error:
            raise self._damaged(self._manifest, error) from error

    def _read(self, file: Path, kind: type[Summary]) -> Summary:
        try:
            return msgspec.json.decode(file.read_bytes(), type=kind)
        except msgspec.ValidationError:
            raise
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._damaged(file, error) from error

    def _damaged(self, file: Path, error: Exception) -> StalePlanError:
        why = getattr(error, "strerror", None) or one_line(error)
        found = f"{file.name} of this dataset cannot be read ({why})"
        return StalePlanError(self.location.uri, found, "plan again")

    @property
    def _summary(self) -> Path:
        return self.location.file("summary.json")

    @property
    def _executed(self) -> Path:
        return self.location.file("executed.json")

    @property
    def _manifest(self) -> Path:
        return self.location.file("rows.json")


@dataclass(frozen=True, slots=True)
class StageResult:
    """The result of a stage: its dataset and its summary."""

    written: Dataset
    summary: Any


class StageStore(dg.ConfigurableResource):
    """The resource of all chains: the workspace with the outputs of stages, and the Spark session.

    ``base_uri`` lies outside of every table.
    """

    base_uri: str
    pyspark: dg.ResourceDependency[LazyPySparkResource]

    def now_ms(self) -> int:
        """The time now in ms. Not configurable: the launchpad could else bypass a retention."""
        return int(time.time() * 1000)

    @property
    def spark(self) -> SparkSession:
        """The session of the run, started at the first use."""
        return session(self.pyspark)

    def dataset(self, table: str, stage: str, run_id: str) -> StageDataset:
        """The dataset that a stage of a run writes."""
        return StageDataset(Location.of(self.base_uri).below(table, stage, run_id))

    def handled(self, table: str) -> Handled | None:
        """Up to which version VACUUM LITE has handled the log of a table; None if not recorded.

        A file that cannot be read counts as none: mode lite then reads more of the log, or refuses.
        """
        try:
            return msgspec.json.decode(self._handled(table).read_bytes(), type=Handled)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            logger.warning("%s cannot be read (%s)", self._handled(table), one_line(error))
            return None

    def write_handled(self, table: str, handled: Handled) -> None:
        """Record up to which version a table is handled."""
        _write(self._handled(table), handled)

    def _handled(self, table: str) -> Path:
        return Location.of(self.base_uri).below(table).file("handled.json")

    def latest(self, instance: dg.DagsterInstance, key: dg.AssetKey) -> tuple[str, StageDataset]:
        """Run id and dataset of the newest materialisation of a stage, from the event log.

        The same rule in the same run, in a later one and on re-execution. Raises
        StageMissingError.
        """
        event = instance.get_latest_materialization_event(key)
        materialization = event.asset_materialization if event else None
        if event is None or materialization is None:
            found = f"stage {key.path[-1]} was never run"
            raise StageMissingError("/".join(key.path[:-1]), found, "run the chain first")
        if "dataset" not in materialization.metadata:
            found = (
                f"the newest materialisation of {key.path[-1]} was reported by something else: it "
                "names no dataset"
            )
            raise StageMissingError("/".join(key.path[:-1]), found, "run the chain again")
        path = str(materialization.metadata["dataset"].value)
        return event.run_id, StageDataset(Location.of(path))


def _left_in(scratch: Path) -> list[Path]:
    """Scratch directories without a write for LEFT_SECONDS."""
    before = time.time() - LEFT_SECONDS
    found = scratch.iterdir() if scratch.is_dir() else ()
    with contextlib.suppress(OSError):  # another run has just ended, or it is not ours to remove
        return [each for each in found if _is_older(each, before)]
    return []


def _is_older(directory: Path, time_s: float) -> bool:
    every = itertools.chain([directory], directory.rglob("*"))
    return all(path.lstat().st_mtime < time_s for path in every)


def _write(path: Path, value: Any) -> None:
    with as_storage_error(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Renamed when it is whole: a reader never sees half of it.
        partial = path.with_suffix(f".{uuid.uuid4()}.tmp")
        partial.write_bytes(msgspec.json.format(msgspec.json.encode(value)))
        partial.replace(path)


def _digest(columns: list[str], rows: int, sums: list[int]) -> str:
    texts = [*columns, str(rows), *map(str, sums)]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:32]
