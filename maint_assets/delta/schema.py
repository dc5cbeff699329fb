"""A table's schema, parsed from its metadata (PROTOCOL, "Schema Serialization Format").

Data files use physical names: those of column mapping, or the logical names without it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from maint_assets.errors import CorruptLogError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from typing_extensions import Self

    from maint_assets.delta.actions import Metadata

_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_PHYSICAL, _ID = "delta.columnMapping.physicalName", "delta.columnMapping.id"
_NESTED_IDS = "delta.columnMapping.nested.ids"
_UNPARSED = (ValueError, KeyError, TypeError, RecursionError)


@dataclass(frozen=True, slots=True)
class Primitive:
    """A primitive type: ``long``, ``string``, ``timestamp_ntz``, ``void``, ``variant``..."""

    name: str


@dataclass(frozen=True, slots=True)
class Decimal:
    """A decimal type."""

    precision: int
    scale: int


@dataclass(frozen=True, slots=True)
class Field:
    """A column or struct field. ``id`` is its column mapping id."""

    name: str
    physical_name: str
    type: Type
    id: int | None
    metadata: Mapping[str, Any]

    @property
    def nested_ids(self) -> Mapping[str, int]:
        """Ids of list elements, map keys and values by physical path; icebergCompat tables only."""
        return self.metadata.get(_NESTED_IDS, {})


@dataclass(frozen=True, slots=True)
class Struct:
    """A struct type."""

    fields: tuple[Field, ...]

    def leaves(self, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Type]]:
        """Physical path and type of each non-struct column, depth first."""
        for field in self.fields:
            path = (*above, field.physical_name)
            if isinstance(field.type, Struct):
                yield from field.type.leaves(path)
            else:
                yield path, field.type

    def without(self, names: frozenset[str]) -> Struct:
        """The struct without the fields of these logical names."""
        return Struct(tuple(field for field in self.fields if field.name not in names))


@dataclass(frozen=True, slots=True)
class Array:
    """An array type."""

    element: Type


@dataclass(frozen=True, slots=True)
class Map:
    """A map type."""

    key: Type
    value: Type


Type = Primitive | Decimal | Struct | Array | Map


@dataclass(frozen=True, slots=True)
class TableSchema:
    """All columns of a table, and the logical names of the partition columns."""

    columns: Struct
    partition_columns: tuple[str, ...]

    @classmethod
    def of(cls, metadata: Metadata, *, mapped: bool, table: str) -> Self:
        """Parse the schema; ``mapped`` if column mapping is on. Raises CorruptLogError."""
        try:
            parsed = json.loads(metadata.schema_string or "")
            columns = _struct(parsed, mapped=mapped)
        except (*_UNPARSED, AttributeError) as error:
            found = f"the schema in its metadata cannot be read ({type(error).__name__}: {error})"
            remedy = "restore the log from a backup or a replica"
            raise CorruptLogError(table, found, remedy) from error
        schema = cls(columns, tuple(metadata.partition_columns))
        for name in schema.partition_columns:
            if name not in {field.name for field in columns.fields}:
                raise CorruptLogError(
                    table,
                    f"partition column {name} is not in the schema of its metadata",
                    "restore the log from a backup or a replica",
                )
        return schema

    @property
    def data(self) -> Struct:
        """The columns that data files contain: all but partition columns."""
        return self.columns.without(frozenset(self.partition_columns))

    @property
    def partitions(self) -> tuple[Field, ...]:
        """The partition columns, in order."""
        by_name = {field.name: field for field in self.columns.fields}
        return tuple(by_name[name] for name in self.partition_columns)


def refuse_odd_partitions(metadata: Metadata, *, table: str, file: str) -> None:
    """Raise CorruptLogError unless the partition columns are distinct columns of the schema.

    Readers disagree on the rows of such a table. A schema that cannot be parsed is ignored here.
    """
    columns = metadata.partition_columns
    try:
        fields = json.loads(metadata.schema_string or "")["fields"] if columns else []
        names = {field["name"] for field in fields}
    except _UNPARSED:
        return
    if not names.issuperset(columns) or len(columns) != len(set(columns)):
        raise CorruptLogError(
            table,
            f"{file} has metaData with partitionColumns {columns}, which are not distinct columns "
            "of its schema",
            "commit metaData with correct partition columns, or restore the log from a backup or a "
            "replica",
        )


def _struct(parsed: Any, *, mapped: bool) -> Struct:
    if parsed["type"] != "struct":
        raise ValueError(f"a struct was expected, not {parsed['type']!r}")
    return Struct(tuple(_field(each, mapped=mapped) for each in parsed["fields"]))


def _field(parsed: Any, *, mapped: bool) -> Field:
    metadata = parsed.get("metadata") or {}
    name = parsed["name"]
    physical = metadata[_PHYSICAL] if mapped else name
    number = metadata.get(_ID) if mapped else None
    return Field(name, physical, _type(parsed["type"], mapped=mapped), number, metadata)


def _type(parsed: Any, *, mapped: bool) -> Type:
    if isinstance(parsed, str):
        decimal = _DECIMAL.fullmatch(parsed)
        if decimal:
            return Decimal(int(decimal[1]), int(decimal[2]))
        return Decimal(10, 0) if parsed == "decimal" else Primitive(parsed)
    match parsed["type"]:
        case "struct":
            return _struct(parsed, mapped=mapped)
        case "array":
            return Array(_type(parsed["elementType"], mapped=mapped))
        case "map":
            key, value = parsed["keyType"], parsed["valueType"]
            return Map(_type(key, mapped=mapped), _type(value, mapped=mapped))
        case other:
            raise ValueError(f"type {other!r} is unknown")
