"""The command ``checkpoint``: written at once, recorded, and shown."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from maint_assets.assets.numbers import human_bytes, human_count
from maint_assets.assets.progress import reporting_progress, tasks_of
from maint_assets.assets.spark_resource import stage, typed_errors
from maint_assets.assets.stage_run import StageRun
from maint_assets.commit.checkpoint.writer import WrittenCheckpoint, write_checkpoint
from maint_assets.snapshot.head import table_head

if TYPE_CHECKING:
    from rich.console import Console

    from maint_assets.cli.launcher import Launcher
    from maint_assets.config import TableSettings

STAGE = "checkpoint"


@dataclass(frozen=True, slots=True)
class CheckpointReport:
    """The checkpoint of a table's newest version: written, or found."""

    table: str
    written: WrittenCheckpoint
    seconds: float

    def json(self) -> dict[str, Any]:
        """The public JSON object of ``maint-assets checkpoint``."""
        done = self.written
        return {
            "table": self.table,
            "version": done.version,
            "made": done.made,
            "files": list(done.files),
            "actions": done.actions,
            "adds": done.adds,
            "tombstones": done.tombstones,
            "bytes": done.size,
            "hint_moved": done.hint_moved,
            "seconds": self.seconds,
        }


def checkpoint(launcher: Launcher, table: TableSettings) -> CheckpointReport:
    """Write the checkpoint of the newest version, unless it has one; see ``write_checkpoint``.

    The outcome is recorded in the workspace, like that of a stage.
    """
    started, key = time.monotonic(), launcher.key(table, STAGE)
    run = StageRun(table, STAGE, key, launcher.store, launcher.instance, (str(uuid.uuid4()),))
    head = table_head(run.location)
    with (
        launcher.around(),
        typed_errors(),
        stage(lambda: run.store.spark, run.run_ids[0], f"{table.name}: {STAGE}") as spark,
        run.output.scratch() as scratch,
    ):
        run = replace(run, session=spark)
        with reporting_progress(STAGE, partial(tasks_of, run), log=lambda _: None):
            written = write_checkpoint(
                run.spark, head, parallelism=run.parallelism, scratch=scratch, now_ms=run.now_ms()
            )
    report = CheckpointReport(head.table, written, round(time.monotonic() - started, 3))
    run.output.write_summary(report)
    return report


def show_checkpoint(console: Console, report: CheckpointReport) -> None:
    """Print in one sentence what the checkpoint holds, or that the version had one."""
    done, table = report.written, f"[bold]{escape(report.table)}[/]"
    if not done.made:
        console.print(f"{table}: version {done.version} has a checkpoint already.", soft_wrap=True)
        return
    console.print(
        f"{table}: [green]checkpoint of version {done.version}[/] with "
        f"{human_count(done.actions, 'action')} ({human_count(done.adds, 'live file')}, "
        f"{human_count(done.tombstones, 'tombstone')}) in {human_count(len(done.files), 'file')} "
        f"of {human_bytes(done.size)}, {report.seconds:.1f} s"
        + ("." if done.hint_moved else "; _last_checkpoint points to a newer one."),
        soft_wrap=True,
    )
