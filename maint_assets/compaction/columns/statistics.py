"""``add.stats`` of a new file, computed from the batches that are written to it.

Not from the Parquet footer: Arrow leaves NaN out of its bounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from maint_assets.delta.schema import Decimal
from maint_assets.delta.stats import (
    STRING_PREFIX_LENGTH,
    ColumnStatistics,
    has_bounds,
    indexed_columns,
    stats_json,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from maint_assets.delta.properties import TableProperties
    from maint_assets.delta.schema import Primitive, TableSchema, Type

_ARROW: dict[str, tuple[pa.DataType, ...]] = {
    "byte": (pa.int8(),),
    "short": (pa.int16(),),
    "integer": (pa.int32(),),
    "long": (pa.int64(),),
    "float": (pa.float32(),),
    "double": (pa.float64(),),
    "boolean": (pa.bool_(),),
    "string": (pa.large_string(), pa.string()),
    "date": (pa.date32(),),
    "timestamp": (pa.timestamp("us", "UTC"),),
    "timestamp_ntz": (pa.timestamp("us"),),
}


class FileStatistics:
    """Counts and bounds of one data file, in memory constant per column.

    ``tight_bounds`` if the table's protocol has deletion vectors. ``also`` are columns that
    have statistics whatever the properties say.
    """

    def __init__(
        self,
        schema: TableSchema,
        properties: TableProperties,
        *,
        tight_bounds: bool,
        also: Iterable[tuple[str, ...]] = (),
    ) -> None:
        wanted = {*indexed_columns(schema, properties), *also}
        leaves = schema.data.leaves()
        self._columns = [_Column(path, kind) for path, kind in leaves if path in wanted]
        length = properties.data_skipping_string_prefix_length
        self._prefix_length = STRING_PREFIX_LENGTH if length is None else length
        self._tight_bounds = tight_bounds
        self.rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows of the file, columns by physical name; a missing column counts as null."""
        self.rows += batch.num_rows
        for column in self._columns:
            values = leaf_column(batch, column.path)
            if values is None:
                column.null_count += batch.num_rows
            else:
                column.add(values)

    def json(self) -> str:
        """``add.stats`` as JSON for all rows so far."""
        return stats_json(
            [column.statistics() for column in self._columns],
            rows=self.rows,
            tight_bounds=self._tight_bounds,
            prefix_length=self._prefix_length,
        )


@dataclass(slots=True)
class _Column:
    """Statistics of one leaf column; bounds of strings are compared as UTF-8 bytes."""

    path: tuple[str, ...]
    type: Type
    null_count: int = 0
    minimum: Any = None
    maximum: Any = None

    def add(self, values: pa.Array) -> None:
        self.null_count += values.null_count
        if has_bounds(self.type):
            if pa.types.is_dictionary(values.type):
                # Also values that no row has any more may be in the dictionary.
                values = values.unique().dictionary_decode()
            low, high = _bounds(_typed(values, self.type))
            self.minimum = min(_known(self.minimum, low), key=_order, default=None)
            self.maximum = max(_known(self.maximum, high), key=_order, default=None)

    def statistics(self) -> ColumnStatistics:
        low, high = _text(self.minimum), _text(self.maximum)
        return ColumnStatistics(self.path, self.type, self.null_count, low, high)


def leaf_column(batch: pa.RecordBatch, path: tuple[str, ...]) -> pa.Array | None:
    """The leaf column of a batch, null where a parent is; None if the batch lacks it."""
    at = batch.schema.get_field_index(path[0])
    if at < 0:
        return None
    indices: list[int] = []
    kind = batch.schema.field(at).type
    for name in path[1:]:
        indices.append(kind.get_field_index(name))
        if indices[-1] < 0:
            return None
        kind = kind.field(indices[-1]).type
    values = batch.column(at)
    return pc.struct_field(values, indices) if indices else values


def _typed(values: pa.Array, type_: Decimal | Primitive) -> pa.Array:
    """The values in a type that has bounds. Raises ArrowInvalid if a cast would change one."""
    if isinstance(type_, Decimal):
        expected = (pa.decimal128(type_.precision, type_.scale),)
    else:
        expected = _ARROW[type_.name]
    return values if values.type in expected else values.cast(expected[0])


def _bounds(values: pa.Array) -> tuple[Any, Any]:
    """Minimum and maximum; None if all values are null."""
    if pa.types.is_floating(values.type):
        return _float_bounds(values)
    found = pc.min_max(values)
    return _plain(found["min"]), _plain(found["max"])


def _float_bounds(values: pa.Array) -> tuple[float | None, float | None]:
    """Minimum and maximum, NaN as the greatest value as in Spark; zeros are -0.0 and 0.0.

    So bounds hold zeros of both signs, as in Parquet: some readers order -0.0 before 0.0.
    """
    is_nan = pc.is_nan(values)
    has_nan = pc.any(is_nan).as_py()
    numbers = values.filter(pc.invert(is_nan)) if has_nan else values
    found = pc.min_max(numbers)
    low, high = found["min"].as_py(), found["max"].as_py()
    if low is None:
        return (math.nan, math.nan) if has_nan else (None, None)
    return low or -0.0, math.nan if has_nan else high or 0.0


def _plain(scalar: Any) -> Any:
    """The value in a form that Python compares exactly: bytes of text, integer of a time."""
    if not scalar.is_valid:
        return None
    if isinstance(scalar, pa.StringScalar | pa.LargeStringScalar):
        return scalar.as_buffer().to_pybytes()
    if isinstance(scalar, pa.Date32Scalar | pa.TimestampScalar):
        return scalar.value
    return scalar.as_py()


def _known(*values: Any) -> list[Any]:
    return [value for value in values if value is not None]


def _order(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    return (True, 0.0) if math.isnan(value) else (False, value)


def _text(bound: Any) -> Any:
    """A string's bound as text; None for bytes that are not UTF-8, which Spark can write."""
    try:
        return bound.decode() if isinstance(bound, bytes) else bound
    except UnicodeDecodeError:
        return None
