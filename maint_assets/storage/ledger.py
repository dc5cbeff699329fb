"""The record of what became of each planned path: a file a batch, there before the next batch."""

from __future__ import annotations

import io
import pathlib
import uuid
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from maint_assets.errors import StorageError, one_line
from maint_assets.storage import write
from maint_assets.storage.parts import Part, largest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from maint_assets.storage.location import Location

BATCH_PATHS = 1_000
"""Paths that are acted on between two records."""

MOST_ROOM = 4 * 1024 * 1024
"""Bytes that the ledger's place must take, at most, before anything is deleted."""

SHOWN_PARTS = 8
"""A preview of a ledger looks at so many batches."""


def refuse_unrecorded(ledger: Location, paths: int) -> None:
    """StorageError where the outcomes of so many paths could not be recorded."""
    write.refuse_full(ledger, min(MOST_ROOM, BATCH_PATHS * 64 + paths * 128))


def record(
    ledger: Location,
    rows: pa.Table,
    outcomes: Sequence[write.Deletion],
    *,
    schema: pa.Schema,
    table: str,
) -> None:
    """Puts planned rows with their outcomes, errors and a batch id into a ledger.

    Raises StorageError that names the table.
    """
    batch = str(uuid.uuid4())
    told = {
        "outcome": pa.array([done.outcome for done in outcomes], pa.string()),
        "error": pa.array([done.error for done in outcomes], pa.string()),
        "batch": pa.array([batch] * len(outcomes), pa.string()),
    }
    columns = [told[name] if name in told else rows[name] for name in schema.names]
    body = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(columns, schema=schema), body)
    try:
        write.put_if_absent(ledger, f"part-{batch}.parquet", body.getvalue())
    except OSError as error:
        raise StorageError(
            table,
            f"the ledger {ledger.uri} cannot be written ({one_line(error)}): what became "
            f"of the last {len(outcomes)} paths is not recorded",
            "make room and run the deletion again",
        ) from error


def ledger_files(ledger: Location) -> list[str]:
    """The files of a ledger so far, one a batch."""
    return sorted(str(path) for path in pathlib.Path(ledger.path).glob("part-*.parquet"))


def ledger_parts(ledger: Location) -> tuple[list[Part], list[dict[str, Any]]]:
    """The parts of a ledger, and the largest rows of the first of them."""
    paths = ledger_files(ledger)
    parts = [Part(path, pq.read_metadata(path).num_rows) for path in paths]
    shown = [pq.read_table(path) for path in paths[:SHOWN_PARTS]]
    return parts, largest(pa.concat_tables(shown)) if shown else []
