"""Schemas of stage rows: one declaration for Spark, for Arrow and for the UI."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import types as T

if TYPE_CHECKING:
    from collections.abc import Iterable

_ARROW = {"string": pa.string(), "bigint": pa.int64(), "boolean": pa.bool_()}
_SPARK = {"string": T.StringType(), "bigint": T.LongType(), "boolean": T.BooleanType()}


def column(name: str, kind: str, comment: str = "", *, nullable: bool = False) -> T.StructField:
    """A column with the comment that the UI shows. ``kind`` is string, bigint or boolean."""
    return T.StructField(name, _SPARK[kind], nullable, {"comment": comment} if comment else None)


def arrow_schema(schema: T.StructType) -> pa.Schema:
    """The Arrow schema that corresponds to a Spark schema of string, bigint and boolean columns."""
    return pa.schema([(field.name, _ARROW[field.dataType.simpleString()]) for field in schema])


def batch_of(rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    """Build a record batch from tuples in the order of the schema's columns."""
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def runs(values: pa.Array) -> list[tuple[int, int]]:
    """Start (inclusive) and end (exclusive) of each run of equal non-null values."""
    numbers = values.dictionary_encode().indices.to_numpy()
    starts = np.flatnonzero(np.diff(numbers, prepend=-1)).tolist()
    return list(zip(starts, [*starts[1:], len(values)], strict=True)) if starts else []
