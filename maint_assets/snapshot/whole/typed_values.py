"""Statistics and partition values as typed columns: ``stats_parsed``, ``partitionValues_parsed``.

A value that cannot be read as its type is null, as in delta-spark.
"""

from __future__ import annotations

import gc
import re
from contextlib import contextmanager
from decimal import Decimal as Number
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from maint_assets.delta.schema import Decimal, Primitive
from maint_assets.delta.stats import indexed_columns, is_skipping_eligible

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

    from maint_assets.delta.properties import TableProperties
    from maint_assets.delta.schema import Field, TableSchema, Type

    Reader = Callable[[Any], Any]

_TYPES = {
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_UNPARSED = {"timestamp", "binary"}
"""Types of partition columns whose text is ambiguous: it depends on the reader's time zone, or on
how the writer escaped bytes."""

_UNNAMED = re.compile(r'["\\\x00-\x1f]')

_UNREADABLE = (pa.ArrowException, OverflowError, TypeError, ValueError)


def stats_type(
    schema: TableSchema, properties: TableProperties, *, tight_bounds: bool
) -> pa.StructType:
    """The type of ``stats_parsed``: the columns that get statistics, by physical names.

    Bounds of booleans are left to the JSON statistics, as in delta-spark.
    """
    kinds = dict(schema.data.leaves())
    indexed = indexed_columns(schema, properties)
    eligible = (path for path in indexed if is_skipping_eligible(kinds[path]))
    bounds = _nested({path: _arrow(kinds[path]) for path in eligible})
    nulls = _nested(dict.fromkeys(indexed, pa.int64()))
    fields: list[tuple[str, pa.DataType]] = [("numRecords", pa.int64())]
    fields += [(name, bounds) for name in ("minValues", "maxValues") if bounds.num_fields]
    fields += [("nullCount", nulls)] if nulls.num_fields else []
    return pa.struct(fields + ([("tightBounds", pa.bool_())] if tight_bounds else []))


def partition_type(partitions: Iterable[Field]) -> pa.StructType | None:
    """The type of ``partitionValues_parsed``; None if a column's text is ambiguous (_UNPARSED)."""
    fields = list(partitions)
    kinds = [_partition(field.type) for field in fields]
    if None in kinds or not kinds:
        return None
    return pa.struct(list(zip((field.physical_name for field in fields), kinds, strict=True)))


def typed_stats(texts: pa.Array, kind: pa.StructType) -> pa.Array:
    """Parse JSON statistics to a type of ``stats_type``; unreadable values are null."""
    row = partial(_row, _reader(kind))
    with _without_gc():
        rows = [None if text is None else row(text) for text in texts.to_pylist()]
        found = _array(rows, _untyped(kind))
        del rows
    return _typed(found, kind)


def typed_partitions(values: pa.Array, kind: pa.StructType) -> pa.Array:
    """Convert maps of partition values to a type of ``partition_type``; empty strings are null."""
    children = []
    for field in kind:
        texts = pc.map_lookup(values, pa.scalar(field.name), "first")
        children.append(_typed(pc.if_else(pc.equal(texts, ""), None, texts), field.type))
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=values.is_null())


def _arrow(kind: Type) -> pa.DataType:
    if isinstance(kind, Decimal):
        return pa.decimal128(kind.precision, kind.scale)
    return _TYPES[kind.name] if isinstance(kind, Primitive) else pa.null()


def _partition(kind: Type) -> pa.DataType | None:
    if isinstance(kind, Primitive) and (kind.name in _UNPARSED or kind.name not in _TYPES):
        return None
    return _arrow(kind)


def _nested(leaves: Mapping[tuple[str, ...], pa.DataType]) -> pa.StructType:
    """The struct type with these leaves at their paths."""
    tree: dict[str, Any] = {}
    for path, kind in leaves.items():
        above = tree
        for name in path[:-1]:
            above = above.setdefault(name, {})
        above[path[-1]] = kind
    return _struct(tree)


class _RowsOnly(msgspec.Struct):
    numRecords: int  # noqa: N815  (the log's own key)


def _struct(tree: Mapping[str, Any]) -> pa.StructType:
    return pa.struct([
        (name, _struct(below) if isinstance(below, dict) else below) for name, below in tree.items()
    ])


def _reader(kind: pa.DataType) -> Reader:
    """A function that decodes JSON to values of an Arrow type; raises what msgspec raises."""
    names = "".join(_names(kind)) if pa.types.is_struct(kind) else ""
    if not names.isascii() and _UNNAMED.search(names):
        return _by_member({field.name: _reader(field.type) for field in kind})
    decode = msgspec.json.Decoder(_decoded(kind), strict=False).decode
    if str(kind).isascii():
        return decode
    return lambda text: msgspec.to_builtins(decode(text), builtin_types=(Number,))


def _by_member(readers: Mapping[str, Reader]) -> Reader:
    """A function that decodes each member by itself.

    Slow; only for names from which msgspec 0.22 cannot build a type.
    """
    decode = msgspec.json.Decoder(dict[str, msgspec.Raw] | None).decode

    def read(text: str | msgspec.Raw) -> Any:
        found = decode(text)
        if found is None:
            return None
        return {name: readers[name](raw) for name, raw in found.items() if name in readers}

    return read


def _names(kind: pa.StructType) -> Iterator[str]:
    for field in kind:
        yield field.name
        if pa.types.is_struct(field.type):
            yield from _names(field.type)


def _decoded(kind: pa.DataType) -> Any:
    """The Python type to which msgspec decodes values of an Arrow type."""
    if pa.types.is_struct(kind):
        members = {field.name: _decoded(field.type) for field in kind}
        if not all(map(str.isascii, members)):
            return _renamed(members) | None
        return TypedDict("Values", members, total=False) | None  # type: ignore[misc]
    if pa.types.is_integer(kind):
        return int | None
    if pa.types.is_floating(kind):
        return float | None
    if pa.types.is_decimal(kind):
        return Number | None
    return bool | None if pa.types.is_boolean(kind) else str | None


def _renamed(members: Mapping[str, Any]) -> Any:
    """A struct type with generated field names for these members.

    msgspec 0.22 ignores members of a TypedDict whose names are not ASCII.
    """
    fields = [
        (f"member{number}", kind, msgspec.field(name=name, default=None))
        for number, (name, kind) in enumerate(members.items())
    ]
    return msgspec.defstruct("Renamed", fields, omit_defaults=True)


def _untyped(kind: pa.DataType) -> pa.DataType:
    """The type with dates and timestamps as strings."""
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _untyped(field.type)) for field in kind])
    return pa.string() if pa.types.is_temporal(kind) else kind


@contextmanager
def _without_gc() -> Generator[None, None, None]:
    """Disable the cyclic garbage collector: with many small values it takes most of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _row(read: Reader, text: str) -> Any:
    try:
        return read(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return _rows_only(text)


def _rows_only(text: str) -> Any:
    """Only ``numRecords``, which readers need even if a bound cannot be read; None without it."""
    try:
        return msgspec.to_builtins(msgspec.json.decode(text, type=_RowsOnly))
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


def _array(rows: list[Any], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(rows, kind)
    except _UNREADABLE:
        return pa.array([row if _fits(row, kind) else _without_bounds(row) for row in rows], kind)


def _without_bounds(row: Any) -> Any:
    return (
        {"numRecords": row["numRecords"]} if isinstance(row, dict) and "numRecords" in row else None
    )


def _fits(row: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([row], kind)
    except _UNREADABLE:
        return False
    return True


def _typed(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast values to a type, parsing dates and timestamps; unreadable ones are null."""
    if values.type.equals(kind):
        return values
    if pa.types.is_struct(kind):
        children = [_typed(pc.struct_field(values, field.name), field.type) for field in kind]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=values.is_null())
    try:
        return pc.cast(values, kind)
    except pa.ArrowException:
        return pa.concat_arrays([_one(values.slice(at, 1), kind) for at in range(len(values))])


def _one(value: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        return pc.cast(value, kind)
    except pa.ArrowException:
        return pa.nulls(1, kind)
