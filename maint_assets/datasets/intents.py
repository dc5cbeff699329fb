"""Intents of deletion batches: written before a batch starts, removed once it is recorded.

An intent that still exists belongs to a task that is running or was killed; it names its process
(machine, pid, start time). Intents lie below the ledger under names that Parquet readers skip.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import time
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator

    from maint_assets.storage.location import Location

LOOK_SECONDS = 0.1
"""How often a task checks for the stop sign."""

_INTENTS, _SIGN = "_intents", "_stop"
_OWNER = b"owner"


@dataclass(frozen=True, slots=True)
class Intent:
    """A batch that was started and whose outcomes are not recorded yet, and its file."""

    batch: str
    path: pathlib.Path

    def rows(self) -> pa.Table | None:
        """The planned rows; None if the intent is incomplete, so that the batch never started."""
        try:
            with pa.ipc.open_file(self.path.read_bytes()) as file:
                return file.read_all()
        except (OSError, pa.ArrowException):
            return None

    def is_acting(self, *, now_s: float, lease_s: float) -> bool:
        """Whether its task may still be deleting.

        On this machine: the process is alive. On another: the batch started less than ``lease_s``
        seconds ago.
        """
        try:
            with pa.ipc.open_file(self.path.read_bytes()) as file:
                owner = (file.schema.metadata or {}).get(_OWNER, b"").decode()
            began_s = self.path.stat().st_mtime
        except (OSError, pa.ArrowException):
            return False
        machine, _, process = owner.partition("|")
        if machine == _machine():
            pid, _, started = process.partition("|")
            return _started(int(pid)) == started
        return now_s - began_s < lease_s


def write_intent(ledger: Location, batch: str, rows: pa.Table) -> None:
    """Write the planned rows of a batch, and the owning process, before any of them is deleted."""
    target = _intent(ledger, batch)
    target.parent.mkdir(parents=True, exist_ok=True)
    owner = f"{_machine()}|{os.getpid()}|{_own_start(os.getpid())}"
    marked = rows.replace_schema_metadata({_OWNER: owner.encode()})
    partial = target.with_suffix(".tmp")
    with pa.OSFile(str(partial), "wb") as file, pa.ipc.new_file(file, marked.schema) as writer:
        writer.write_table(marked)
    partial.rename(target)  # an intent under its own name is complete


def remove_intent(ledger: Location, batch: str) -> None:
    """Remove the intent of a batch whose outcomes are recorded."""
    target = _intent(ledger, batch)
    target.unlink(missing_ok=True)


def open_intents(ledger: Location) -> Iterator[Intent]:
    """All intents that still exist, by batch id."""
    for path in sorted(pathlib.Path(ledger.path, _INTENTS).glob("*.arrow")):
        yield Intent(path.stem, path)


def remove_leftovers(ledger: Location) -> None:
    """Remove incomplete intents, and their directory if it is empty.

    The stop sign stays, for tasks that start late.
    """
    with contextlib.suppress(OSError):
        for left in ledger.file(_INTENTS).glob("*.tmp"):
            left.unlink(missing_ok=True)
        ledger.file(_INTENTS).rmdir()


def request_stop(ledger: Location) -> None:
    """Request that all tasks that write to this ledger stop."""
    sign = ledger.file(_SIGN)
    sign.parent.mkdir(parents=True, exist_ok=True)
    sign.touch()


def withdraw_stop(ledger: Location) -> None:
    """Let tasks write to this ledger again."""
    ledger.file(_SIGN).unlink(missing_ok=True)


def is_stop_requested(ledger: Location) -> bool:
    """Whether tasks that write to this ledger are to stop."""
    return os.path.lexists(ledger.file(_SIGN))


class StopSign:
    """The signal for a task to stop: a file beside the ledger, or the death of its parent process.

    Needed because Spark's job cancellation does not end a Python worker in the middle of a batch.
    """

    def __init__(self, ledger: Location) -> None:
        self._path, self._parent = str(ledger.file(_SIGN)), os.getppid()
        self._given, self._looked = False, 0.0

    def is_set(self, *, at_once: bool = False) -> bool:
        """Whether to stop. The result is cached for LOOK_SECONDS, unless ``at_once``."""
        now = time.monotonic()
        if not self._given and (at_once or now - self._looked >= LOOK_SECONDS):
            self._looked = now
            # Linux gives an orphaned process another parent.
            self._given = os.getppid() != self._parent or os.path.lexists(self._path)
        return self._given


def _intent(ledger: Location, batch: str) -> pathlib.Path:
    return ledger.file(f"{_INTENTS}/{batch}.arrow")


@cache
def _machine() -> str:
    """Where a pid means this process: host, boot and pid namespace (containers share hosts)."""
    found = [socket.gethostname()]
    with contextlib.suppress(OSError):
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
        found += [boot.strip(), str(pathlib.Path("/proc/self/ns/pid").readlink())]
    return "/".join(found)


@cache
def _own_start(pid: int) -> str:
    return _started(pid) or ""


def _started(pid: int) -> str | None:
    """Start time of a local process, in clock ticks since boot; None if it is gone.

    With the pid it identifies a process, since pids are reused. "" where there is no /proc.
    """
    with contextlib.suppress(OSError):
        text = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        fields = text.rpartition(")")[2].split()
        return None if fields[0] in {"Z", "X"} else fields[19]
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        return ""
    return ""
