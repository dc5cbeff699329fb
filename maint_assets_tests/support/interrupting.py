"""Commands that are interrupted or killed while they delete, and what they leave behind."""

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
    """Create an empty file that was last modified years ago."""
    path.touch()
    os.utime(path, (OLD_S, OLD_S))


@dataclass(frozen=True)
class Strays:
    """A table of one live file and very many untracked ones."""

    table: Path
    count: int

    def make(self) -> Strays:
        """Write the table and its untracked files."""
        TableBuilder(self.table).create().add("live.parquet")
        for name in self.names:
            make_old(self.table / name)
        return self

    @property
    def names(self) -> set[str]:
        """The names of all untracked files."""
        return {f"stray-{number:05d}.parquet" for number in range(self.count)}

    @property
    def left(self) -> set[str]:
        """The untracked files that still exist."""
        return {path.name for path in self.table.glob("stray-*")}

    @property
    def gone(self) -> set[str]:
        """The untracked files that were deleted."""
        return self.names - self.left


@dataclass(frozen=True)
class Command:
    """A command of ``maint-assets`` on one table; ``stage`` is the one that deletes."""

    name: str
    table: Path
    stage: str

    @property
    def workspace(self) -> Path:
        """The directory of its plans and ledgers, next to the table."""
        return self.table.parent / "ws"

    def arguments(self, *options: str) -> list[str]:
        """The command line."""
        asked = ["--execute", "--yes", "--workspace", str(self.workspace), *options]
        return [sys.executable, "-m", "maint_assets.cli", self.name, str(self.table), *asked]

    def started(self) -> subprocess.Popen[str]:
        """Start the command in its own process group."""
        return subprocess.Popen(
            self.arguments(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def in_the_middle(self, *, batches: int = 2) -> subprocess.Popen[str]:
        """Start the command, and return once ``batches`` batches are recorded."""
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
        """The rows that all runs recorded for a stage, by default the one that deletes."""
        parts = self.workspace.glob(f"*/{stage or self.stage}/*/rows/part-*.parquet")
        return [row for part in parts for row in pq.read_table(part).to_pylist()]

    def deleted(self) -> set[str]:
        """The deleted paths in the ledger; asserts that no deletion failed."""
        rows = self.rows()
        assert all(row["outcome"] in {"deleted", "skipped"} for row in rows)
        return {row["path"] for row in rows if row["outcome"] == "deleted"}

    def open_batches(self) -> list[Path]:
        """Batches that were started but not recorded."""
        return list(self.workspace.glob(f"*/{self.stage}/*/rows/_intents/*.arrow"))


def signalled(process: subprocess.Popen[str], number: int, *, to_all: bool, times: int = 1) -> str:
    """Signal a process or its whole group, and return its output."""
    for _ in range(times):
        (os.killpg if to_all else os.kill)(process.pid, number)
        time.sleep(0.05)
    output, _ = process.communicate(timeout=END_SECONDS)
    return output


def when_still(seen: Callable[[], Seen]) -> Seen:
    """The value once it stops changing: when Spark's workers have noticed that Spark is gone."""
    before: Seen | None = None
    while (now := seen()) != before:
        before = now
        time.sleep(STILL_SECONDS)
    return now
