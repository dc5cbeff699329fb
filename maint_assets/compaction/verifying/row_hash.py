"""An order-independent hash of rows: equal for equal rows, whatever engine wrote them.

A row is hashed as a whole, so that a value that moves to another row changes it. Columns count by
name, whatever their order; types, nulls, empty values, minus zero and the order of a list's
elements count, the bits of a NaN do not: Arrow's own dictionaries do not keep them.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterable

Hashes = npt.NDArray[np.uint64]

_STEP = np.uint64(0x9E3779B97F4A7C15)
_MASK = (1 << 64) - 1
_WORD = 8
_SAMPLE = 1024
"""Sample size to decide whether texts are hashed once each: a dictionary costs more than a hash."""

_NAMES = {
    pa.large_string(): "string",
    pa.string_view(): "string",
    pa.large_binary(): "binary",
    pa.binary_view(): "binary",
}
"""Arrow types that hold the same values as others."""


class RowHash:
    """The hash of rows: their number, and the sum and exclusive or of their 64-bit hashes."""

    def __init__(self) -> None:
        self.rows = self._sum = self._xor = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows. Raises TypeError for a type that no column of a Delta table has in a file."""
        hashes = row_hashes(batch)
        self.rows += batch.num_rows
        self._sum = (self._sum + int(hashes.sum(dtype=np.uint64))) & _MASK
        self._xor ^= int(np.bitwise_xor.reduce(hashes, initial=0))

    def merge(self, values: tuple[int, int, int]) -> None:
        """Add the rows of another hash, given by its values."""
        self.rows += values[0]
        self._sum = (self._sum + values[1]) & _MASK
        self._xor ^= values[2]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RowHash) and self.values == other.values

    def __hash__(self) -> int:
        return hash(self.values)

    def __repr__(self) -> str:
        return f"{self.rows} rows {self._sum:016x}{self._xor:016x}"

    @property
    def values(self) -> tuple[int, int, int]:
        """Rows, sum and exclusive or."""
        return self.rows, self._sum, self._xor


def row_hashes(batch: pa.RecordBatch) -> Hashes:
    """A 64-bit hash of each row, the same on every machine."""
    return _joined(zip(batch.schema.names, batch.columns, strict=True), batch.num_rows, "")


def _joined(columns: Iterable[tuple[str, pa.Array]], rows: int, path: str) -> Hashes:
    """The hashes of rows, with columns counted by name, not by position."""
    total = np.zeros(rows, np.uint64)
    for name, column in columns:
        total += _hashes(column, f"{path}\0{name}")
    return _mixed(total ^ _seed(f"{path}\0"))


def _hashes(column: pa.Array, path: str) -> Hashes:
    """A hash for each value; ``path`` names the column."""
    kind = column.type
    if pa.types.is_struct(kind):
        fields = ((kind.field(at).name, column.field(at)) for at in range(kind.num_fields))
        found = _joined(fields, len(column), path)
    elif pa.types.is_map(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        found = _list_hashes(column, path)
    else:
        found = _leaf_hashes(column, _seed(f"{path}\0{_NAMES.get(kind, kind)}"))
    if column.null_count:
        nulls = column.is_null().to_numpy(zero_copy_only=False)
        found = np.where(nulls, _seed(f"{path}\0null"), found)
    return found


def _list_hashes(column: pa.Array, path: str) -> Hashes:
    """Hashes of lists by length and elements with their positions; of maps by their entries."""
    offsets = column.offsets.to_numpy().astype(np.int64)
    starts, ends = offsets[:-1] - offsets[0], offsets[1:] - offsets[0]
    elements = _element_hashes(column, slice(offsets[0], offsets[-1]), f"{path}[]")
    lengths = ends - starts
    places = np.arange(len(elements)) - np.repeat(starts, lengths)
    placed = _mixed(elements + _mixed(places.astype(np.uint64) + _STEP))
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(placed, dtype=np.uint64)])
    return _mixed(sums[ends] - sums[starts] + _mixed(lengths.astype(np.uint64) ^ _seed(path)))


def _element_hashes(lists: pa.Array, part: slice, path: str) -> Hashes:
    """Hashes of map entries with key and value by position: writers name them differently."""
    elements = lists.values[part]
    if not pa.types.is_map(lists.type):
        return _hashes(elements, path)
    return _joined([("key", elements.field(0)), ("value", elements.field(1))], len(elements), path)


def _leaf_hashes(column: pa.Array, seed: np.uint64) -> Hashes:
    kind = column.type
    if kind in _NAMES or pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _mixed(_text_hashes(column) ^ seed)
    if pa.types.is_boolean(kind):
        column = pc.cast(column, pa.uint8())
    elif pa.types.is_floating(kind):
        column = _one_nan(column)
    found = np.full(len(column), seed)
    for word in _words(column).T:
        found = _mixed(found + _STEP ^ word)
    return found


def _words(column: pa.Array) -> Hashes:
    """Fixed-width values as 64-bit words, one row each; words of nulls are undefined.

    Raises TypeError for other types.
    """
    kind = column.type
    if not (pa.types.is_primitive(kind) or pa.types.is_decimal(kind)):
        raise TypeError(f"rows with values of type {kind} cannot be compared")
    width = kind.bit_width // 8
    data = column.buffers()[1]
    if data is None:  # all null
        return np.zeros((len(column), 1), np.uint64)
    first = column.offset * width
    held = np.frombuffer(data, np.uint8)[first : first + len(column) * width]
    if width >= _WORD:
        return held.view(np.uint64).reshape(len(column), width // _WORD)
    return held.view(f"u{width}").astype(np.uint64).reshape(len(column), 1)


def _one_nan(column: pa.Array) -> pa.Array:
    nan = pc.is_nan(column)
    return pc.if_else(nan, pa.scalar(float("nan"), column.type), column)


def _text_hashes(column: pa.Array) -> Hashes:
    """Hashes of strings by their bytes, which need not be UTF-8; those of nulls are undefined."""
    texts = column.cast(pa.large_binary()).fill_null(b"")
    some = texts.slice(0, _SAMPLE)
    if 2 * pc.count_distinct(some).as_py() > len(some):
        return _bytes_hashes(texts)
    known = texts.dictionary_encode()
    return _bytes_hashes(known.dictionary)[known.indices.to_numpy()]


def _bytes_hashes(texts: pa.Array) -> Hashes:
    values = texts.to_numpy(zero_copy_only=False)
    return pd.util.hash_array(values, categorize=False)  # pyright: ignore[reportAttributeAccessIssue]


def _seed(text: str) -> np.uint64:
    """A seed from a text."""
    return np.uint64(int.from_bytes(hashlib.sha256(text.encode()).digest()[:_WORD], "little"))


def _mixed(numbers: Hashes) -> Hashes:
    """The finaliser of splitmix64."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
