"""Files that still hold columns dropped from the table, found by their Parquet footers.

With column mapping, DROP COLUMN changes metadata only; a purge (REORG TABLE ... APPLY (PURGE) in
Delta Spark) rewrites the files that still have the data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from maint_assets.compaction.planning.schema import COMPACTION_ARROW
from maint_assets.compaction.reading.data_files import footers_of
from maint_assets.compaction.reading.matching import sources
from maint_assets.delta.actions import Add
from maint_assets.delta.schema import Array, Map, Struct, Type
from maint_assets.storage.location import Location

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from typing_extensions import Self

    from maint_assets.compaction.reading.matching import Source
    from maint_assets.delta.schema import TableSchema
    from maint_assets.snapshot.head import TableHead

STAYS, DROPPED = "whole", "dropped_columns"
"""The reasons of a file that a purge keeps, and of one that holds a dropped column."""


@dataclass(frozen=True, slots=True)
class Held:
    """The columns that data files of a table may hold; sent to the executors."""

    location: Location
    columns: Struct
    row_tracking: frozenset[str]

    @classmethod
    def of(cls, head: TableHead, schema: TableSchema) -> Self:
        """The columns of a version's schema, and the two that row tracking materialises."""
        properties = head.properties
        names = (
            properties.materialized_row_id_column,
            properties.materialized_row_commit_version_column,
        )
        tracking = frozenset(name for name in names if name is not None)
        return cls(head.location, schema.columns, tracking)


def with_dropped_columns(files: Iterable[pa.RecordBatch], held: Held) -> Iterator[pa.RecordBatch]:
    """The files, with reason DROPPED where the footer has dropped columns: COMPACTION_SCHEMA.

    Only footers of files with reason STAYS are read. Raises StorageError for a file that cannot be
    opened.
    """
    for batch in files:
        stays = pc.equal(batch["reason"], STAYS)
        texts = batch["add"].filter(stays).to_pylist()
        found = pa.array(_hold_others(texts, held), pa.bool_())
        dropped = pc.replace_with_mask(stays, stays, found)
        columns = {name: batch[name] for name in COMPACTION_ARROW.names}
        columns["reason"] = pc.if_else(dropped, DROPPED, batch["reason"])
        yield pa.RecordBatch.from_arrays(list(columns.values()), schema=COMPACTION_ARROW)


def holds_dropped(columns: Sequence[Source], held: Held) -> bool:
    """Whether a file has a column or nested field that the table lacks; names ignore case."""
    every = (each for each in columns if each.name not in held.row_tracking)
    return _has_others(every, held.columns)


def _hold_others(texts: list[str], held: Held) -> list[bool]:
    """Whether each file, given as JSON of its add, holds dropped columns."""
    adds = [msgspec.json.decode(text, type=Add) for text in texts]
    footers = footers_of(held.location, adds)
    found: list[bool] = []
    for add in adds:
        with footers.take(add.path) as file:
            found.append(holds_dropped(sources(file), held))
    return found


def _has_others(parts: Iterable[Source], struct: Struct) -> bool:
    known = {field.physical_name.lower(): field.type for field in struct.fields}
    return any(
        part.name.lower() not in known or _differs(part, known[part.name.lower()]) for part in parts
    )


def _differs(source: Source, kind: Type) -> bool:
    """Whether a column has a nested field that its type lacks; fields of a variant do not count."""
    match kind:
        case Struct():
            return _has_others(source.parts, kind)
        case Array(element=element) if source.parts:
            return _differs(source.parts[0], element)
        case Map(key=key, value=value) if source.parts:
            return _differs(source.parts[0], key) or _differs(source.parts[-1], value)
        case _:
            return False
