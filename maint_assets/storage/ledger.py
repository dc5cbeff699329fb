"""The record of what became of each planned path: a file a batch, there before the next batch.

Before a batch its paths are noted as an intent (``storage.intents``), so that a kill in the middle
leaves no deleted path without its row.
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

from maint_assets.errors import StorageError, one_line
from maint_assets.storage import intents, read, write
from maint_assets.storage.parts import Part, largest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from maint_assets.storage.location import Location

BATCH_PATHS = 1_000
"""Paths that are acted on between two records."""

MOST_ROOM = 4 * 1024 * 1024
"""Bytes that the ledger's place must take, at most, before anything is deleted."""

SHOWN_PARTS = 8
"""A preview of a ledger looks at so many batches."""


_FOUND_GONE = write.Deletion("deleted", "interrupted; found gone afterwards")
_LEFT = write.Deletion("skipped", "interrupted before its deletion")


class Tally(NamedTuple):
    """Outcomes of paths in a ledger: how many of files and of directories; bytes deleted."""

    files: Counter[str]
    directories: Counter[str]
    bytes: int

    @property
    def paths(self) -> int:
        """How many paths have an outcome."""
        return self.files.total() + self.directories.total()


def refuse_unrecorded(ledger: Location, paths: int) -> None:
    """StorageError where the outcomes of so many paths could not be recorded."""
    write.refuse_full(ledger, min(MOST_ROOM, BATCH_PATHS * 64 + paths * 128))


@contextlib.contextmanager
def recording(
    ledger: Location, rows: pa.Table, *, schema: pa.Schema, table: str
) -> Generator[list[write.Deletion], None, None]:
    """Within it a batch is acted on: its intent is there before, the outcomes come afterwards.

    The outcomes are those of the first rows, in their order. Raises StorageError where nothing can
    be recorded: before the first path, or with the intent left for ``settle``.
    """
    batch, outcomes = str(uuid.uuid4()), list[write.Deletion]()
    try:
        intents.note(ledger, batch, rows)
    except OSError as error:
        found = f"the ledger {ledger.uri} cannot be written ({one_line(error)})"
        raise StorageError(table, found, "make room and run the deletion again") from error
    try:
        yield outcomes
    except BaseException:
        # Nobody knows what became of the path at which it ended: the rest stays an intent.
        with contextlib.suppress(OSError, StorageError):
            intents.note(ledger, str(uuid.uuid4()), rows.slice(len(outcomes)))
            _close(ledger, batch, acted=(rows, outcomes), schema=schema, table=table)
        raise
    _close(ledger, batch, acted=(rows, outcomes), schema=schema, table=table)


def _close(
    ledger: Location,
    batch: str,
    *,
    acted: tuple[pa.Table, list[write.Deletion]],
    schema: pa.Schema,
    table: str,
) -> None:
    """Records the outcomes of the first rows of a batch, and forgets its intent."""
    rows, outcomes = acted
    if outcomes:
        record(
            ledger,
            rows.slice(0, len(outcomes)),
            outcomes,
            schema=schema,
            table=table,
            batch=batch,
        )
    intents.forget(ledger, batch)


def settle(
    ledger: Location,
    *,
    schema: pa.Schema,
    table: Location,
    is_over: Callable[[intents.Intent], bool],
) -> int:
    """How many batches are open still, once those that are over have their outcomes.

    The outcome of a path that was not recorded is seen on the storage: gone, or there.
    """
    left = 0
    for intent in intents.noted(ledger):
        if not is_over(intent):
            left += 1
            continue
        if not read.exists(ledger, _part(intent.batch)) and (rows := intent.rows()) is not None:
            there = (read.exists(table, path) for path in rows["path"].to_pylist())
            outcomes = [_LEFT if found else _FOUND_GONE for found in there]
            record(ledger, rows, outcomes, schema=schema, table=table.uri, batch=intent.batch)
        intents.forget(ledger, intent.batch)
    return left


def tally(ledger: Location) -> Tally:
    """What a ledger says so far; of a path that two attempts came to, each says its own."""
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
    outcomes: Sequence[write.Deletion],
    *,
    schema: pa.Schema,
    table: str,
    batch: str | None = None,
) -> None:
    """Puts planned rows with their outcomes, errors and a batch id into a ledger.

    Raises StorageError that names the table.
    """
    batch = batch or str(uuid.uuid4())
    told = {
        "outcome": pa.array([done.outcome for done in outcomes], pa.string()),
        "error": pa.array([done.error for done in outcomes], pa.string()),
        "batch": pa.array([batch] * len(outcomes), pa.string()),
    }
    columns = [told[name] if name in told else rows[name] for name in schema.names]
    body = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(columns, schema=schema), body)
    try:
        write.put_if_absent(ledger, _part(batch), body.getvalue())
    except OSError as error:
        raise StorageError(
            table,
            f"the ledger {ledger.uri} cannot be written ({one_line(error)}): what became "
            f"of the last {len(outcomes)} paths is not recorded yet",
            "make room and run it again, which records them",
        ) from error


def _part(batch: str) -> str:
    return f"part-{batch}.parquet"


def ledger_files(ledger: Location) -> list[str]:
    """The files of a ledger so far, one a batch."""
    return sorted(str(path) for path in pathlib.Path(ledger.path).glob("part-*.parquet"))


def ledger_parts(ledger: Location) -> tuple[list[Part], list[dict[str, Any]]]:
    """The parts of a ledger, and the largest rows of the first of them."""
    paths = ledger_files(ledger)
    parts = [Part(path, pq.read_metadata(path).num_rows) for path in paths]
    shown = [pq.read_table(path) for path in paths[:SHOWN_PARTS]]
    return parts, largest(pa.concat_tables(shown)) if shown else []
