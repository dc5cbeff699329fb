"""Progress of a long stage: on the terminal each second, and in the log of the run."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from maint_assets.datasets.ledger import BATCH_PATHS, ledger_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from maint_assets.assets.stage_run import StageRun
    from maint_assets.storage.location import Location

SHOWN = logging.getLogger("maint_assets_progress")
"""Logger of the terminal's progress; not one that Dagster records, as it has many lines."""

SHOWN_SECONDS = 1.0
LOGGED_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Share:
    """Progress: how many of how many ``unit`` are done."""

    done: int
    total: int
    unit: str

    def __str__(self) -> str:
        return f"{self.done:,} of {self.total:,} {self.unit}"


@contextlib.contextmanager
def reporting_progress(
    what: str, measured: Callable[[], Share | None], *, log: Callable[[str], None]
) -> Iterator[None]:
    """Context in which progress is shown about every second and logged about every 15 seconds."""
    SHOWN.info("%s", what, extra={"progress": None})
    stop = threading.Event()

    def report() -> None:
        started = logged = time.monotonic()
        while not stop.wait(SHOWN_SECONDS):
            with contextlib.suppress(Exception):  # a display must never be in the way
                progress = measured()
                if progress is None:
                    continue
                SHOWN.info("%s", what, extra={"progress": progress})
                now = time.monotonic()
                if now - logged >= LOGGED_SECONDS:
                    logged = now
                    log(f"{what}: {progress} after {now - started:.0f} s")

    reporter = threading.Thread(target=report, name="progress", daemon=True)
    reporter.start()
    try:
        yield
    finally:
        stop.set()
        reporter.join()


def recorded_share(ledger: Location, planned: Callable[[], int]) -> Share | None:
    """Planned paths with an outcome in the ledger; None before the first batch is recorded."""
    batches = len(ledger_files(ledger))
    if not batches:
        return None
    paths = planned()
    return Share(min(batches * BATCH_PATHS, paths), paths, "paths, about")


def tasks_of(run: StageRun) -> Share | None:
    """Progress of the Spark stages that run now, in tasks; None while there is none."""
    if run.session is None or not run.session.is_started or run.is_stopping:
        return None
    tracker = run.spark.sparkContext.statusTracker()
    found = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
    done = sum(stage.numCompletedTasks for stage in found if stage is not None)
    total = sum(stage.numTasks for stage in found if stage is not None)
    return Share(done, total, "tasks") if total else None
