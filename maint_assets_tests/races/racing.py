"""Our side of a race: rounds of compaction, purge, Z-order and vacuum against another process.

A round is one attempt to commit a batch. Most plans have several, one bin each. During most
executions the other process commits at least once, at a critical moment: see ``Window``.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import IO, Any

import msgspec
from pyspark.sql import SparkSession

from maint_assets.commit.checkpoint.writer import write_checkpoint
from maint_assets.compaction.execution import ExecutionParameters, rewrite_batch
from maint_assets.compaction.plan import CompactionPlan, Selection, ready_head
from maint_assets.compaction.planning.bin_plan import planned_bins
from maint_assets.compaction.planning.schema import BINS_MEASURES, COMPACTION_ARROW, PLANNED
from maint_assets.compaction.planning.tasks import commit_batches, rewrite_tasks
from maint_assets.compaction.writing.target import rewriting
from maint_assets.datasets.parts import Part, Target
from maint_assets.delta.names import commit_name
from maint_assets.errors import ConflictError
from maint_assets.snapshot.commits import commit_mark
from maint_assets.snapshot.head import table_head
from maint_assets.storage.location import Location
from maint_assets_tests.races.history import History
from maint_assets_tests.races.writer import Report
from maint_assets_tests.support.builder import DAY_MS
from maint_assets_tests.support.chain import Chain, files

ROOT = Path(__file__).parents[2]
PATIENCE_S = 120
CHECKPOINT_INTERVAL = 10
FILES = 500
"""A limit of live files that is never reached."""

SELECTIONS = {
    "compaction": Selection(),
    "purge": Selection(purge=True),
    "zorder": Selection(zorder_by=("value", "id")),
    "zorder full": Selection(zorder_by=("value", "id"), full=True),
    "where": Selection(where="p <= '2'"),
}
MIX = (*["compaction"] * 5, "purge", "zorder", "zorder full", "where")


class Window(IntEnum):
    """When the other process commits: at which reading of a batch's clock, if at any.

    The clock is read when a batch starts, when its new files are written, and, with in-commit
    timestamps, between reading the log and the commit.
    """

    PLANNED = 1
    WRITTEN = 2
    LOOKED = 3
    ANY = 0


class Other:
    """The other process."""

    def __init__(self, table: Path, folder: Path, *, seed: int) -> None:
        folder.mkdir()
        self.table, self.folder = table, folder
        self._version = 0
        module = "maint_assets_tests.races.writer"
        with (folder / "stderr").open("w") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(table), str(folder), str(seed)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                cwd=ROOT,
            )

    def ask(self, kind: str) -> None:
        """Request an operation and wait until it is done; a process that hangs is killed."""
        print(kind, file=_pipe(self._process.stdin), flush=True)
        alarm = threading.Timer(PATIENCE_S, self._process.kill)
        alarm.start()
        answer = _pipe(self._process.stdout).readline().strip()
        alarm.cancel()
        assert answer == kind, f"{answer}: {self._why()}"

    def wait(self) -> None:
        """Wait until it has committed once more."""
        version, until = self.version(), time.monotonic() + PATIENCE_S
        while self.version() == version:
            assert self._process.poll() is None and time.monotonic() < until, self._why()
            time.sleep(0.01)

    def version(self) -> int:
        """The newest version."""
        while (self.table / "_delta_log" / commit_name(self._version + 1)).exists():
            self._version += 1
        return self._version

    def end(self) -> Report:
        """Its report after it has ended."""
        self._process.communicate(timeout=PATIENCE_S)
        return msgspec.json.decode((self.folder / "report.json").read_bytes(), type=Report)

    def kill(self) -> None:
        """Kill it in any state."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()

    def _why(self) -> str:
        report = self.folder / "report.json"
        failure = json.loads(report.read_text())["failure"] if report.exists() else "no report"
        return f"{failure}\n{(self.folder / 'stderr').read_text()[-2_000:]}"


@dataclass(repr=False)
class Tally:
    """The results of our rounds; ``closed`` are the errors that ended one, in order.

    In ``contested`` rounds the other process had committed since the plan. ``lost`` are the inputs
    of dropped bins.
    """

    rounds: Counter[str] = field(default_factory=Counter[str])
    windows: Counter[str] = field(default_factory=Counter[str])
    contested: int = 0
    bins: Counter[str] = field(default_factory=Counter[str])
    closed: list[str] = field(default_factory=list[str])
    lost: set[str] = field(default_factory=set[str])
    checkpoints: int = 0
    vacuumed: Counter[str] = field(default_factory=Counter[str])


@dataclass
class Racing:
    """Our side: one table, its workspace, the results so far."""

    spark: SparkSession
    table: Path
    workspace: Path
    other: Other
    seed: int
    tally: Tally = field(default_factory=Tally)

    def __post_init__(self) -> None:
        self._random, self._plans = random.Random(self.seed), 0
        retention = {"retention": "60 seconds"}
        self._compacting = Chain.compacting(self.table, self.workspace / "compacting")
        self._vacuuming = Chain.of(self.table, self.workspace / "vacuuming", **retention)

    def play(self, rounds: int) -> None:
        """Continue until there are ``rounds`` rounds."""
        while self.tally.rounds.total() < rounds:
            self.act()

    def act(self) -> None:
        """Run a plan of a random kind; every 10th through Dagster, every 15th after a vacuum."""
        self._plans += 1
        if self._plans % 15 == 8:
            self.vacuum()
        if self._plans % 10 == 5:
            self.whole_chain()
            return
        kind, window = self._random.choice(MIX), self._random.choice(list(Window))
        if kind == "purge":
            self.other.ask("delete by vector")
        while not self.rewrite(kind, window=window):
            self.other.wait()
            kind = "compaction"

    def rewrite(self, kind: str, *, window: Window, then: str | None = None) -> bool:
        """Plan and execute, three times of four with one commit per bin; False if there is no bin.

        In the window of one of the first batches the other process commits once; with ``then`` it
        does that in the first batch.
        """
        max_bytes = self._random.choice((1, 1, 1, 1 << 30))
        plan, parts = self.planned(SELECTIONS[kind])
        if not plan.bins:
            return False
        if then is None:
            clock = _Clock(window, self._random.randrange(3), self.other.wait)
        else:
            clock = _Clock(window, 0, partial(self.other.ask, then))
        self.tally.windows[window.name] += 1
        made: list[int] = []
        try:
            for rows in self._executed(plan, parts, clock, max_bytes=max_bytes):
                self._take(rows, kind)
                made += {row["version"] for row in rows} - {None}
                is_late = not made or made[-1] > plan.version + len(made)
                self.tally.contested += is_late or any(r["state"] == "dropped" for r in rows)
        except ConflictError as error:
            self._end(error, kind)
        self._checkpoint(made)
        return True

    def planned(self, selection: Selection) -> tuple[CompactionPlan, list[Part]]:
        """A plan of the newest version, and the files with its bins."""
        head = table_head(Location.of(str(self.table)))
        rows = planned_bins(
            self.spark,
            head,
            selection,
            how=rewriting(head, selection),
            live_files=FILES,
            parallelism=1,
            scratch=self._scratch(),
        )
        written = rows.write(Target(self._scratch(), COMPACTION_ARROW, BINS_MEASURES, PLANNED))
        mark = commit_mark(head.location, head.version)
        plan = CompactionPlan(
            table=head.table,
            table_id=head.metadata.id,
            version=head.version,
            commit_mark=mark,
            planned_ms=_now_ms(),
            digest=f"{mark} {selection}",
            selection=selection,
            bins=written.measured["bins"],
            files=written.rows,
            bytes=written.measured["bytes"],
            rows=written.measured["rows"],
            considered_files=written.measured["considered"],
            left_out={},
            left_out_bytes={},
        )
        return plan, written.parts

    def whole_chain(self) -> None:
        """A compaction through Dagster, while the other process commits at any time."""
        try:
            done = self._compacting.compact().done
        except ConflictError as error:
            self._end(error, "whole chain")
            return
        assert done is not None and not done.failed and not done.refused
        self.tally.rounds["whole chain"] += bool(done.bins or done.dropped)
        self.tally.bins += Counter(committed=done.bins, dropped=done.dropped)

    def vacuum(self) -> None:
        """A vacuum through Dagster, with a commit between plan and deletion, of an old file."""
        assert History.of(self.table).own_orphans() == []
        stray = self.table / f"p=1/stray-{uuid.uuid4()}.parquet"
        stray.parent.mkdir(exist_ok=True)
        stray.write_bytes(b"stray")
        os.utime(stray, ns=((_now_ms() - DAY_MS) * 1_000_000,) * 2)
        report = self._vacuuming.plan()
        assert str(stray.relative_to(self.table)) in files(report)
        self.other.wait()
        done = self._vacuuming.execute(report)
        assert done.error is None and done.done is not None and not stray.exists()
        assert not done.done.active_missing and not done.done.failed
        self.tally.vacuumed += Counter(vacuums=1, files=done.done.files, skipped=done.done.skipped)

    def _executed(
        self, plan: CompactionPlan, parts: list[Part], clock: Callable[[], int], *, max_bytes: int
    ) -> Iterator[list[dict[str, Any]]]:
        """The ledger of each batch, as the executing stage writes it."""
        head = ready_head(plan, Location.of(plan.table), max_age_ms=DAY_MS, now_ms=_now_ms())
        found = rewrite_tasks(
            self.spark,
            parts,
            plan_bytes=plan.bytes,
            max_bytes=max_bytes,
            parallelism=1,
            table=plan.table,
        )
        terms = ExecutionParameters(plan, head, rewriting(head, plan.selection), clock)
        for batch in commit_batches(found, max_bytes=max_bytes):
            done = rewrite_batch(self.spark, batch, terms, scratch=self._scratch())
            yield done.to_pylist()

    def _take(self, rows: list[dict[str, Any]], kind: str) -> None:
        self.tally.rounds[kind] += 1
        self.tally.bins += Counter({row["bin"]: row["state"] for row in rows}.values())
        dropped = (row for row in rows if row["state"] == "dropped" and row["role"] == "input")
        self.tally.lost |= {row["path"] for row in dropped}

    def _end(self, error: ConflictError, kind: str) -> None:
        self.tally.rounds[kind] += 1
        self.tally.contested += 1
        self.tally.closed.append(str(error))

    def _checkpoint(self, made: list[int]) -> None:
        """Write a checkpoint as the executing stage does if one is due for its versions."""
        for version in [version for version in made if version % CHECKPOINT_INTERVAL == 0][-1:]:
            head = table_head(Location.of(str(self.table)), version=version)
            write_checkpoint(
                self.spark, head, parallelism=1, scratch=self._scratch(), now_ms=_now_ms()
            )
            self.tally.checkpoints += 1

    def _scratch(self) -> str:
        return str(self.workspace / str(uuid.uuid4()))


class _Clock:
    """The machine's clock; before one of its readings the other process commits."""

    def __init__(self, window: Window, batch: int, commit: Callable[[], None]) -> None:
        self._at = window and window + batch * Window.LOOKED
        self._commit, self._readings = commit, 0

    def __call__(self) -> int:
        self._readings += 1
        if self._readings == self._at:
            self._commit()
        return _now_ms()


def _now_ms() -> int:
    return int(time.time() * 1000)  # noqa: TID251 - as the top of ours


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe
