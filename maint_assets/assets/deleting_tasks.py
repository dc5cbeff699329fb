"""Run deleting tasks so that, however the stage ends, each deleted path is in the ledger."""

from __future__ import annotations

import contextlib
import logging
import time
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from maint_assets.assets.interrupts import INTERRUPTS
from maint_assets.assets.stage_store import Dataset
from maint_assets.datasets import intents
from maint_assets.datasets.columns import arrow_schema
from maint_assets.datasets.ledger import ledger_parts, settle, tally
from maint_assets.errors import MaintError, StoppedError, StorageError, one_line
from maint_assets.log_cleanup.deletion import DELETED_LOGS_SCHEMA
from maint_assets.storage.location import Location
from maint_assets.vacuum.deletion import DELETION_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from maint_assets.assets.stage_run import StageRun
    from maint_assets.assets.stage_store import StageStore
    from maint_assets.config import TableSettings

logger = logging.getLogger(__name__)

WAIT_SECONDS = 30.0
"""How long the end of a stage waits for tasks that still delete."""

LEASE_SECONDS = 600.0
"""Lease of a batch started on another host: until then it counts as running."""

_UNSETTLED = "unsettled"
"""Directory in a table's workspace with a mark for each ledger that may have open batches."""

_LEDGERS = {
    "deletion": arrow_schema(DELETION_SCHEMA),
    "deleted_logs": arrow_schema(DELETED_LOGS_SCHEMA),
}


@contextlib.contextmanager
def deleting(run: StageRun, planned: int, *, digest: str) -> Iterator[None]:
    """Context in which tasks delete. On exit no task deletes, and each deleted path has its row.

    Raises StoppedError, with the number of deleted paths, after an interrupt.
    """
    ledger = run.output.rows_location
    run.refuse_stopping()
    _end_former_attempt(run)
    if run.session is not None:  # before the check: a signal in between would give no sign
        run.session.interrupts.stop_tasks = partial(intents.request_stop, ledger)
    run.refuse_stopping()
    mark = _marked(run)
    try:
        yield
        run.refuse_stopping()
    except BaseException as error:
        with contextlib.suppress(OSError):
            intents.request_stop(ledger)
        left = _settled(run, wait_s=WAIT_SECONDS)
        with contextlib.suppress(MaintError, OSError):
            written = Dataset(tally(ledger).paths, digest, {})
            run.output.write_manifest(written, *ledger_parts(ledger))
        if run.is_stopping or isinstance(error, INTERRUPTS):
            raise _stopped(run.table.uri, ledger, planned=planned, left=left) from error
        raise
    if _settled(run, wait_s=WAIT_SECONDS) == 0:
        mark.unlink(missing_ok=True)


def refuse_unreached(reached: int, planned: int, *, table: str, ledger: Location) -> None:
    """Raise StorageError if planned paths have no outcome: tasks ended before they reached them."""
    if reached != planned:
        found = f"{reached:,} of {planned:,} planned paths have an outcome"
        raise StorageError(table, found, f"see the ledger {ledger.path}, and run it again")


def settle_former(store: StageStore, table: TableSettings) -> None:
    """Record what killed runs of a table deleted last; batches still running are left alone.

    A mark holds the location of its table: another table may have that name now. Other files than
    marks are left alone.
    """
    base = Location.of(store.base_uri).below(table.name)
    for mark in base.file(_UNSETTLED).glob("*"):
        stage, _, run_id = mark.name.partition(".")
        if stage not in _LEDGERS or not run_id:
            continue
        ledger = store.dataset(table.name, stage, run_id).rows_location
        with contextlib.suppress(MaintError, OSError, msgspec.DecodeError, UnicodeDecodeError):
            # The next run tries again.
            is_old = time.time() - mark.stat().st_mtime > LEASE_SECONDS
            place = msgspec.json.decode(mark.read_bytes(), type=Location)
            if not settle(ledger, schema=_LEDGERS[stage], table=place, is_over=_is_over) and is_old:
                mark.unlink()


def _end_former_attempt(run: StageRun) -> None:
    """Withdraw the stop sign of a former attempt of this stage, once none of its tasks deletes.

    Dagster repeats a stage in the same run, with the same ledger, where a job has a retry policy.
    """
    ledger = run.output.rows_location
    if not intents.is_stop_requested(ledger):
        return
    left = _settled(run, wait_s=WAIT_SECONDS)
    if left != 0:
        found = f"{_tasks(left)} of the attempt before may still delete"
        raise StorageError(run.table.uri, found, "run it again when they have ended")
    intents.withdraw_stop(ledger)


def _marked(run: StageRun) -> Path:
    """Write the mark of a ledger that may have open batches, so that later runs find it at once."""
    place = Location.of(run.store.base_uri).below(run.table.name)
    mark = place.file(f"{_UNSETTLED}/{run.stage}.{run.run_ids[0]}")
    try:
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.write_bytes(msgspec.json.encode(run.location))
    except OSError as error:
        found = f"the workspace {place.uri} cannot be written ({one_line(error)})"
        raise StorageError(run.table.uri, found, "free disk space and run again") from error
    return mark


def _settled(run: StageRun, *, wait_s: float) -> int | None:
    """The number of this stage's batches that are still open after waiting for them.

    None if an error of the storage keeps it unknown: the intents are left to the next run.
    """
    ledger, until = run.output.rows_location, time.monotonic() + wait_s
    table, schema = run.location, _LEDGERS[run.stage]
    try:
        while left := settle(ledger, schema=schema, table=table, is_over=_is_over):
            if time.monotonic() > until:
                break
            time.sleep(0.05)
    except (MaintError, OSError) as error:
        logger.warning("the open batches of %s are not settled: %s", ledger.uri, one_line(error))
        left = None
    intents.remove_leftovers(ledger)
    return left


def _tasks(left: int | None) -> str:
    return "an unknown number of tasks" if left is None else f"{left} tasks"


def _is_over(intent: intents.Intent) -> bool:
    return not intent.is_acting(now_s=time.time(), lease_s=LEASE_SECONDS)


def _stopped(table: str, ledger: Location, *, planned: int, left: int | None) -> StoppedError:
    done = tally(ledger)
    deleted = done.files["deleted"] + done.directories["deleted"]
    found = f"stopped: {deleted:,} of {planned:,} paths were deleted, see the ledger {ledger.path}"
    if left != 0:
        found += f"; {_tasks(left)} did not end within {WAIT_SECONDS:.0f} s and may still delete"
    return StoppedError(table, found, "run it again to finish")
