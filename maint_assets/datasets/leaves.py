"""Leaf columns of Parquet files, and which of them may have statistics in the footer."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator


def leaves(field: pa.Field) -> Iterator[tuple[str, pa.DataType]]:
    """The path in the Parquet schema and the type of each leaf of a column."""
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
    """Paths of the leaves that get footer statistics: all but floating-point and ambiguous ones.

    Arrow ignores NaN in min and max. Spark and DuckDB treat NaN as the greatest value, so with such
    bounds they would skip row groups that hold matching rows.
    """
    every = (leaf for field in schema for leaf in leaves(field))
    shared = shared_paths(schema)
    return [path for path, kind in every if not is_floating(kind) and path not in shared]


def shared_paths(schema: pa.Schema) -> set[str]:
    """Paths of more than one leaf: a column ``a.b`` beside a struct ``a`` with a field ``b``.

    Arrow's per-leaf options are keyed by path, and would apply to all of them.
    """
    paths = Counter(path for field in schema for path, _ in leaves(field))
    return {path for path, many in paths.items() if many > 1}


def is_floating(kind: pa.DataType) -> bool:
    """Whether the type is floating point, plain or dictionary-encoded."""
    return pa.types.is_floating(kind.value_type if pa.types.is_dictionary(kind) else kind)
