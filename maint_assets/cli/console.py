"""The terminal while stages run: progress bars; Spark's own output goes to a file."""

from __future__ import annotations

import contextlib
import logging
import os
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from maint_assets.assets.progress import SHOWN

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rich.console import Console

    from maint_assets.assets.stage_store import StageStore


@contextlib.contextmanager
def progress(console: Console) -> Iterator[None]:
    """Context in which the terminal shows the running stage and its progress."""
    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    shown = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    handler = _BarHandler(shown)
    SHOWN.addHandler(handler)
    SHOWN.setLevel(logging.INFO)
    SHOWN.propagate = False
    try:
        with shown:
            yield
    finally:
        SHOWN.removeHandler(handler)
        SHOWN.setLevel(logging.WARNING)


class _BarHandler(logging.Handler):
    """Logging handler that draws one progress bar."""

    def __init__(self, shown: Progress) -> None:
        super().__init__(logging.INFO)
        self._shown, self._what = shown, ""
        self._task = shown.add_task("starting", total=None)

    def emit(self, record: logging.LogRecord) -> None:
        what, progress = record.getMessage(), getattr(record, "progress", None)
        if what != self._what:
            self._shown.reset(self._task, total=None, description=what)
            self._what = what
        if progress is not None:
            described = f"{what}: {progress}"
            self._shown.update(
                self._task, description=described, completed=progress.done, total=progress.total
            )


def quiet_session(store: StageStore, workspace: Path) -> None:
    """Start the session with Spark's own output in ``spark.log`` of the workspace."""
    workspace.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    kept = os.dup(2)
    with (workspace / "spark.log").open("ab") as log:
        os.dup2(log.fileno(), 2)
        try:
            _ = store.spark
        finally:
            os.dup2(kept, 2)
            os.close(kept)
