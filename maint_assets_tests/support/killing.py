"""Commands and calls that kill themselves at one step: as ``kill -9`` would.

    python -m maint_assets_tests.support.killing STEP arguments of maint-assets ...

A command is killed with all processes that it started. Spark starts its Python by this module
too, because executors write the data files.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import multiprocessing
import os
import runpy
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any, BinaryIO, Literal, NoReturn

MODULE = "maint_assets_tests.support.killing"

_STEP, _GROUP = "MAINT_ASSETS_KILLED_AT", "MAINT_ASSETS_KILLED_GROUP"
_STAGES = "maint_assets.assets.stages.compaction"
_WRITE = "maint_assets.storage.write"
_EXECUTION = "maint_assets.compaction.execution"
_CHECKPOINT = "maint_assets.commit.checkpoint.writer"
_ORDERED = "maint_assets.compaction.engines.ordered"
_ON_EXECUTORS = (_WRITE, _ORDERED)


@dataclass(frozen=True)
class Step:
    """A call before or after which all is killed, or in the middle of what it yields.

    By then ``commits`` are in the log, and ``orphans`` on the storage: new files that no commit
    names. ``left`` are files of the log that only log cleanup deletes.
    """

    call: str
    when: Literal["before", "after", "half"]
    nth: int = 1
    commits: int = 4
    orphans: int = 0
    left: str | None = None


STEPS = {
    "plan written": Step(f"{_STAGES}:rewrite_tasks", "before", commits=0),
    "data file half written": Step(f"{_WRITE}:new_file", "half", commits=0, orphans=1),
    "written by Spark": Step(
        "maint_assets.compaction.engines.spark:task_groups", "before", commits=0
    ),
    "copied from Spark": Step(f"{_WRITE}:shutil.copyfileobj", "before", commits=0, orphans=1),
    "ordered: sampled": Step(f"{_ORDERED}:write_runs", "before", commits=0),
    "ordered: divided": Step(f"{_ORDERED}:write_ordered_file", "before", commits=0),
    "ordered: written": Step(f"{_ORDERED}:_assembled", "before", commits=0, orphans=1),
    "data files written": Step(
        f"{_EXECUTION}:commit_rewrites", "before", nth=2, commits=1, orphans=1
    ),
    "commit put": Step(
        "maint_assets.commit.rewrite.committing:put_if_absent", "after", nth=2, commits=2
    ),
    "batch recorded": Step(f"{_STAGES}:Outcome.take", "before", nth=2, commits=2),
    "ledger written": Step(f"{_STAGES}:_checkpointed", "before"),
    "checkpoint copied": Step(f"{_CHECKPOINT}:_check", "before", left=".*.checkpoint.*.tmp"),
    "sidecars put": Step(f"{_CHECKPOINT}:put_if_absent", "before", left="_sidecars/*.parquet"),
    "checkpoint in place": Step(f"{_CHECKPOINT}:_with_hint", "before"),
    "hint copied": Step(
        "maint_assets.commit.whole_files:_synced", "after", nth=2, left="._last_checkpoint.*.tmp"
    ),
    "hint moved": Step("maint_assets.commit.checkpoint.last_checkpoint:replace_file", "after"),
}
"""The kill points of a compaction of four commits, in their order."""


def kill() -> NoReturn:
    """Kill the command's group and this Python worker's; in a forked call, kill its process."""
    for group in (int(os.environ[_GROUP]), 0) if _GROUP in os.environ else ():
        os.killpg(group, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


def exit_of_killed(step: Step, call: Callable[..., object], *arguments: object) -> int | None:
    """The exit code of a process that makes one call and is killed at the step.

    It is forked from a server that has imported the module of the call.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, call.__module__])
    process = context.Process(target=_call, args=(step, call, arguments))
    process.start()
    process.join()
    return process.exitcode


def arm(step: Step) -> None:
    """Wrap the step's call so that it kills the process."""
    module, _, name = step.call.partition(":")
    *outer, name = name.split(".")
    owner = functools.reduce(getattr, outer, import_module(module))
    wrapper = _half if step.when == "half" else functools.partial(_killing, step=step)
    setattr(owner, name, wrapper(getattr(owner, name)))


def _killing(call: Callable[..., Any], *, step: Step) -> Callable[..., Any]:
    calls = itertools.count(1)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        is_it = next(calls) == step.nth
        if is_it and step.when == "before":
            kill()
        found = call(*args, **kwargs)
        if is_it:
            kill()
        return found

    return wrapped


def _half(call: Callable[..., Any]) -> Callable[..., Any]:
    @contextlib.contextmanager
    def wrapped(*args: Any) -> Iterator[BinaryIO]:
        with call(*args) as file:
            yield file
            file.flush()
            os.truncate(file.fileno(), file.tell() // 2)
            kill()

    return wrapped


def _call(step: Step, call: Callable[..., object], arguments: tuple[object, ...]) -> None:
    arm(step)
    call(*arguments)


if __name__ == "__main__":
    if _STEP in os.environ:
        if STEPS[os.environ[_STEP]].call.startswith(_ON_EXECUTORS):  # others: the driver's
            arm(STEPS[os.environ[_STEP]])
        runpy.run_module("maint_assets.spark_daemon", run_name="__main__")
    else:
        step = sys.argv.pop(1)
        os.environ |= {_STEP: step, _GROUP: str(os.getpgrp())}
        arm(STEPS[step])
        import_module("maint_assets.cli").main()
