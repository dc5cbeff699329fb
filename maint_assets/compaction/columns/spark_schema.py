"""The physical schema of a table as a Spark schema, for reading and writing data files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import types as T

from maint_assets.compaction.columns.physical import kept
from maint_assets.delta.schema import Array, Decimal, Field, Map, Primitive, Struct, Type

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_FIELD_ID = "parquet.field.id"

_SPARK: dict[str, T.DataType] = {
    "byte": T.ByteType(),
    "short": T.ShortType(),
    "integer": T.IntegerType(),
    "long": T.LongType(),
    "float": T.FloatType(),
    "double": T.DoubleType(),
    "string": T.StringType(),
    "binary": T.BinaryType(),
    "boolean": T.BooleanType(),
    "date": T.DateType(),
    "timestamp": T.TimestampType(),
    "timestamp_ntz": T.TimestampNTZType(),
    "variant": T.VariantType(),
}


def spark_schema(fields: Iterable[Field]) -> T.StructType:
    """The columns by physical name, nullable throughout, with field ids and no other metadata.

    Other metadata is dropped: Spark would fill rows of old files with a column's default value.
    """
    return T.StructType([
        T.StructField(field.physical_name, spark_type(field.type), True, _metadata(field))  # noqa: FBT003
        for field in fields
    ])


def spark_type(kind: Type) -> T.DataType:
    """The Spark type of a column; only for types that are not ``unkept``."""
    match kind:
        case Primitive(name=name):
            return _SPARK[name]
        case Decimal(precision=precision, scale=scale):
            return T.DecimalType(precision, scale)
        case Struct():
            return spark_schema(kept(kind))
        case Array(element=element):
            return T.ArrayType(spark_type(element))
        case Map(key=key, value=value):
            return T.MapType(spark_type(key), spark_type(value))


def has_equal_names(fields: Sequence[Field]) -> bool:
    """Whether names of columns, or of fields of one struct, differ only in case."""
    names = {field.physical_name.lower() for field in fields}
    return len(names) < len(fields) or any(_holds_equal_names(each.type) for each in fields)


def _holds_equal_names(kind: Type) -> bool:
    match kind:
        case Struct():
            return has_equal_names(kept(kind))
        case Array(element=element):
            return _holds_equal_names(element)
        case Map(key=key, value=value):
            return _holds_equal_names(key) or _holds_equal_names(value)
        case _:
            return False


def _metadata(field: Field) -> dict[str, Any] | None:
    return None if field.id is None else {_FIELD_ID: field.id}
