"""The ledger of a deletion: the outcome of each planned path, one Parquet file per batch.

An intent with the paths of a batch is written before its first deletion (``datasets.intents``), the
outcomes after its last, so that no deleted path lacks a row even if the process is killed.
"""

from __future__ import annotations

import contextlib
import io
import pathlib
import uuid
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from maint_assets.datasets import intents
from maint_assets.datasets.parts import Part, largest
from maint_assets.errors import StorageError, one_line
from maint_assets.storage import read, write
from maint_assets.storage.deletions import Deletion

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from maint_assets.storage.location import Location

BATCH_PATHS = 1_000
"""Paths per batch."""

MOST_ROOM = 4 * 1024 * 1024
"""Free bytes that the ledger's file system needs before anything is deleted, at most."""

SHOWN_PARTS = 8
"""Batches that a preview of a ledger reads."""


_LOG = "_delta_log"
_FOUND_GONE = Deletion("deleted", "interrupted; found gone afterwards")
_LEFT = Deletion("skipped", "interrupted before its deletion")


class DeletionLocations(NamedTuple):
    """The locations of a deletion: of the table, and of the ledger that records it."""

    table: Location
    ledger: Location


class Tally(NamedTuple):
    """Outcome counts of a ledger, for files and for directories, and the bytes deleted."""

    files: Counter[str]
    directories: Counter[str]
    bytes: int

    @property
    def paths(self) -> int:
        """The number of paths that have an outcome."""
        return self.files.total() + self.directories.total()


def refuse_unrecorded(ledger: Location, paths: int) -> None:
    """Raise StorageError if there is no room to record the outcomes of ``paths`` paths."""
    write.refuse_full(ledger, min(MOST_ROOM, BATCH_PATHS * 64 + paths * 128))


@contextlib.contextmanager
def recording(
    ledger: Location, rows: pa.Table, *, schema: pa.Schema, table: str
) -> Generator[list[Deletion], None, None]:
    """Context in which one batch is deleted: writes the intent on entry, the outcomes on exit.

    Append the outcomes of ``rows`` in order to the yielded list; rows without one were not reached.
    Raises StorageError if the intent cannot be written (nothing is deleted then) or the outcomes
    cannot (the intent stays, for ``settle``).
    """
    batch, outcomes = str(uuid.uuid4()), list[Deletion]()
    try:
        intents.write_intent(ledger, batch, rows)
    except OSError as error:
        found = f"the ledger {ledger.uri} cannot be written ({one_line(error)})"
        raise StorageError(table, found, "make room, and run the deletion again") from error
    try:
        yield outcomes
    except BaseException:
        # The outcome of the path in progress is unknown: it and the rest stay an intent.
        with contextlib.suppress(OSError, StorageError):
            intents.write_intent(ledger, str(uuid.uuid4()), rows.slice(len(outcomes)))
            _close(ledger, batch, acted=(rows, outcomes), schema=schema, table=table)
        raise
    _close(ledger, batch, acted=(rows, outcomes), schema=schema, table=table)


def _close(
    ledger: Location,
    batch: str,
    *,
    acted: tuple[pa.Table, list[Deletion]],
    schema: pa.Schema,
    table: str,
) -> None:
    """Record the outcomes of the rows that were reached, and remove the intent.

    Another host may have taken this batch for dead and settled it by what it saw: then the outcomes
    are recorded beside its own.
    """
    rows, outcomes = acted
    reached = rows.slice(0, len(outcomes))
    for name in (batch, str(uuid.uuid4())):
        if not outcomes or record(
            ledger, reached, outcomes, schema=schema, table=table, batch=name
        ):
            break
    intents.remove_intent(ledger, batch)


def settle(
    ledger: Location,
    *,
    schema: pa.Schema,
    table: Location,
    is_over: Callable[[intents.Intent], bool],
) -> int:
    """Record the batches that a killed task left open; return how many are still being deleted.

    The outcome of a path is what the storage shows: gone (deleted) or there (skipped). Where it
    shows no table (not mounted) or raises an error, the batch stays open. Raises OSError.
    """
    left = 0
    for intent in intents.open_intents(ledger):
        if not is_over(intent) or not read.has_directory(table, _LOG):
            left += 1
            continue
        if not read.exists(ledger, _part(intent.batch)) and (rows := intent.rows()) is not None:
            there = read.sizes_and_mtimes(table, rows["path"].to_pylist())
            outcomes = [_LEFT if found else _FOUND_GONE for found in there]
            record(ledger, rows, outcomes, schema=schema, table=table.uri, batch=intent.batch)
        intents.remove_intent(ledger, intent.batch)
    return left


def tally(ledger: Location) -> Tally:
    """Count the outcomes recorded so far. A path that two task attempts reached counts twice."""
    found = Tally(Counter(), Counter(), 0)
    size = 0
    for path in ledger_files(ledger):
        rows = pq.read_table(path, columns=["outcome", "kind", "size"])
        is_directory = pc.equal(rows["kind"], "directory")
        found.directories.update(rows["outcome"].filter(is_directory).to_pylist())
        files = rows.filter(pc.invert(is_directory))
        found.files.update(files["outcome"].to_pylist())
        gone = files["size"].filter(pc.equal(files["outcome"], "deleted"))
        size += pc.sum(gone, min_count=0).as_py()
    return found._replace(bytes=size)


def record(
    ledger: Location,
    rows: pa.Table,
    outcomes: Sequence[Deletion],
    *,
    schema: pa.Schema,
    table: str,
    batch: str,
) -> bool:
    """Write planned rows with their outcomes, errors and batch id as one file of the ledger.

    False if that batch is recorded already. Raises StorageError.
    """
    outcome_columns = {
        "outcome": pa.array([done.outcome for done in outcomes], pa.string()),
        "error": pa.array([done.error for done in outcomes], pa.string()),
        "batch": pa.array([batch] * len(outcomes), pa.string()),
    }
    columns = [
        outcome_columns[name] if name in outcome_columns else rows[name] for name in schema.names
    ]
    body = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(columns, schema=schema), body)
    try:
        return write.put_if_absent(ledger, _part(batch), body.getvalue())
    except OSError as error:
        raise StorageError(
            table,
            f"the ledger {ledger.uri} cannot be written ({one_line(error)}): the outcomes "
            f"of the last {len(outcomes)} paths are not recorded yet",
            "make room and run it again, which records them",
        ) from error


def _part(batch: str) -> str:
    return f"part-{batch}.parquet"


def ledger_files(ledger: Location) -> list[str]:
    """Paths of the ledger's files so far, one per batch."""
    return sorted(str(path) for path in pathlib.Path(ledger.path).glob("part-*.parquet"))


def ledger_parts(ledger: Location) -> tuple[list[Part], list[dict[str, Any]]]:
    """The ledger as parts, and the largest rows of its first SHOWN_PARTS batches."""
    paths = ledger_files(ledger)
    parts = [Part(path, pq.read_metadata(path).num_rows) for path in paths]
    shown = [pq.read_table(path) for path in paths[:SHOWN_PARTS]]
    return parts, largest(pa.concat_tables(shown)) if shown else []
