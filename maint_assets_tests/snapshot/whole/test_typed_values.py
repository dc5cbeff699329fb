"""Statistics and partition values as typed columns, and their conversion back to text."""

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from maint_assets.delta.schema import Decimal as DecimalType
from maint_assets.delta.schema import Field, Primitive, Type
from maint_assets.snapshot.whole.parsed_stats import json_stats
from maint_assets.snapshot.whole.typed_values import partition_type, typed_partitions, typed_stats

BOUNDS = pa.struct([
    ("i", pa.int32()),
    ("n", pa.decimal128(20, 2)),
    ("x", pa.float64()),
    ("d", pa.date32()),
    ("t", pa.timestamp("us", "UTC")),
    ("z", pa.timestamp("us")),
    ("s", pa.struct([("a.b", pa.string())])),
])
KIND = pa.struct([("numRecords", pa.int64()), ("minValues", BOUNDS)])
WRITTEN: dict[str, Any] = {
    "numRecords": 2,
    "minValues": {
        "i": 1,
        "n": 1.25,
        "x": "NaN",
        "d": "9999-12-31",
        "t": "9999-12-31T00:00:00.123Z",
        "z": "2024-02-29T12:00:00.123456",
        "s": {"a.b": "é"},
    },
}


def typed(*texts: str | None) -> pa.Array:
    return typed_stats(pa.array(texts, pa.string()), KIND)


def test_parsed_statistics_become_the_text_that_they_were() -> None:
    parsed = typed(json.dumps(WRITTEN), None, '{"numRecords":0}')

    found = [text and json.loads(text) for text in json_stats(parsed, frozenset()).to_pylist()]

    assert found == [WRITTEN, None, {"numRecords": 0}]


def test_decimals_keep_every_digit() -> None:
    (row,) = typed('{"minValues":{"n":123456789012345678.91}}').to_pylist()

    assert row["minValues"]["n"] == Decimal("123456789012345678.91")


def test_columns_have_their_statistics_whatever_their_names_are_written_in() -> None:
    bounds = pa.struct([("Ä", pa.decimal128(5, 2)), ("a", pa.int64()), ("列", BOUNDS)])
    kind = pa.struct([("numRecords", pa.int64()), ("minValues", bounds)])
    written = {"numRecords": 1, "minValues": {"Ä": 0.1, "a": 2, "列": WRITTEN["minValues"]}}
    escaped, plain = json.dumps(written), json.dumps(written, ensure_ascii=False)
    wrong = json.dumps({"numRecords": 2, "minValues": {"Ä": "x"}})

    parsed = typed_stats(pa.array([escaped, plain, wrong]), kind)

    found = [text and json.loads(text) for text in json_stats(parsed, frozenset()).to_pylist()]
    expected = {"numRecords": 1, "minValues": written["minValues"] | {"Ä": 0.10}}
    assert found == [expected, expected, {"numRecords": 2}]
    assert parsed[0].as_py()["minValues"]["Ä"] == Decimal("0.10")


@pytest.mark.parametrize("name", ['Ä"', "Ä\\", "Ä\n", "列\x00\x1f", 'a"b'])
def test_columns_have_their_statistics_whatever_their_names_hold(name: str) -> None:
    bounds = pa.struct([(name, pa.decimal128(5, 2)), ("é", BOUNDS), ("a", pa.int64())])
    kind = pa.struct([("numRecords", pa.int64()), ("minValues", bounds)])
    written = {"numRecords": 1, "minValues": {name: 0.1, "é": WRITTEN["minValues"], "a": 7}}
    escaped, plain = json.dumps(written), json.dumps(written, ensure_ascii=False)
    wrong = json.dumps({"numRecords": 2, "minValues": {name: "x"}})
    more = json.dumps({"numRecords": 3, "minValues": None, "other": [1]})

    parsed = typed_stats(pa.array([escaped, plain, wrong, more, "{"]), kind)

    assert repr(parsed[0]) == repr(parsed[1]) and parsed[4].as_py() is None
    assert parsed[0].as_py()["minValues"][name] == Decimal("0.10")
    assert parsed[0].as_py()["minValues"]["a"] == 7
    assert parsed[2:4].to_pylist() == [
        {"numRecords": 2, "minValues": None},
        {"numRecords": 3, "minValues": None},
    ]


def test_statistics_that_are_nested_beyond_all_measure_are_null() -> None:
    deep = '{"numRecords":1,"x":' + "[" * 100_000 + "]" * 100_000 + "}"

    assert typed(deep).to_pylist() == [None]


def test_value_that_is_none_of_its_type_is_null_alone() -> None:
    texts = [
        '{"numRecords":1,"minValues":{"d":"soon","i":1}}',
        '{"numRecords":2,"minValues":{"i":4000000000}}',
    ]

    rows = typed(*texts, "{", json.dumps(WRITTEN)).to_pylist()

    assert rows[0]["numRecords"] == 1 and rows[0]["minValues"]["d"] is None
    assert rows[1] == {"numRecords": 2, "minValues": None} and rows[2] is None
    assert rows[3]["minValues"]["i"] == 1


def field(name: str, kind: Type) -> Field:
    return Field(name, f"col-{name}", kind, None, {})


def test_partition_values_are_typed_by_physical_name_and_empty_ones_are_null() -> None:
    kind = partition_type([field("i", Primitive("integer")), field("n", DecimalType(9, 2))])
    maps = pa.array(
        [{"col-i": "7", "col-n": "1.10"}, {"col-i": "", "col-n": None}, {"col-i": "x"}],
        pa.map_(pa.string(), pa.string()),
    )

    assert kind is not None
    assert typed_partitions(maps, kind).to_pylist() == [
        {"col-i": 7, "col-n": Decimal("1.10")},
        {"col-i": None, "col-n": None},
        {"col-i": None, "col-n": None},
    ]


def test_partition_values_whose_text_needs_a_time_zone_are_not_typed() -> None:
    assert partition_type([field("t", Primitive("timestamp"))]) is None
    assert partition_type([]) is None
