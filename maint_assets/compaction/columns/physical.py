"""The physical schema of new data files (PROTOCOL, "Data Files", "Column Mapping")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from maint_assets.delta.schema import Array, Decimal, Field, Map, Primitive, Struct, Type

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from typing_extensions import Self

    from maint_assets.delta.schema import TableSchema

FIELD_ID = b"PARQUET:field_id"
_MAX_DIGITS = 38
_VOID, VARIANT = Primitive("void"), Primitive("variant")

_ARROW: dict[str, pa.DataType] = {
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "variant": pa.struct({"metadata": pa.binary(), "value": pa.binary()}),
}


@dataclass(frozen=True, slots=True)
class FileSchema:
    """The columns of rewritten files, and where their values come from.

    ``arrow`` holds the data columns, the partition columns if wanted, and the two of
    ``row_tracking`` (row id, commit version). ``by_id``: columns are found by field id.
    """

    arrow: pa.Schema
    table: TableSchema
    by_id: bool
    partition_columns: bool
    row_tracking: tuple[str, str] | None

    @classmethod
    def of(
        cls,
        table: TableSchema,
        *,
        by_id: bool = False,
        partition_columns: bool = False,
        row_tracking: tuple[str, str] | None = None,
    ) -> Self:
        """The schema of new files; only for tables without ``unkept`` columns."""
        arrow = physical_schema(
            table, partition_columns=partition_columns, row_tracking=row_tracking
        )
        return cls(arrow, table, by_id, partition_columns, row_tracking)

    @property
    def data(self) -> tuple[Field, ...]:
        """The columns read from data files: the first ones of ``arrow``."""
        return kept(self.table.data)

    @property
    def partitions(self) -> tuple[Field, ...]:
        """The partition columns: those of ``arrow`` after the data columns."""
        return self.table.partitions if self.partition_columns else ()


def physical_schema(
    schema: TableSchema, *, partition_columns: bool, row_tracking: tuple[str, str] | None
) -> pa.Schema:
    """The Arrow schema of new files: physical names, nullable throughout, with field ids.

    Void columns are left out. Raises ValueError for a schema with ``unkept`` columns.
    """
    if reasons := unkept(schema):
        raise ValueError(reasons[0])
    written = (*kept(schema.data), *(schema.partitions if partition_columns else ()))
    fields = [arrow_field(field) for field in written]
    fields += [pa.field(name, pa.int64()) for name in row_tracking or ()]
    return pa.schema(fields)


def unkept(schema: TableSchema) -> list[str]:
    """Reasons why a rewrite cannot preserve the table's columns; empty if it can."""
    reasons = [reason for field in schema.columns.fields for reason in _reasons(field)]
    if not reasons and not kept(schema.data):
        reasons.append("the table has no column that data files hold")
    return reasons


def kept(struct: Struct) -> tuple[Field, ...]:
    """The fields that data files hold: all but void ones."""
    return tuple(field for field in struct.fields if field.type != _VOID)


def has_variants(kind: Type) -> bool:
    """Whether a type is or contains a variant, which Arrow reads as a struct of binary parts."""
    match kind:
        case Struct(fields=fields):
            return any(has_variants(field.type) for field in fields)
        case Array(element=element):
            return has_variants(element)
        case Map(key=key, value=value):
            return has_variants(key) or has_variants(value)
        case _:
            return kind == VARIANT


def arrow_field(field: Field) -> pa.Field:
    """A column of the table as a field of a data file."""
    kind = _arrow_type(field.type, field.nested_ids, field.physical_name)
    return _field(field.physical_name, kind, field.id)


def _field(name: str, kind: pa.DataType, number: int | None, *, nullable: bool = True) -> pa.Field:
    metadata = None if number is None else {FIELD_ID: str(number).encode()}
    return pa.field(name, kind, nullable=nullable, metadata=metadata)


def _arrow_type(kind: Type, ids: Mapping[str, int], path: str) -> pa.DataType:
    """The type of a column; ``ids`` are those of elements, keys and values, by path."""
    match kind:
        case Primitive(name=name):
            return _ARROW[name]
        case Decimal(precision=precision, scale=scale):
            return pa.decimal128(precision, scale)
        case Struct():
            return pa.struct([arrow_field(field) for field in kept(kind)])
        case Array(element=element):
            return pa.list_(_part("element", element, ids, path=path))
        case Map(key=key, value=value):
            return pa.map_(
                _part("key", key, ids, path=path, nullable=False),
                _part("value", value, ids, path=path),
            )


def _part(
    name: str, kind: Type, ids: Mapping[str, int], *, path: str, nullable: bool = True
) -> pa.Field:
    """An element, a key or a value as a field; keys of maps are not nullable."""
    below = f"{path}.{name}"
    return _field(name, _arrow_type(kind, ids, below), ids.get(below), nullable=nullable)


def _reasons(field: Field) -> Iterator[str]:
    if field.type != _VOID:
        yield from _unkept_type(field.type, field.name, below_a_list=False)


def _unkept_type(kind: Type, name: str, *, below_a_list: bool) -> Iterator[str]:
    match kind:
        case Primitive(name=named) if named not in _ARROW:
            yield f"column {name} has the type {named}, which is not kept"
        case Decimal(precision=p, scale=s) if not (0 <= s <= p <= _MAX_DIGITS and p):
            yield f"column {name} has the type decimal({p},{s}), which is not kept"
        case Struct(fields=fields):
            yield from _unkept_struct(fields, name, below_a_list=below_a_list)
        case Array(element=element):
            yield from _unkept_type(element, f"{name}.element", below_a_list=True)
        case Map(key=key, value=value):
            yield from _unkept_type(key, f"{name}.key", below_a_list=True)
            yield from _unkept_type(value, f"{name}.value", below_a_list=True)
        case _:
            pass


def _unkept_struct(fields: Iterable[Field], name: str, *, below_a_list: bool) -> Iterator[str]:
    """Reasons for a struct: a void field inside a list, or with no field left beside it."""
    left = [field for field in fields if below_a_list or field.type != _VOID]
    if not left:
        yield f"column {name} is a struct of which files would hold no field"
    for field in left:
        yield from _unkept_type(field.type, f"{name}.{field.name}", below_a_list=below_a_list)
