"""Commands that are interrupted or killed while they delete, and what they leave: for tests."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pyarrow.parquet as pq

from maint_assets_tests.support.builder import TableBuilder

OLD_S = 1.6e9
START_SECONDS = 180
STILL_SECONDS = 2
END_SECONDS = 60

Seen = TypeVar("Seen")


def make_old(path: Path) -> None:
    """An empty file that was last written years ago."""
    path.touch()
    os.utime(path, (OLD_S, OLD_S))


@dataclass(frozen=True)
class Strays:
    """A table of one live file and very many that may go."""

    table: Path
    count: int

    def make(self) -> Strays:
        """The same, written."""
        TableBuilder(self.table).create().add("live.parquet")
        for name in self.names:
            make_old(self.table / name)
        return self

    @property
    def names(self) -> set[str]:
        """All that may go."""
        return {f"stray-{number:05d}.parquet" for number in range(self.count)}

    @property
    def left(self) -> set[str]:
        """Those that are there."""
        return {path.name for path in self.table.glob("stray-*")}

    @property
    def gone(self) -> set[str]:
        """Those that are not."""
        return self.names - self.left


@dataclass(frozen=True)
class Command:
    """A command of ``maint-assets`` on one table, its workspace beside it; ``stage`` deletes."""

    name: str
    table: Path
    stage: str

    @property
    def workspace(self) -> Path:
        """Where its plans and ledgers are."""
        return self.table.parent / "ws"

    def arguments(self, *options: str) -> list[str]:
        """What starts it."""
        asked = ["--execute", "--yes", "--workspace", str(self.workspace), *options]
        return [sys.executable, "-m", "maint_assets.cli", self.name, str(self.table), *asked]

    def started(self) -> subprocess.Popen[str]:
        """The process, in a group of its own."""
        return subprocess.Popen(
            self.arguments(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def in_the_middle(self, *, batches: int = 2) -> subprocess.Popen[str]:
        """The process once so many batches are recorded."""
        process, deadline = self.started(), time.monotonic() + START_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            if len(self.parts()) >= batches:
                break
            time.sleep(0.002)
        return process

    def parts(self) -> list[Path]:
        """The files of its ledgers."""
        return sorted(self.workspace.glob(f"*/{self.stage}/*/rows/part-*.parquet"))

    def rows(self, stage: str | None = None) -> list[dict[str, Any]]:
        """What all runs recorded of a stage, of the one that deletes if none is named."""
        parts = self.workspace.glob(f"*/{stage or self.stage}/*/rows/part-*.parquet")
        return [row for part in parts for row in pq.read_table(part).to_pylist()]

    def deleted(self) -> set[str]:
        """The paths that are deleted by the ledger; nothing failed."""
        rows = self.rows()
        assert all(row["outcome"] in {"deleted", "skipped"} for row in rows)
        return {row["path"] for row in rows if row["outcome"] == "deleted"}

    def open_batches(self) -> list[Path]:
        """Batches that were begun and not recorded."""
        return list(self.workspace.glob(f"*/{self.stage}/*/rows/_intents/*.arrow"))


def signalled(process: subprocess.Popen[str], number: int, *, to_all: bool, times: int = 1) -> str:
    """What a process, or all of its group, said that got a signal."""
    for _ in range(times):
        (os.killpg if to_all else os.kill)(process.pid, number)
        time.sleep(0.05)
    said, _ = process.communicate(timeout=END_SECONDS)
    return said


def when_still(seen: Callable[[], Seen]) -> Seen:
    """What there is once Spark's Python workers have noticed that Spark is gone."""
    before: Seen | None = None
    while (now := seen()) != before:
        before = now
        time.sleep(STILL_SECONDS)
    return now
