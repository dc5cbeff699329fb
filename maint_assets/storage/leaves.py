"""The leaves of columns in Parquet, and which of them may have statistics in a footer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator


def leaves(field: pa.Field) -> Iterator[tuple[str, pa.DataType]]:
    """The paths of a column's leaves in the Parquet schema, each with its type."""
    kind = field.type
    if pa.types.is_struct(kind):
        below = [leaf for part in kind for leaf in leaves(part)]
    elif pa.types.is_list(kind):
        element = leaves(kind.value_field.with_name("element"))
        below = [(f"list.{path}", leaf) for path, leaf in element]
    elif pa.types.is_map(kind):
        parts = kind.key_field.with_name("key"), kind.item_field.with_name("value")
        below = [(f"key_value.{path}", leaf) for part in parts for path, leaf in leaves(part)]
    else:
        yield field.name, kind
        return
    yield from ((f"{field.name}.{path}", leaf) for path, leaf in below)


def leaf_values(values: pa.Array) -> Iterator[pa.Array]:
    """The values of each leaf of a column, in the order of ``leaves``."""
    if pa.types.is_struct(values.type):
        below = values.flatten()
    elif pa.types.is_map(values.type):
        below = [values.keys, values.items]
    elif pa.types.is_list(values.type):
        below = [values.flatten()]
    else:
        yield values
        return
    for part in below:
        yield from leaf_values(part)


def bounded_leaves(schema: pa.Schema) -> list[str]:
    """The leaves that get statistics in the footer of a file: all but floating-point numbers.

    Arrow leaves NaN out of the bounds. Spark and DuckDB, for which NaN is the greatest value,
    would skip row groups that hold rows they are asked for.
    """
    every = (leaf for field in schema for leaf in leaves(field))
    return [path for path, kind in every if not is_floating(kind)]


def is_floating(kind: pa.DataType) -> bool:
    """Whether a leaf of the type holds floating-point numbers, as a dictionary or plain."""
    return pa.types.is_floating(kind.value_type if pa.types.is_dictionary(kind) else kind)
