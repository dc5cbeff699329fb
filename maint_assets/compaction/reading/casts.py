"""The casts from types of data files to types of the table.

Casts not listed here are refused: Arrow would cast more, sometimes with loss.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable

    Cast = Callable[[pa.Array], pa.Array]

_NTZ = pa.timestamp("us")

_BYTES = frozenset({pa.string(), pa.binary()})

_CASTS: dict[pa.DataType, frozenset[pa.DataType]] = {
    pa.int8(): frozenset({pa.int16(), pa.int32(), pa.int64(), pa.float64()}),
    pa.int16(): frozenset({pa.int32(), pa.int64(), pa.float64()}),
    # Parquet's INT32 without an annotation may be of any smaller type: Spark cuts it off.
    pa.int32(): frozenset({pa.int8(), pa.int16(), pa.int64(), pa.float64()}),
    pa.float32(): frozenset({pa.float64()}),
    pa.date32(): frozenset({_NTZ}),
    # Parquet's BYTE_ARRAY, with and without the annotation of text.
    **dict.fromkeys((pa.string(), pa.large_string(), pa.string_view()), _BYTES),
    **dict.fromkeys((pa.binary(), pa.large_binary(), pa.binary_view()), _BYTES),
    pa.uint8(): frozenset({pa.int16()}),
    pa.uint16(): frozenset({pa.int32()}),
    pa.uint32(): frozenset({pa.int64()}),
}
"""PROTOCOL, "Type Widening", Arrow's other forms of the same type, and the types as which Spark
reads Parquet's own."""

_INTEGER_DIGITS = {pa.int8(): 10, pa.int16(): 10, pa.int32(): 10, pa.int64(): 20}
"""Integer digits that a decimal needs to take an integer type (PROTOCOL, "Type Widening")."""


def same(values: pa.Array) -> pa.Array:
    """The identity cast."""
    return values


def cast(source: pa.DataType, target: pa.DataType, *, int96: bool = False) -> Cast | None:
    """The cast from a file's type to the table's; None if it is not allowed.

    ``int96``: the file has Parquet's legacy timestamps, which Arrow reads as zone-less ones.
    The cast raises ArrowInvalid for a value that would lose digits, or is no text.
    """
    if pa.types.is_dictionary(source):
        return _decoded(source, target)
    if isinstance(source, pa.BaseExtensionType):
        return _stored(source, target)
    if pa.types.is_timestamp(source):
        return _moments(source, target, int96=int96)
    if source == target:
        return same
    if pa.types.is_null(source):
        return partial(_nulls, target=target)
    return partial(pc.cast, target_type=target) if _is_allowed(source, target) else None


def _decoded(source: pa.DataType, target: pa.DataType) -> Cast | None:
    rest = cast(source.value_type, target)
    return None if rest is None else lambda values: rest(values.dictionary_decode())


def _stored(source: pa.BaseExtensionType, target: pa.DataType) -> Cast | None:
    """Spark does not know types of other libraries: it reads what they are stored as.

    Hazards of dates and timestamps are not looked for behind them, so these are refused.
    """
    stored = source.storage_type
    rest = None if pa.types.is_temporal(stored) else cast(stored, target)
    return None if rest is None else lambda values: rest(values.storage)


def _moments(source: pa.DataType, target: pa.DataType, *, int96: bool) -> Cast | None:
    """Casts of timestamps with zone to such, and of those without; the zone itself does not matter.

    A zone-less timestamp in a ``timestamp`` column is UTC, as Spark reads it; not vice versa.
    """
    if not pa.types.is_timestamp(target):
        return None
    if target.tz is None and (int96 or source.tz is not None):
        return None
    if source == target:
        return same
    return partial(_in_unit, unit=pa.timestamp(target.unit, source.tz), target=target)


def _in_unit(values: pa.Array, *, unit: pa.DataType, target: pa.DataType) -> pa.Array:
    return pc.cast(values, unit).view(target)


def _nulls(values: pa.Array, *, target: pa.DataType) -> pa.Array:
    return pa.nulls(len(values), target)


def _is_allowed(source: pa.DataType, target: pa.DataType) -> bool:
    if pa.types.is_decimal(target):
        return _is_wider_decimal(source, target)
    if pa.types.is_fixed_size_binary(source):
        return target == pa.binary()
    if pa.types.is_duration(source):  # only Arrow knows them: Parquet holds plain integers
        return target == pa.int64()
    return target in _CASTS.get(source, ())


def _is_wider_decimal(source: pa.DataType, target: pa.DataType) -> bool:
    whole = target.precision - target.scale
    if pa.types.is_decimal(source):
        return source.scale <= target.scale and source.precision - source.scale <= whole
    return source in _INTEGER_DIGITS and _INTEGER_DIGITS[source] <= whole
