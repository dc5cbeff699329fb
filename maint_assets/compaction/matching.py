"""Which column of a file is which column of the table, and how its values get their type.

Everything is decided once a file, from its footer; what is left for each batch is a function.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from maint_assets.compaction.casts import cast, same
from maint_assets.compaction.dictionaries import as_dictionary
from maint_assets.compaction.physical import FIELD_ID, VARIANT, arrow_field, kept
from maint_assets.delta.schema import Array, Field, Map, Struct, Type

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow.parquet as pq

    from maint_assets.compaction.casts import Cast
    from maint_assets.compaction.physical import FileSchema

_INT96 = "INT96"


class MismatchError(ValueError):
    """A column of the file is not what the table says, in a way that cannot be mended."""


@dataclass(frozen=True, slots=True)
class Source:
    """A column of a file, or a part of one; ``parts`` in the order of Arrow's type."""

    name: str
    id: int | None
    type: pa.DataType
    int96: bool
    parts: tuple[Source, ...]

    def leaves(self) -> Iterator[Source]:
        """Its parts without parts."""
        if not self.parts:
            yield self
        for part in self.parts:
            yield from part.leaves()


@dataclass(frozen=True, slots=True)
class Match:
    """A column of the table: its type in new files, the file's column and what to do with it.

    ``source`` is None where the file has no such column: its rows have null.
    """

    target: pa.Field
    source: str | None
    cast: Cast

    def as_dictionary(self) -> Match:
        """The same where the file's column is read as a dictionary, and stays one."""
        return Match(as_dictionary(self.target), self.source, same)


def sources(file: pq.ParquetFile) -> tuple[Source, ...]:
    """The columns of a file, in its order."""
    parquet = file.schema
    kinds = (parquet.column(at).physical_type for at in range(len(parquet)))
    return tuple(_source(field, kinds) for field in file.schema_arrow)


def matches(columns: Sequence[Source], target: FileSchema) -> tuple[Match, ...]:
    """What becomes the data columns of new files, in their order. Raises MismatchError."""
    if target.by_id and columns and all(part.id is None for part in _every(columns)):
        raise MismatchError("its columns have no field ids, by which the table is mapped")
    return tuple(_match(field, columns, by_id=target.by_id) for field in target.data)


def inner_fields(kind: pa.DataType) -> tuple[pa.Field, ...]:
    """The fields of a struct, the key and the value of a map, the element of a list; else none."""
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pa.types.is_map(kind):
        return kind.key_field, kind.item_field
    if pa.types.is_struct(kind):
        return tuple(kind.field(at) for at in range(kind.num_fields))
    return (kind.value_field,) if _is_list(kind) else ()


def _source(field: pa.Field, kinds: Iterator[str]) -> Source:
    """A column and its parts; their leaves are those of the Parquet schema, in the same order."""
    metadata = field.metadata or {}
    number = int(metadata.get(FIELD_ID, -1))
    inner = inner_fields(field.type)
    parts = tuple(_source(part, kinds) for part in inner)
    int96 = not inner and next(kinds) == _INT96
    return Source(field.name, None if number < 0 else number, field.type, int96, parts)


def _match(field: Field, columns: Sequence[Source], *, by_id: bool) -> Match:
    target = arrow_field(field)
    found = _found(field, columns, field.name, by_id=by_id)
    if found is None:
        return Match(target, None, same)
    how = _cast(field.type, target.type, found, where=field.name, by_id=by_id)
    return Match(target, found.name, how)


def _found(field: Field, columns: Sequence[Source], where: str, *, by_id: bool) -> Source | None:
    """The one that is this field; None if the file is older than the field.

    A name in another case, and one without its id, may be the field or not: both are refused.
    """
    if by_id and field.id is None:
        raise MismatchError(f"column {where} has no id in the table's schema")
    if by_id:
        found = [column for column in columns if column.id == field.id]
        near = [c for c in columns if c.id is None and c.name == field.physical_name]
    else:
        found = [column for column in columns if column.name == field.physical_name]
        near = [c for c in columns if c.name.lower() == field.physical_name.lower()]
    if len(found) > 1:
        raise MismatchError(f"column {where} is in it {len(found)} times")
    if not found and near:
        what = "without its field id" if by_id else "in another case"
        raise MismatchError(f"column {where} is in it as {near[0].name!r}, {what}")
    return found[0] if found else None


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
    for at, field in enumerate(kept(kind)):
        found = _found(field, source.parts, f"{where}.{field.name}", by_id=by_id)
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
    if not pa.types.is_list(values.type):
        values = values.cast(pa.list_(values.type.value_field))
    return _with_children(values, target, element(values.values))


def _map_of(values: pa.Array, *, target: pa.DataType, keys: Cast, items: Cast) -> pa.Array:
    fields = [target.key_field, target.item_field]
    parts = [keys(values.keys), items(values.items)]
    return _with_children(values, target, pa.StructArray.from_arrays(parts, fields=fields))


def _with_children(values: pa.Array, target: pa.DataType, children: pa.Array) -> pa.Array:
    """The same lists over other elements; a slice of an array stays one."""
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
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
    )
