"""Record signals while a run executes in this process, also those that Dagster drops at its end."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from typing import TYPE_CHECKING

from maint_assets.assets.interrupts import SIGNALS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MOST_READ = 4096


@contextlib.contextmanager
def recorded_signals() -> Iterator[Callable[[], bool]]:
    """Context that records signals, also those that Dagster drops at the end of a run.

    SIGHUP is taken as SIGTERM, which Dagster keeps between two stages. Main thread only.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    reader, writer = socket.socketpair()
    for each in (reader, writer):
        each.settimeout(0)
    came = set[int]()

    def is_signalled() -> bool:
        with contextlib.suppress(BlockingIOError):
            came.update(reader.recv(_MOST_READ))
        return not came.isdisjoint(SIGNALS)

    with reader, writer, _hangup_as_term():
        before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        try:
            yield is_signalled
        finally:
            signal.set_wakeup_fd(before)


@contextlib.contextmanager
def _hangup_as_term() -> Iterator[None]:
    hangup = getattr(signal, "SIGHUP", None)
    if hangup is None or signal.getsignal(hangup) is not signal.SIG_DFL:
        yield
        return
    signal.signal(hangup, lambda *_: signal.raise_signal(signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(hangup, signal.SIG_DFL)
