"""Statistics of a file: the columns that have them, bounds of strings, the text in the log."""

import math
from decimal import Decimal as DecimalNumber

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maint_assets.delta.properties import TableProperties
from maint_assets.delta.schema import (
    Array,
    Decimal,
    Field,
    Map,
    Primitive,
    Struct,
    TableSchema,
    Type,
)
from maint_assets.delta.stats import (
    ColumnStatistics,
    has_bounds,
    indexed_columns,
    is_skipping_eligible,
    stats_json,
    string_maximum,
    string_minimum,
)

DELETE, LAST, EMOJI = "\x7f", "\U0010ffff", "\U0001f600"
LONG, STRING = Primitive("long"), Primitive("string")


def field(name: str, type_: Type = LONG, physical_name: str | None = None) -> Field:
    return Field(name, physical_name or name, type_, None, {})


SCHEMA = TableSchema(
    Struct((
        field("p", STRING),
        field("s", Struct((field("X"), field("t", Struct((field("y"), field("dot.ted"))))))),
        field("items", Array(Struct((field("inside"),)))),
        field("b", physical_name="col-1"),
        field("tick`ed", Struct((field("z", physical_name="col-3"),)), "col-2"),
    )),
    ("p",),
)
ALL = (
    ("s", "X"),
    ("s", "t", "y"),
    ("s", "t", "dot.ted"),
    ("items",),
    ("col-1",),
    ("col-2", "col-3"),
)


@pytest.mark.parametrize(("count", "expected"), [(-1, 6), (0, 0), (2, 2), (4, 4), (32, 6)])
def test_first_leaves_are_indexed_without_partition_columns(count: int, expected: int) -> None:
    properties = TableProperties(data_skipping_num_indexed_cols=count)

    assert indexed_columns(SCHEMA, properties) == ALL[:expected]


def test_thirty_two_columns_are_indexed_by_default() -> None:
    wide = TableSchema(Struct(tuple(field(f"c{number}") for number in range(40))), ())

    assert len(indexed_columns(wide, TableProperties())) == 32


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("b", [4]),
        (" B , s.x ", [0, 4]),
        ("S", [0, 1, 2]),
        ("s . t", [1, 2]),
        ("s.t.`dot.ted`", [2]),
        ("s.t.dot.ted", []),
        ("`TICK``ed`", [5]),
        ("`tick``ed`.`z`", [5]),
        ("items", [3]),
        ("items.element", []),
        ("s,s.x", [0, 1, 2]),
        ("col-1, p, gone", []),
        ("b other, s.x", [4]),
        (", b", []),
        ("`b", []),
    ],
)
def test_named_columns_are_indexed_instead(text: str, expected: list[int]) -> None:
    properties = TableProperties(data_skipping_stats_columns=text, data_skipping_num_indexed_cols=1)

    assert indexed_columns(SCHEMA, properties) == tuple(ALL[at] for at in expected)


@pytest.mark.parametrize(
    ("type_", "bounded"),
    [
        *((Primitive(name), True) for name in ("byte", "short", "integer", "long", "float")),
        *((Primitive(name), True) for name in ("double", "date", "timestamp", "timestamp_ntz")),
        (STRING, True),
        (Primitive("boolean"), True),
        (Decimal(38, 10), True),
        *((Primitive(name), False) for name in ("binary", "void", "variant", "geo")),
        (Array(LONG), False),
        (Map(STRING, LONG), False),
    ],
)
def test_bounds_belong_to_types_with_an_order_that_readers_use(type_: Type, bounded: bool) -> None:
    assert has_bounds(type_) is bounded
    assert is_skipping_eligible(type_) is (bounded and type_ != Primitive("boolean"))


@pytest.mark.parametrize(
    ("text", "least", "greatest"),
    [
        ("", "", ""),
        ("x" * 32, "x" * 32, "x" * 32),
        ("x" * 40, "x" * 32, "x" * 32 + DELETE),
        ("é" * 40, "é" * 32, "é" * 32 + LAST),
        ("x" * 32 + DELETE, "x" * 32, "x" * 32 + LAST),
        (EMOJI * 40, EMOJI * 32, EMOJI * 16 + LAST),
        ("x" * 31 + EMOJI, "x" * 31 + EMOJI, "x" * 31 + EMOJI),
        ("x" * 31 + EMOJI + "tail", "x" * 31 + EMOJI, "x" * 31 + EMOJI + DELETE),
        ("x" * 32 + LAST * 2, "x" * 32, "x" * 32 + LAST * 2),
        ("x" * 32 + LAST * 2 + "yz", "x" * 32, "x" * 32 + LAST * 2 + DELETE),
        ("x" * 32 + LAST * 17, "x" * 32, None),
    ],
)
def test_long_string_is_cut_into_bounds(text: str, least: str, greatest: str | None) -> None:
    assert string_minimum(text, 32) == least
    assert string_maximum(text, 32) == greatest


@pytest.mark.parametrize(("text", "greatest"), [("", ""), ("a", None)])
def test_prefix_length_of_zero_leaves_nothing_of_a_string(text: str, greatest: str | None) -> None:
    assert string_minimum(text, 0) == ""
    assert string_maximum(text, 0) == greatest


@given(
    text=st.text(alphabet=st.sampled_from(["a", DELETE, "é", EMOJI, LAST]), max_size=12),
    length=st.integers(0, 5),
)
def test_bounds_of_a_string_enclose_it_in_the_order_of_utf_8(text: str, length: int) -> None:
    least, greatest = string_minimum(text, length), string_maximum(text, length)

    assert least.encode() <= text.encode()
    assert greatest is None or text.encode() <= greatest.encode()


def written(type_: Type, low: object, high: object | None = None) -> str:
    column = ColumnStatistics(("c",), type_, 0, low, low if high is None else high)  # pyright: ignore[reportArgumentType]
    text = stats_json([column], rows=1, tight_bounds=False)
    return text.removeprefix('{"numRecords":1,').removesuffix(',"nullCount":{"c":0}}')


def test_statistics_mirror_the_schema_by_physical_names() -> None:
    columns = [
        ColumnStatistics(("col-1",), LONG, 1, 2, 3),
        ColumnStatistics(("s", "a"), STRING, 0, "a", "é"),
        ColumnStatistics(("s", "t", "none"), LONG, 5),
        ColumnStatistics(("s", "flag"), Primitive("boolean"), 4),
    ]

    assert stats_json(columns, rows=5, tight_bounds=True) == (
        '{"numRecords":5,"minValues":{"col-1":2,"s":{"a":"a","t":{}}},'
        '"maxValues":{"col-1":3,"s":{"a":"é","t":{}}},'
        '"nullCount":{"col-1":1,"s":{"a":0,"t":{"none":5},"flag":4}},"tightBounds":true}'
    )


def test_statistics_without_columns_are_the_number_of_rows() -> None:
    assert stats_json([], rows=7, tight_bounds=False) == '{"numRecords":7}'


def test_statistics_without_bounds_are_null_counts() -> None:
    columns = [ColumnStatistics(("c",), Primitive("binary"), 1)]

    assert stats_json(columns, rows=7, tight_bounds=False) == (
        '{"numRecords":7,"nullCount":{"c":1}}'
    )


def test_strings_are_cut_at_the_length_that_the_table_asks_for() -> None:
    columns = [ColumnStatistics(("c",), STRING, 0, "abcd", "wxyz")]

    text = stats_json(columns, rows=2, tight_bounds=False, prefix_length=3)

    assert '"minValues":{"c":"abc"},"maxValues":{"c":"wxy\x7f"}' in text


@pytest.mark.parametrize(
    ("type_", "value", "text"),
    [
        (LONG, 2**63 - 1, "9223372036854775807"),
        (LONG, -(2**63), "-9223372036854775808"),
        (Decimal(38, 10), DecimalNumber("-1234567890123456789012345678.1230000000"), None),
        (Decimal(38, 10), DecimalNumber("0E-10"), "0.0000000000"),
        (Decimal(9, 2), DecimalNumber("1.50"), "1.50"),
        (Decimal(38, 0), DecimalNumber("1E+37"), "1" + "0" * 37),
        (Primitive("double"), 1e300, "1e300"),
        (Primitive("double"), -0.0, "-0.0"),
        (Primitive("float"), 0.10000000149011612, "0.10000000149011612"),
        (Primitive("double"), math.nan, '"NaN"'),
        (Primitive("float"), math.inf, '"Infinity"'),
        (Primitive("float"), -math.inf, '"-Infinity"'),
        (Primitive("boolean"), True, "true"),
        (Primitive("boolean"), False, "false"),
        (Primitive("date"), 18_321, '"2020-02-29"'),
        (Primitive("date"), -719_162, '"0001-01-01"'),
        (Primitive("date"), 2_932_896, '"9999-12-31"'),
        (Primitive("timestamp"), 1_577_898_000_123_999, '"2020-01-01T17:00:00.123Z"'),
        (Primitive("timestamp"), 0, '"1970-01-01T00:00:00.000Z"'),
        (Primitive("timestamp"), -1, '"1969-12-31T23:59:59.999Z"'),
        (Primitive("timestamp_ntz"), 1_577_898_000_123_999, '"2020-01-01T17:00:00.123"'),
    ],
)
def test_bound_is_written_exactly(type_: Type, value: object, text: str | None) -> None:
    assert written(type_, value) == (
        f'"minValues":{{"c":{text or value}}},"maxValues":{{"c":{text or value}}}'
    )


@pytest.mark.parametrize("name", ["timestamp", "timestamp_ntz", "date"])
def test_bound_outside_the_years_1_to_9999_is_left_out(name: str) -> None:
    assert written(Primitive(name), 0, 2**62) == (
        written(Primitive(name), 0).split(',"maxValues"')[0] + ',"maxValues":{}'
    )
