"""End a stage in order after Ctrl-C, Terminate, SIGTERM or SIGHUP.

A signal is not raised at once: PySpark's call into the JVM would leave its response unread,
and the next call to the JVM would fail instead of the interrupt. It is kept, the tasks get a stop
sign, Spark's jobs are cancelled from another thread, and the interrupt is raised when the
stage has come to its end. After PATIENCE_SECONDS it is raised in the middle.

Once the work of a stage is done, ``hold`` lets its result count: Dagster records it, and the run
starts nothing more.
"""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
import time
from typing import TYPE_CHECKING

import dagster as dg

from maint_assets.errors import MaintError, StoppedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from dagster_shared.error import SerializableErrorInfo

INTERRUPTS = (KeyboardInterrupt, dg.DagsterExecutionInterruptedError)

PATIENCE_SECONDS = 60.0
GRACE_SECONDS = 3.0
"""How long deleting tasks may take to end by themselves before Spark cancels their job."""

_AGAIN_SECONDS = 0.5
_CANCEL_SECONDS = 5.0
SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
_NAMES = {"KeyboardInterrupt", "DagsterExecutionInterruptedError", "RunStoppedError"}

_MOST_STOPPED = 100

_stopped: dict[str, MaintError] = {}
"""The last interrupted runs of this process, each with its error."""


class RunStoppedError(dg.DagsterExecutionInterruptedError, dg.DagsterError):
    """The interrupt that ends a run.

    Dagster retries a step after a mere interrupt where it has a retry policy. An error of its own
    it does not retry, and an interrupt ends the whole run: this is both.
    """


def stop_error(run_id: str) -> MaintError | None:
    """The error of a run that was interrupted in one of its stages; None for other runs."""
    return _stopped.get(run_id)


def refuse_stopped(run_id: str) -> None:
    """Raise RunStoppedError in a run that was interrupted."""
    if run_id in _stopped:
        raise RunStoppedError(f"nothing more is started: {_stopped[run_id]}")


def is_interrupt(error: SerializableErrorInfo | None) -> bool:
    """Whether an error that Dagster recorded is an interrupt, or was caused by one."""
    while error is not None and error.cls_name not in _NAMES:
        error = error.cause
    return error is not None


@contextlib.contextmanager
def ending_its_run(run_id: str, where: str) -> Iterator[None]:
    """Context in which any interrupt ends the run, also one outside ``interruptible``."""
    try:
        yield
    except RunStoppedError:
        raise
    except INTERRUPTS:
        raise _noted(run_id, _stopped_early(where)) from None


def _stopped_early(where: str) -> StoppedError:
    return StoppedError(where, "stopped before its end", "run it again to finish")


def _noted(run_id: str, error: MaintError) -> RunStoppedError:
    """Record the interrupt of a run, so that it starts no further stage."""
    _stopped[run_id] = error
    while len(_stopped) > _MOST_STOPPED:
        _stopped.pop(next(iter(_stopped)))
    return RunStoppedError(str(error))


class Interrupts:
    """The interrupts of one stage: whether it is to stop, and whether its result counts."""

    def __init__(self, run_id: str, where: str) -> None:
        self.run_id, self.where = run_id, where
        self.is_asked = self.is_held = False
        self.cancel: Callable[[], object] = lambda: None
        self.stop_tasks: Callable[[], object] | None = None
        self._is_late = False
        self._heard: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._main = threading.main_thread().ident or 0

    def refuse(self) -> None:
        """Raise DagsterExecutionInterruptedError if the stage is to stop."""
        if self.is_asked:
            raise dg.DagsterExecutionInterruptedError(self.where)

    def hold(self) -> None:
        """Defer interrupts until the result is recorded: the work is done."""
        self.is_held = True

    def install(self) -> dict[int, object]:
        """Install the signal handlers; returns the former ones."""
        heard = [each for each in SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]
        return {each: signal.signal(each, self._hear) for each in heard}

    def uninstall(self, previous: dict[int, object]) -> None:
        """Restore the handlers, except where Dagster has installed its own meanwhile."""
        for number, handler in previous.items():
            if signal.getsignal(number) == self._hear:
                signal.signal(number, handler)  # pyright: ignore[reportArgumentType]

    def watch(self) -> threading.Thread:
        """Start the thread that acts on a signal."""
        thread = threading.Thread(target=self._watch, name="interrupts", daemon=True)
        thread.start()
        return thread

    def ended(self) -> None:
        """Mark the stage as ended."""
        self._heard.put(None)

    def as_raised(self, cause: BaseException | None) -> BaseException:
        """Record the interrupt, so that the run starts no further stage, and return it."""
        error = cause if isinstance(cause, MaintError) else None
        return _noted(self.run_id, error or _stopped_early(self.where))

    def note_held(self) -> None:
        """Record an interrupt that came after the work was done: no further stage starts."""
        found = "interrupted when all was done, and recorded"
        _noted(self.run_id, StoppedError(self.where, found, "nothing more was started"))

    def _hear(self, number: int, _: FrameType | None) -> None:
        self.is_asked = True
        self._heard.put(number)  # takes no lock that this thread may hold
        if self._is_late:
            raise dg.DagsterExecutionInterruptedError(self.where)

    def _watch(self) -> None:
        if (number := self._heard.get()) is None:
            return
        late = time.monotonic() + PATIENCE_SECONDS
        pause = 0.0
        if self.stop_tasks is not None:
            pause = GRACE_SECONDS
            with contextlib.suppress(OSError):
                self.stop_tasks()
        while not self._has_ended(pause):
            if time.monotonic() > late:
                self._is_late = True
                signal.pthread_kill(self._main, number)
                return
            helper = threading.Thread(target=self._cancelled, daemon=True)
            helper.start()
            helper.join(_CANCEL_SECONDS)
            pause = _AGAIN_SECONDS

    def _cancelled(self) -> None:
        with contextlib.suppress(Exception):  # the JVM may be gone, or the job at its end
            self.cancel()

    def _has_ended(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while True:
            try:
                if self._heard.get(timeout=max(until - time.monotonic(), 0)) is None:
                    return True
            except queue.Empty:
                return False


@contextlib.contextmanager
def interruptible(run_id: str, where: str) -> Iterator[Interrupts]:
    """Context in which a signal first ends the stage in order, and is raised after that.

    Whatever else the stage ends with then, the interrupt is what it raises; none where its result
    counts. Main thread only.
    """
    refuse_stopped(run_id)
    found = Interrupts(run_id, where)
    is_main = threading.current_thread() is threading.main_thread()
    previous = found.install() if is_main else {}
    watcher = found.watch() if is_main else None
    ended: BaseException | None = None
    try:
        yield found
    except GeneratorExit:  # Dagster gave the stage up after its result
        raise
    except BaseException as error:
        ended = error
        if not found.is_asked and not isinstance(error, INTERRUPTS):
            raise
        found.is_asked = True
    finally:
        found.ended()
        if watcher is not None:
            watcher.join(_CANCEL_SECONDS)
        if threading.current_thread() is threading.main_thread():
            found.uninstall(previous)
    if ended is not None or (found.is_asked and not found.is_held):
        raise found.as_raised(ended) from None
    if found.is_asked:
        found.note_held()
