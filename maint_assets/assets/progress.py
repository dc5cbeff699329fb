"""How far a long stage has come: shown on a terminal each second, and in the run's log."""

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

SHOWN = logging.getLogger("maint_assets_progress")
"""What a terminal shows; outside of the loggers that Dagster records, as it says much."""

SHOWN_SECONDS = 1.0
LOGGED_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Share:
    """What is done of what there is to do, counted in ``unit``."""

    done: int
    total: int
    unit: str

    def __str__(self) -> str:
        return f"{self.done:,} of {self.total:,} {self.unit}"


@contextlib.contextmanager
def told(
    what: str, measured: Callable[[], Share | None], *, log: Callable[[str], None]
) -> Iterator[None]:
    """Within it, progress is shown about every second and logged about every 15 seconds."""
    SHOWN.info("%s", what, extra={"progress": None})
    stop = threading.Event()

    def tell() -> None:
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

    teller = threading.Thread(target=tell, name="progress", daemon=True)
    teller.start()
    try:
        yield
    finally:
        stop.set()
        teller.join()


def recorded_share(run: StageRun, planned_stage: str, planned: Callable[[], int]) -> Share | None:
    """The planned paths whose outcome is in the ledger, to a batch; before the first the tasks."""
    batches = len(ledger_files(run.output.rows_location))
    if planned_stage not in run.known or not batches:
        return tasks_of(run)
    paths = planned()
    return Share(min(batches * BATCH_PATHS, paths), paths, "paths, about")


def tasks_of(run: StageRun) -> Share | None:
    """The tasks of the stages that Spark runs now; None while it runs none."""
    if run.session is None or not run.session.is_started or run.is_stopping:
        return None
    tracker = run.spark.sparkContext.statusTracker()
    found = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
    done = sum(stage.numCompletedTasks for stage in found if stage is not None)
    total = sum(stage.numTasks for stage in found if stage is not None)
    return Share(done, total, "tasks") if total else None
