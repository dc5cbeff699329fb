"""The hash of rows in any order: equal for the same rows only, of every type."""

import io
import math
from collections import Counter
from datetime import timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from maint_assets.compaction.verifying.row_hash import RowHash

ENTRY = pa.struct([("k", pa.string()), ("list", pa.list_(pa.float64()))])
SCHEMA = pa.schema([
    ("byte", pa.int8()),
    ("short", pa.int16()),
    ("integer", pa.int32()),
    ("long", pa.int64()),
    ("float", pa.float32()),
    ("double", pa.float64()),
    ("string", pa.string()),
    ("binary", pa.binary()),
    ("boolean", pa.bool_()),
    ("date", pa.date32()),
    ("timestamp", pa.timestamp("us", "UTC")),
    ("timestamp_ntz", pa.timestamp("us")),
    ("small decimal", pa.decimal128(9, 2)),
    ("decimal", pa.decimal128(38, 4)),
    ("list", pa.list_(pa.string())),
    ("map", pa.map_(pa.string(), pa.int64())),
    ("struct", pa.struct([("x", pa.int64()), ("inner", pa.struct([("y", pa.string())]))])),
    ("nested", pa.list_(ENTRY)),
    ("deep", pa.map_(pa.int32(), pa.list_(pa.list_(pa.bool_())))),
])
"""Every type that a table's column can have in a file."""


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**precision - 1
    return st.integers(-most, most).map(lambda n: Decimal(f"{n}e-{scale}"))


def values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Values of a type, including nulls."""
    return st.none() | _values(kind)


def _values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_nested(kind):
        return _nested(kind)
    if pa.types.is_decimal(kind):
        return decimals(kind.precision, kind.scale)
    if pa.types.is_integer(kind):
        return integers(kind.bit_width)
    return {
        pa.float32(): st.floats(width=32),
        pa.float64(): st.floats(),
        pa.string(): st.text(max_size=5),
        pa.binary(): st.binary(max_size=5),
        pa.bool_(): st.booleans(),
        pa.date32(): st.dates(),
        pa.timestamp("us"): st.datetimes(),
        pa.timestamp("us", "UTC"): st.datetimes(timezones=st.just(timezone.utc)),
    }[kind]


def _nested(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_struct(kind):
        return st.fixed_dictionaries({field.name: values(field.type) for field in kind})
    if pa.types.is_map(kind):
        keys, items = _values(kind.key_type), values(kind.item_type)
        return st.dictionaries(keys, items, max_size=3).map(lambda found: list(found.items()))
    return st.lists(values(kind.value_type), max_size=3)


def tables(least: int = 0) -> st.SearchStrategy[pa.Table]:
    """Tables of some of the columns."""
    schemas = st.lists(st.sampled_from(list(SCHEMA)), min_size=1, max_size=4, unique=True)
    return schemas.map(pa.schema).flatmap(
        lambda schema: st.lists(
            st.fixed_dictionaries({field.name: values(field.type) for field in schema}),
            min_size=least,
            max_size=5,
        ).map(lambda rows: pa.Table.from_pylist(rows, schema))
    )


def hashed(rows: pa.Table, *, chunk: int = 1000) -> RowHash:
    found = RowHash()
    for batch in rows.to_batches(chunk):
        found.add(batch)
    return found


def one(kind: pa.DataType, *column: Any) -> RowHash:
    """The hash of rows of one column."""
    return hashed(pa.table({"c": pa.array(column, kind)}))


def content(rows: pa.Table) -> Counter[str]:
    """The rows as text: NaN equals NaN, and -0.0 differs from 0.0."""
    return Counter(map(repr, rows.to_pylist()))


@given(rows=tables(), random=st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_order_and_batches_do_not_count(rows: pa.Table, random: Any) -> None:
    shuffled = rows.take(pa.array(random.sample(range(len(rows)), len(rows)), pa.int64()))

    assert hashed(shuffled, chunk=random.randint(1, 4)) == hashed(rows)


@given(rows=tables(least=1), data=st.data())
@settings(max_examples=150, deadline=None)
def test_another_value_counts(rows: pa.Table, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(rows) - 1))
    field = data.draw(st.sampled_from(list(rows.schema)))
    changed = rows.to_pylist()
    changed[at][field.name] = data.draw(values(field.type))
    other = pa.Table.from_pylist(changed, rows.schema)
    assume(content(other) != content(rows))

    assert hashed(other) != hashed(rows)


@given(rows=tables(least=2), data=st.data())
@settings(max_examples=150, deadline=None)
def test_values_that_change_rows_count(rows: pa.Table, data: st.DataObject) -> None:
    first, second = data.draw(st.permutations(range(len(rows))))[:2]
    name = data.draw(st.sampled_from(rows.column_names))
    swapped = rows.to_pylist()
    swapped[first][name], swapped[second][name] = swapped[second][name], swapped[first][name]
    other = pa.Table.from_pylist(swapped, rows.schema)

    assert (hashed(other) == hashed(rows)) == (content(other) == content(rows))


@given(rows=tables())
@settings(max_examples=40, deadline=None)
def test_a_file_does_not_count(rows: pa.Table) -> None:
    file = io.BytesIO()
    pq.write_table(rows, file, store_schema=False, store_decimal_as_integer=True)

    assert hashed(pq.read_table(file)) == hashed(rows)


@pytest.mark.parametrize(
    ("kind", "this", "other"),
    [
        (pa.float64(), 0.0, -0.0),
        (pa.float64(), math.nan, None),
        (pa.string(), "", None),
        (pa.string(), "nan", None),
        (pa.binary(), b"", None),
        (pa.int64(), 0, None),
        (pa.list_(pa.int64()), [], None),
        (pa.list_(pa.int64()), [], [None]),
        (pa.list_(pa.int64()), [1, 2], [2, 1]),
        (pa.list_(pa.list_(pa.int64())), [[1], [2]], [[1, 2]]),
        (pa.list_(pa.list_(pa.int64())), [[1], []], [[], [1]]),
        (pa.list_(pa.string()), ["ab", "c"], ["a", "bc"]),
        (pa.map_(pa.string(), pa.string()), [("a", "b")], [("b", "a")]),
        (pa.map_(pa.string(), pa.string()), [], None),
        (pa.struct([("a", pa.int64()), ("b", pa.int64())]), {"a": 1}, {"b": 1}),
        (pa.struct([("a", pa.int64())]), {"a": None}, None),
        (pa.decimal128(38, 0), Decimal(1), Decimal(1 + (1 << 64))),
    ],
)
def test_values_that_are_easily_mistaken_count(kind: pa.DataType, this: Any, other: Any) -> None:
    assert one(kind, this) != one(kind, other)


def test_names_and_types_of_columns_count_and_their_order_does_not() -> None:
    rows = pa.table({"a": [1, 2], "b": [3, 4]})

    assert hashed(rows.select(["b", "a"])) == hashed(rows)
    assert hashed(rows.rename_columns(["b", "a"])) != hashed(rows)
    assert hashed(rows.select(["a"])) != hashed(rows)
    assert one(pa.int32(), 1) != one(pa.int64(), 1)
    assert one(pa.large_string(), "a") == one(pa.string(), "a")


def test_pairs_of_equal_rows_do_not_cancel_out() -> None:
    assert one(pa.int64(), 1, 1, 2, 2) != one(pa.int64(), 3, 3, 4, 4)
    assert one(pa.int64(), 1, 1) != one(pa.int64())


def test_the_bits_of_a_nan_do_not_count() -> None:
    bits = pa.array([0x7FF8000000000000, 0x7FF8000000000001], pa.int64()).view(pa.float64())

    assert one(pa.float64(), math.nan, math.nan) == hashed(pa.table({"c": bits}))


def test_bytes_of_a_string_that_is_none_are_hashed() -> None:
    broken = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"], pa.binary()).buffers())

    assert hashed(pa.table({"c": broken})) != one(pa.string(), "\ufffd")


def test_slices_and_masked_rows_are_hashed_as_they_are() -> None:
    lists = [{"long": n, "list": ["x"] * n, "nested": [{"k": "y"}] * n} for n in range(5)]
    rows = pa.Table.from_pylist(lists, SCHEMA)
    batch = rows.combine_chunks().to_batches()[0]
    mask = pa.array([False, True, True, False, True])
    picked = RowHash()
    picked.add(batch.filter(mask))
    sliced = RowHash()
    sliced.add(batch.slice(1, 2))
    sliced.add(batch.slice(4))

    assert picked == sliced == hashed(pa.Table.from_pylist([lists[4], lists[2], lists[1]], SCHEMA))


def test_a_type_that_no_table_has_is_refused() -> None:
    with pytest.raises(TypeError, match="null cannot be compared"):
        one(pa.null(), None)


def test_texts_that_repeat_have_the_hashes_that_they_have_alone() -> None:
    """Repeated texts are hashed only once; the result must be the same."""
    texts = pa.table({"c": ["a", "b", None, ""] * 50})
    alone = RowHash()
    for at in range(len(texts)):
        alone.add(texts.slice(at, 1).to_batches()[0])

    assert hashed(texts) == alone
