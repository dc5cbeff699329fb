"""One stage in one run: its upstream datasets by name, its output, the clock and the session."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import dagster as dg
import msgspec

from maint_assets.assets.spark_resource import parallelism
from maint_assets.assets.stage_store import StageResult
from maint_assets.datasets.intents import request_stop
from maint_assets.datasets.rows import part_rows
from maint_assets.errors import MaintError, StalePlanError, one_line
from maint_assets.storage.location import Location

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from maint_assets.assets.spark_resource import StageSession
    from maint_assets.assets.stage_store import Dataset, StageDataset, StageStore
    from maint_assets.config import TableSettings
    from maint_assets.datasets.rows import Rows

logger = logging.getLogger(__name__)

Summary = TypeVar("Summary")


_DATA_VERSION = "dagster/data_version"
_MOST_REPORTS = 1_000


@dataclass(frozen=True, slots=True)
class Execution:
    """A completed execution of a plan: its run, and when."""

    run_id: str
    time_ms: int


@dataclass(frozen=True)
class StageRun:
    """What a stage needs to read upstream datasets, to compute, and to write its own."""

    table: TableSettings
    stage: str
    key: dg.AssetKey
    store: StageStore
    instance: dg.DagsterInstance
    run_ids: tuple[str, ...]
    session: StageSession | None = None
    known: dict[str, tuple[str, StageDataset]] = field(default_factory=dict)

    @property
    def spark(self) -> SparkSession:
        """The session of the run."""
        return self.store.spark if self.session is None else self.session.spark

    @property
    def is_stopping(self) -> bool:
        """Whether the stage was interrupted."""
        return self.session is not None and self.session.interrupts.is_asked

    @property
    def is_held(self) -> bool:
        """Whether the work is done, so that its result counts even after an interrupt."""
        return self.session is not None and self.session.interrupts.is_held

    def refuse_stopping(self) -> None:
        """Raise DagsterExecutionInterruptedError if the stage was interrupted."""
        if self.session is not None:
            self.session.interrupts.refuse()

    def hold(self, *, even_stopping: bool = False) -> None:
        """Defer interrupts until the result is recorded: the work is done and counts.

        Raises DagsterExecutionInterruptedError after an earlier one, unless ``even_stopping``.
        """
        if self.session is None or self.is_held:
            return
        if not even_stopping:
            self.refuse_stopping()
        self.session.interrupts.hold()

    @property
    def parallelism(self) -> int:
        """How many tasks run at once."""
        return parallelism(self.spark)

    @property
    def location(self) -> Location:
        """The location of the table."""
        return Location.of(self.table.uri, self.table.storage)

    def located(self, uri: str) -> Location:
        """The location that a former stage recorded by its canonical URI."""
        return replace(self.location, uri=uri)

    @property
    def output(self) -> StageDataset:
        """The dataset that this stage writes."""
        return self.store.dataset(self.table.name, self.stage, self.run_ids[0])

    @contextlib.contextmanager
    def stop_signal_in(self, directory: str) -> Iterator[None]:
        """Context in which an interrupt puts the stop signal for tasks into a directory."""
        if self.session is None:
            yield
            return
        place = Location.of(directory)
        self.session.interrupts.stop_tasks = partial(request_stop, place)
        yield
        self.session.interrupts.stop_tasks = None

    def now_ms(self) -> int:
        """The time now in ms."""
        return self.store.now_ms()

    def upstream(self, stage: str) -> StageDataset:
        """The newest dataset of another stage of the table, as of the first call."""
        return self._latest(stage)[1]

    def run_of(self, stage: str) -> str:
        """The run that made that dataset."""
        return self._latest(stage)[0]

    def is_of_this_run(self, stage: str) -> bool:
        """Whether that dataset was made by this run, or by the one it re-executes."""
        return self.run_of(stage) in self.run_ids

    def executed_since(self, planned: str, digest: str) -> Execution | None:
        """The completed execution of a plan by this stage since the plan was made, if any.

        Recorded beside the plan. Looks at all materialisations since as well, as anybody may report
        one by hand in the UI.
        """
        noted = self.upstream(planned).executed(Execution)
        if noted is not None:
            return noted
        plan = self.instance.get_latest_materialization_event(self._key(planned))
        if plan is None:
            return None
        since = dg.AssetRecordsFilter(self.key, after_timestamp=plan.timestamp)
        for done in self.instance.fetch_materializations(since, limit=_MOST_REPORTS).records:
            made = done.asset_materialization
            if made is not None and (made.tags or {}).get(_DATA_VERSION) == digest:
                return Execution(done.run_id, int(done.timestamp * 1000))
        return None

    def note_executed(self, planned: str) -> None:
        """Record beside a plan that this run has executed it in full.

        The event log alone does not hold for it: it is wiped, and its order is that of a clock.
        """
        try:
            done = Execution(self.run_ids[0], self.now_ms())
            self.upstream(planned).write_executed(done)
        except (MaintError, OSError) as error:
            logger.warning("the execution is not recorded beside its plan: %s", one_line(error))

    def rows(self, stage: str, *, task_rows: int = 0) -> Rows:
        """The rows of another stage, divided among tasks by their number."""
        parts = self.upstream(stage).parts()
        return part_rows(self.spark, parts, parallelism=self.parallelism, task_rows=task_rows)

    def summary(self, stage: str, kind: type[Summary]) -> Summary:
        """The summary of another stage. Raises StalePlanError if another release wrote it."""
        try:
            return self.upstream(stage).summary(kind)
        except msgspec.ValidationError as error:
            found = f"its {stage} was made by another release of maint_assets ({one_line(error)})"
            raise StalePlanError(self.table.uri, found, "run the chain again") from error

    def result(self, written: Dataset, summary: Any) -> StageResult:
        """Write the summary, which completes the dataset, and return the result of this stage.

        ``summary`` is a dataclass or a msgspec.Struct.
        """
        self.output.write_summary(summary)
        return StageResult(written, summary)

    def _latest(self, stage: str) -> tuple[str, StageDataset]:
        if stage not in self.known:
            self.known[stage] = self.store.latest(self.instance, self._key(stage))
        return self.known[stage]

    def _key(self, stage: str) -> dg.AssetKey:
        return dg.AssetKey([*self.key.path[:-1], stage])
