"""Match columns of data files with columns of the table, and find the casts.

Decided once a file, from its footer; each batch then is only cast.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from maint_assets.compaction.columns.physical import FIELD_ID, VARIANT, arrow_field, kept
from maint_assets.compaction.reading.casts import cast, same
from maint_assets.compaction.reading.dictionaries import as_dictionary
from maint_assets.delta.schema import Array, Field, Map, Struct, Type

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow.parquet as pq

    from maint_assets.compaction.columns.physical import FileSchema
    from maint_assets.compaction.reading.casts import Cast

_INT96 = "INT96"


class MismatchError(ValueError):
    """A column of the file does not fit the table's, and no cast is allowed."""


@dataclass(frozen=True, slots=True)
class Source:
    """A column of a file, or a child of one; ``parts`` are its children, in Arrow's order."""

    name: str
    id: int | None
    type: pa.DataType
    int96: bool
    parts: tuple[Source, ...]

    def leaves(self) -> Iterator[Source]:
        """Its leaves."""
        if not self.parts:
            yield self
        for part in self.parts:
            yield from part.leaves()


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a file, or the fields of a struct in it, to be matched with the table's."""

    sources: Sequence[Source]
    fields: tuple[Field, ...]
    by_id: bool

    def of(self, field: Field, where: str) -> Source | None:
        """The column for a field of the table; None if the file is older than the field.

        A name that differs in case matches if it is the only one and no other field's, as in
        Spark. A column without its field id is ambiguous and refused.
        """
        if self.by_id and field.id is None:
            raise MismatchError(f"column {where} has no id in the table's schema")
        if self.by_id:
            found = [each for each in self.sources if each.id == field.id]
            near = [c for c in self.sources if c.id is None and c.name == field.physical_name]
            if not found and near:
                where_found = f"is in it as {near[0].name!r}, without its field id"
                raise MismatchError(f"column {where} {where_found}")
        else:
            found = [each for each in self.sources if each.name == field.physical_name]
            found = found or self._in_another_case(field.physical_name)
        if len(found) > 1:
            names = " and ".join(repr(each.name) for each in found)
            raise MismatchError(f"column {where} is in it {len(found)} times, as {names}")
        return found[0] if found else None

    def _in_another_case(self, name: str) -> list[Source]:
        others = {field.physical_name for field in self.fields}
        near = (each for each in self.sources if each.name.lower() == name.lower())
        return [each for each in near if each.name not in others]


@dataclass(frozen=True, slots=True)
class Match:
    """A column of the table with the column of the file and the cast.

    ``source`` is None if the file has no such column: the values are null.
    """

    target: pa.Field
    source: str | None
    cast: Cast

    def as_dictionary(self) -> Match:
        """The same match for a column that is read as a dictionary and stays one."""
        return Match(as_dictionary(self.target), self.source, same)


def sources(file: pq.ParquetFile) -> tuple[Source, ...]:
    """The columns of a file, in its order."""
    parquet = file.schema
    kinds = (parquet.column(at).physical_type for at in range(len(parquet)))
    return tuple(_source(field, kinds) for field in file.schema_arrow)


def matches(columns: Sequence[Source], target: FileSchema) -> tuple[Match, ...]:
    """The matches for the data columns of new files, in their order. Raises MismatchError."""
    if target.by_id and columns and all(part.id is None for part in _every(columns)):
        raise MismatchError("its columns have no field ids, by which the table is mapped")
    found = Columns(columns, target.data, target.by_id)
    return tuple(_match(field, found) for field in target.data)


def inner_fields(kind: pa.DataType) -> tuple[pa.Field, ...]:
    """The children of a type: fields of a struct, key and value of a map, element of a list."""
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pa.types.is_map(kind):
        return kind.key_field, kind.item_field
    if pa.types.is_struct(kind):
        return tuple(kind.field(at) for at in range(kind.num_fields))
    return (kind.value_field,) if _is_list(kind) else ()


def _source(field: pa.Field, kinds: Iterator[str]) -> Source:
    """A column with its children; leaves are in the order of the Parquet schema."""
    metadata = field.metadata or {}
    number = int(metadata.get(FIELD_ID, -1))
    inner = inner_fields(field.type)
    parts = tuple(_source(part, kinds) for part in inner)
    int96 = not inner and next(kinds) == _INT96
    return Source(field.name, None if number < 0 else number, field.type, int96, parts)


def _match(field: Field, columns: Columns) -> Match:
    target = arrow_field(field)
    found = columns.of(field, field.name)
    if found is None:
        return Match(target, None, same)
    how = _cast(field.type, target.type, found, where=field.name, by_id=columns.by_id)
    return Match(target, found.name, how)


def _cast(kind: Type, target: pa.DataType, source: Source, *, where: str, by_id: bool) -> Cast:
    match kind:
        case Struct() if pa.types.is_struct(source.type):
            return _struct(kind, target, source, where=where, by_id=by_id)
        case Array(element=element) if _is_list(source.type):
            below = _cast(
                element, target.value_type, source.parts[0], where=f"{where}.element", by_id=by_id
            )
            plain = below is same and source.type == target
            return same if plain else partial(_list, target=target, element=below)
        case Map() if pa.types.is_map(source.type):
            return _map(kind, target, source, where=where, by_id=by_id)
        case Struct() | Array() | Map():
            found = None
        case _ if kind == VARIANT:
            found = same if source.parts else None
        case _:
            found = cast(source.type, target, int96=source.int96) if not source.parts else None
    if found is None:
        held = "int96" if source.int96 else source.type
        raise MismatchError(f"column {where} is {held}, which does not become {target}")
    return found


def _struct(kind: Struct, target: pa.DataType, source: Source, *, where: str, by_id: bool) -> Cast:
    positions: list[int | None] = []
    casts: list[Cast] = []
    columns = Columns(source.parts, kept(kind), by_id)
    for at, field in enumerate(columns.fields):
        found = columns.of(field, f"{where}.{field.name}")
        if found is None:
            positions.append(None)
            casts.append(same)
        else:
            below = target.field(at).type
            name = f"{where}.{field.name}"
            positions.append(source.parts.index(found))
            casts.append(_cast(field.type, below, found, where=name, by_id=by_id))
    plain = positions == list(range(len(source.parts))) and all(each is same for each in casts)
    if plain and source.type == target:
        return same
    return partial(_struct_of, target=target, positions=tuple(positions), casts=tuple(casts))


def _map(kind: Map, target: pa.DataType, source: Source, *, where: str, by_id: bool) -> Cast:
    key, value = source.parts
    keys = _cast(kind.key, target.key_type, key, where=f"{where}.key", by_id=by_id)
    items = _cast(kind.value, target.item_type, value, where=f"{where}.value", by_id=by_id)
    if keys is same and items is same and source.type == target:
        return same
    return partial(_map_of, target=target, keys=keys, items=items)


def _struct_of(
    values: pa.Array,
    *,
    target: pa.DataType,
    positions: tuple[int | None, ...],
    casts: tuple[Cast, ...],
) -> pa.Array:
    parts = [
        pa.nulls(len(values), field.type) if at is None else below(values.field(at))
        for field, at, below in zip(target, positions, casts, strict=True)
    ]
    mask = values.is_null() if values.null_count else None
    return pa.StructArray.from_arrays(parts, fields=list(target), mask=mask)


def _list(values: pa.Array, *, target: pa.DataType, element: Cast) -> pa.Array:
    if _is_list_view(values.type):
        values = _without_views(values)
    elif not pa.types.is_list(values.type):
        values = values.cast(pa.list_(values.type.value_field))
    return _with_children(values, target, element(values.values))


def _without_views(values: pa.Array) -> pa.Array:
    """List views as lists: Arrow 26 casts them with one offset too few."""
    lengths = pc.fill_null(pc.list_value_length(values), 0)
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(lengths.to_numpy(), out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), values.flatten(), mask=values.is_null())


def _map_of(values: pa.Array, *, target: pa.DataType, keys: Cast, items: Cast) -> pa.Array:
    fields = [target.key_field, target.item_field]
    parts = [keys(values.keys), items(values.items)]
    return _with_children(values, target, pa.StructArray.from_arrays(parts, fields=fields))


def _with_children(values: pa.Array, target: pa.DataType, children: pa.Array) -> pa.Array:
    """The same lists over other elements; slices stay slices."""
    return pa.Array.from_buffers(
        target,
        len(values),
        values.buffers()[:2],
        values.null_count,
        values.offset,
        children=[children],
    )


def _every(columns: Iterable[Source]) -> Iterator[Source]:
    for column in columns:
        yield column
        yield from _every(column.parts)


def _is_list(kind: pa.DataType) -> bool:
    return (
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
        or _is_list_view(kind)
    )


def _is_list_view(kind: pa.DataType) -> bool:
    return pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind)
