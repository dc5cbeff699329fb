"""File statistics: which columns have them, how bounds are truncated, and their JSON.

PROTOCOL, "Per-file Statistics"; where it leaves a choice, as delta-spark writes them. A bound that
cannot be expressed is left out, which readers treat as unknown.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal as DecimalNumber
from typing import TYPE_CHECKING, Any

import msgspec

from maint_assets.delta.schema import Decimal, Primitive, Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import TypeGuard

    from maint_assets.delta.properties import TableProperties
    from maint_assets.delta.schema import TableSchema, Type

    ColumnPath = tuple[str, ...]
    Bound = int | float | str | DecimalNumber

STRING_PREFIX_LENGTH = 32
"""Default length of string bounds."""

_PART = r"(?:`(?:[^`]|``)*`|[^\s.,`]+)"
_NAME = rf"{_PART}(?:\s*\.\s*{_PART})*"
_LIST = re.compile(rf"\s*{_NAME}(?:\s*,\s*{_NAME})*")
# Characters that delta-spark appends to a truncated maximum.
_DELETE, _LAST = "\x7f", "\U0010ffff"
_BMP_LAST = "\uffff"
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - arithmetic of UTC and of local times alike
_DAY_ONE = date(1970, 1, 1)
_BOOLEAN = Primitive("boolean")


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """Statistics of a leaf column; bounds are None if all values are null.

    Bounds are exact, not truncated: dates in days, timestamps in microseconds since 1970.
    """

    path: ColumnPath
    type: Type
    null_count: int
    minimum: Bound | None = None
    maximum: Bound | None = None


def indexed_columns(schema: TableSchema, properties: TableProperties) -> tuple[ColumnPath, ...]:
    """Physical paths of the leaf columns that get statistics, in schema order.

    Names in ``dataSkippingStatsColumns`` that the schema lacks are skipped.
    """
    leaves = _leaves(schema.data)
    text, count = properties.data_skipping_stats_columns, properties.data_skipping_num_indexed_cols
    if text is not None:
        chosen = frozenset(_names(text))
        return tuple(path for path, logical in leaves if chosen & _prefixes(logical))
    paths = tuple(path for path, _ in leaves)
    return paths if count < 0 else paths[:count]


def has_bounds(type_: Type) -> TypeGuard[Decimal | Primitive]:
    """Whether columns of the type get min and max, not only a null count.

    Includes booleans: delta-spark writes none and ignores them, but deltalake writes them and
    treats a missing bound as null.
    """
    return isinstance(type_, Decimal) or (isinstance(type_, Primitive) and type_.name in _FORMATS)


def is_skipping_eligible(type_: Type) -> bool:
    """Whether Delta skips files by bounds of the type (delta-spark's SkippingEligibleDataType)."""
    return has_bounds(type_) and type_ != _BOOLEAN


def stats_json(
    columns: Sequence[ColumnStatistics],
    *,
    rows: int,
    tight_bounds: bool,
    prefix_length: int = STRING_PREFIX_LENGTH,
) -> str:
    """The JSON of ``add.stats``. Pass ``tight_bounds`` if the table supports deletion vectors."""
    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    for column in columns:
        if has_bounds(column.type):
            low, high = _cut(column.minimum, column.maximum, prefix_length)
            _put(lowest, column.path, _written(low, column.type))
            _put(highest, column.path, _written(high, column.type))
        _put(nulls, column.path, column.null_count)
    found: dict[str, Any] = {"numRecords": rows}
    if any(has_bounds(column.type) for column in columns):
        found |= {"minValues": lowest, "maxValues": highest}
    if columns:
        found["nullCount"] = nulls
    return msgspec.json.encode(found | ({"tightBounds": True} if tight_bounds else {})).decode()


def string_minimum(text: str, length: int) -> str:
    """A lower bound of a string: its first ``length`` code points."""
    return text[:length]


def string_maximum(text: str, length: int) -> str | None:
    """An upper bound of a string, at most about 2 x ``length`` UTF-16 units; None if impossible.

    Cut at ``length`` units, not inside a surrogate pair, then a greater character is appended.
    """
    if _units(text[: length + 1]) <= length:
        return text
    end = units = 0
    while units < length:
        units += _units(text[end])
        end += 1
    while 0 < units <= 2 * length:
        if end == len(text):
            return text
        if text[end] != _LAST:
            return text[:end] + (_DELETE if text[end] < _DELETE else _LAST)
        units += _units(_LAST)
        end += 1
    return None


def _leaves(
    struct: Struct, physical: ColumnPath = (), logical: ColumnPath = ()
) -> Iterator[tuple[ColumnPath, ColumnPath]]:
    """Physical path and lower-case logical path of each non-struct column, depth first."""
    for field in struct.fields:
        path, names = (*physical, field.physical_name), (*logical, field.name.lower())
        if isinstance(field.type, Struct):
            yield from _leaves(field.type, path, names)
        else:
            yield path, names


def _names(text: str) -> Iterator[ColumnPath]:
    """Parse a list of column names as Spark does, in lower case; trailing text is ignored."""
    match = _LIST.match(text)
    for name in re.findall(_NAME, match[0]) if match else ():
        yield tuple(_unquoted(part).lower() for part in re.findall(_PART, name))


def _unquoted(part: str) -> str:
    return part[1:-1].replace("``", "`") if part.startswith("`") else part


def _prefixes(path: ColumnPath) -> frozenset[ColumnPath]:
    return frozenset(path[: end + 1] for end in range(len(path)))


def _units(text: str) -> int:
    return len(text) + sum(char > _BMP_LAST for char in text)


def _cut(low: Bound | None, high: Bound | None, length: int) -> tuple[Bound | None, Bound | None]:
    if isinstance(low, str):
        low = string_minimum(low, length)
    if isinstance(high, str):
        high = string_maximum(high, length)
    return low, high


def _put(tree: dict[str, Any], path: ColumnPath, value: object) -> None:
    """Set a value at a path; None only creates the enclosing structs, as in Spark."""
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    if value is not None:
        tree[path[-1]] = value


def _written(bound: Bound | None, type_: Decimal | Primitive) -> object:
    """A bound as a JSON value."""
    if bound is None:
        return None
    return _FORMATS["decimal" if isinstance(type_, Decimal) else type_.name](bound)


def _number(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"


def _decimal(value: DecimalNumber) -> msgspec.Raw:
    """A decimal with all digits of its scale, never converted to float."""
    return msgspec.Raw(f"{value:f}".encode())


def _date(days: int) -> str | None:
    """``2020-02-29``; None outside years 1 to 9999, which some readers cannot parse."""
    try:
        return (_DAY_ONE + timedelta(days)).isoformat()
    except OverflowError:
        return None


def _timestamp_ntz(micros: int) -> str | None:
    """Truncated to ms, the maximum too, as readers add 1 ms; None for far years as in ``_date``."""
    try:
        return (_EPOCH + timedelta(microseconds=micros)).isoformat(timespec="milliseconds")
    except OverflowError:
        return None


def _timestamp(micros: int) -> str | None:
    local = _timestamp_ntz(micros)
    return None if local is None else f"{local}Z"


_FORMATS: dict[str, Callable[[Any], object]] = {
    "byte": int,
    "short": int,
    "integer": int,
    "long": int,
    "float": _number,
    "double": _number,
    "boolean": bool,
    "decimal": _decimal,
    "string": str,
    "date": _date,
    "timestamp": _timestamp,
    "timestamp_ntz": _timestamp_ntz,
}
