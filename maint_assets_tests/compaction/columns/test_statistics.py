"""Statistics of a file from its batches: type by type, and against those of delta-spark."""

import json
import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from decimal import Decimal as DecimalNumber
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from maint_assets.compaction.columns.statistics import FileStatistics
from maint_assets.delta.actions import Action, actions
from maint_assets.delta.properties import TableProperties
from maint_assets.delta.schema import Decimal, Field, Primitive, Struct, TableSchema, Type

NAN, INF = math.nan, math.inf
LONG = Primitive("long")


def table_schema(columns: Mapping[str, Type], partition_columns: tuple[str, ...] = ()) -> Any:
    return TableSchema(_struct(columns), partition_columns)


def _struct(columns: Mapping[str, Type]) -> Struct:
    return Struct(tuple(Field(name, name, type_, None, {}) for name, type_ in columns.items()))


def found(type_: Type, arrow: pa.DataType, *batches: list[Any]) -> tuple[Any, Any, int]:
    """The minimum and maximum (None if absent) and null count of one column over these batches."""
    statistics = FileStatistics(table_schema({"c": type_}), TableProperties(), tight_bounds=False)
    for values in batches:
        statistics.add(pa.record_batch({"c": pa.array(values, arrow)}))
    read = json.loads(statistics.json(), parse_float=str)
    assert read["numRecords"] == statistics.rows == sum(map(len, batches))
    low, high = read.get("minValues", {}).get("c"), read.get("maxValues", {}).get("c")
    return low, high, read["nullCount"]["c"]


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        ([[3, 1], [2]], (1, 3, 0)),
        ([[None, None], [5, None]], (5, 5, 3)),
        ([[5], [None]], (5, 5, 1)),
        ([[None], []], (None, None, 1)),
        ([], (None, None, 0)),
        ([[2**63 - 1], [-(2**63)]], (-(2**63), 2**63 - 1, 0)),
    ],
)
def test_bounds_and_nulls_add_up_over_batches(batches: list[list[Any]], expected: Any) -> None:
    assert found(LONG, pa.int64(), *batches) == expected


@pytest.mark.parametrize(("name", "arrow"), [("float", pa.float32()), ("double", pa.float64())])
@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        ([[1.0, NAN, 3.0]], ("1.0", "NaN")),
        ([[1.0, 3.0], [NAN]], ("1.0", "NaN")),
        ([[NAN], [1.0, 3.0]], ("1.0", "NaN")),
        ([[NAN, None]], ("NaN", "NaN")),
        ([[INF, NAN], [-INF]], ("-Infinity", "NaN")),
        ([[INF], [1.0]], ("1.0", "Infinity")),
        ([[0.0, -0.0]], ("-0.0", "0.0")),
        ([[-0.0, 0.0]], ("-0.0", "0.0")),
        ([[0.0], [-0.0]], ("-0.0", "0.0")),
        ([[0.0, 2.0]], ("-0.0", "2.0")),
        ([[-2.0, -0.0]], ("-2.0", "0.0")),
        ([[-0.0, NAN]], ("-0.0", "NaN")),
    ],
)
def test_nan_is_the_greatest_number_and_bounds_hold_zeros_of_both_signs(
    batches: list[list[Any]], expected: tuple[str, str], *, name: str, arrow: pa.DataType
) -> None:
    assert found(Primitive(name), arrow, *batches)[:2] == expected


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        ([[True, None], [True]], (True, True, 1)),
        ([[False], [True]], (False, True, 0)),
        ([[True], [False], [None]], (False, True, 1)),
        ([[None]], (None, None, 1)),
    ],
)
def test_booleans_have_bounds(batches: list[list[Any]], expected: Any) -> None:
    assert found(Primitive("boolean"), pa.bool_(), *batches) == expected


@pytest.mark.parametrize("arrow", [pa.string(), pa.large_string(), pa.string_view()])
def test_strings_are_compared_as_utf_8(arrow: pa.DataType) -> None:
    assert found(Primitive("string"), arrow, ["é", ""], [None, "\U0001f600"], ["\uffff"]) == (
        "",
        "\U0001f600",
        1,
    )


def test_bytes_that_are_no_text_have_no_bound() -> None:
    broken = pa.array([b"a", b"\xff"]).view(pa.string())
    statistics = FileStatistics(
        table_schema({"c": Primitive("string")}), TableProperties(), tight_bounds=False
    )
    statistics.add(pa.record_batch({"c": broken}))

    assert statistics.json() == (
        '{"numRecords":2,"minValues":{"c":"a"},"maxValues":{},"nullCount":{"c":0}}'
    )


def test_decimals_keep_all_their_digits() -> None:
    low, high = DecimalNumber("-12345678901234567890.1230000000"), DecimalNumber("0.0000000001")

    assert found(Decimal(38, 10), pa.decimal128(38, 10), [high], [low]) == (
        str(low),
        f"{high:f}",
        0,
    )


@pytest.mark.parametrize("arrow", [pa.timestamp("us", "UTC"), pa.timestamp("us")])
def test_timestamps_are_written_in_utc(arrow: pa.DataType) -> None:
    values = [datetime.fromisoformat("1500-01-01T00:00:00.123999"), None]

    assert found(Primitive("timestamp"), arrow, values)[0] == "1500-01-01T00:00:00.123Z"


def test_value_that_the_type_of_the_table_cannot_hold_is_an_error() -> None:
    with pytest.raises(pa.ArrowInvalid):
        found(Primitive("timestamp"), pa.timestamp("ns", "UTC"), [1])


def test_leaf_is_null_where_a_struct_above_it_is() -> None:
    schema = table_schema({"s": _struct({"t": _struct({"a": LONG, "gone": Primitive("void")})})})
    inner = pa.struct([("a", pa.int64())])
    rows = [{"t": {"a": 1}}, None, {"t": None}, {"t": {"a": None}}, {"t": {"a": 9}}]
    batch = pa.record_batch({"s": pa.array(rows, pa.struct([("t", inner)]))})
    statistics = FileStatistics(schema, TableProperties(), tight_bounds=False)
    statistics.add(batch.slice(1))

    assert json.loads(statistics.json()) == {
        "numRecords": 4,
        "minValues": {"s": {"t": {"a": 9}}},
        "maxValues": {"s": {"t": {"a": 9}}},
        "nullCount": {"s": {"t": {"a": 3, "gone": 4}}},
    }


def test_columns_that_are_not_the_schema_s_data_have_no_statistics() -> None:
    schema = table_schema({"p": LONG, "v": Primitive("void"), "c": LONG}, ("p",))
    statistics = FileStatistics(schema, TableProperties(), tight_bounds=True)
    statistics.add(pa.record_batch({"c": [1, 2], "p": [0, 0], "_row-id-col": [7, 8]}))

    assert json.loads(statistics.json()) == {
        "numRecords": 2,
        "minValues": {"c": 1},
        "maxValues": {"c": 2},
        "nullCount": {"v": 2, "c": 0},
        "tightBounds": True,
    }


ROWS = """
SELECT 'of all' AS p, *, null AS gone FROM VALUES
 (named_struct('x', 1, 'Y', named_struct('z', 'deep', 'w', -1.50BD, 'no', true)),
  CAST(-128 AS BYTE), CAST(-32768 AS SHORT), -2147483648, CAST('-9223372036854775808' AS BIGINT),
  float('0.1'), double('-0.0'), CAST(-1234567.89 AS DECIMAL(9,2)), CAST(0.0001 AS DECIMAL(18,4)),
  CAST('-1234567890123456789012345678.1230000000' AS DECIMAL(38,10)), repeat('é', 40),
  concat(repeat('x', 31), '\U0001f600', 'tail'), X'00FF', true, DATE'0001-01-01',
  TIMESTAMP'1500-01-01 00:00:00.123999', TIMESTAMP_NTZ'0001-01-01 00:00:00.999999', array(1, null),
  map('k', 1), CAST(null AS INT), float('NaN'), double('-Infinity'), ''),
 (null, 127, 32767, 2147483647, 9223372036854775807, float('-3.4e38'), double('1e300'), 0, 1.5,
  CAST('9999999999999999999999999999.9999999999' AS DECIMAL(38,10)), repeat('x', 40),
  repeat('\U0001f600', 20), X'', false, DATE'9999-12-31', TIMESTAMP'9999-12-31 23:59:59.999999',
  TIMESTAMP_NTZ'2024-02-29 12:00:00', array(), map(), null, float('1'), double('Infinity'), 'a'),
 (named_struct('x', -1, 'Y', null), null, null, null, null, null, null, null, null, null, null,
  null, null, null, null, null, null, null, null, null, null, null, null)
 AS t(s, i8, i16, i32, i64, f32, f64, d9, d18, d38, text, emoji, bin, flag, day, at, at_ntz, list,
  dict, `none`, nan32, inf64, empty)
"""


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("properties", "columns"),
    [
        ({}, 27),
        ({"dataSkippingNumIndexedCols": "3"}, 3),
        ({"dataSkippingNumIndexedCols": "-1", "columnMapping.mode": "name"}, 27),
        ({"dataSkippingNumIndexedCols": "0", "enableDeletionVectors": "true"}, 0),
        ({"dataSkippingStatsColumns": "TEXT, s.y,`i8`", "columnMapping.mode": "name"}, 5),
        ({"dataSkippingStringPrefixLength": "5", "enableDeletionVectors": "true"}, 27),
    ],
    ids=["default", "first three", "all, mapped", "none, with DVs", "named, mapped", "cut at 5"],
)
def test_statistics_are_those_of_delta_spark(
    spark: SparkSession, tmp_path: Path, *, properties: dict[str, str], columns: int
) -> None:
    options = {f"delta.{key}": value for key, value in properties.items()}
    written = spark.sql(ROWS).coalesce(1).write.format("delta").partitionBy("p")
    written.options(**options).save(str(tmp_path))

    theirs, ours = _theirs_and_ours(tmp_path)

    assert without_booleans(ours) == theirs
    assert len(list(_leaves(ours.get("nullCount", {})))) == columns


def without_booleans(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The bounds as delta-spark writes them: without those of booleans, which deltalake needs."""
    return {
        name: without_booleans(value) if isinstance(value, dict) else value
        for name, value in tree.items()
        if name == "tightBounds" or not isinstance(value, bool)
    }


@pytest.mark.oracle
def test_timestamps_are_the_same_instants_whatever_the_zone_of_the_writer(
    spark: SparkSession, tmp_path: Path
) -> None:
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        rows = spark.sql("SELECT TIMESTAMP'2020-01-01 12:00:00.123456' AS at")
        rows.write.format("delta").save(str(tmp_path))
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")

    theirs, ours = (read["maxValues"]["at"] for read in _theirs_and_ours(tmp_path))

    assert (theirs, ours) == ("2020-01-01T12:00:00.123-05:00", "2020-01-01T17:00:00.123Z")
    assert datetime.fromisoformat(theirs) == datetime.fromisoformat(ours.replace("Z", "+00:00"))


def _theirs_and_ours(table: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The statistics of the only file: from the log, and ours from its rows in two batches."""
    log = (table / "_delta_log" / f"{0:020}.json").read_bytes()
    parsed = list(actions(log, table="t", file="0.json"))
    add, metadata, protocol = (_only(parsed, kind) for kind in ("add", "metaData", "protocol"))
    properties = TableProperties.of(metadata.configuration, table="t")
    mapped = properties.column_mapping_mode != "none"
    schema = TableSchema.of(metadata, mapped=mapped, table="t")
    tight = "deletionVectors" in (protocol.writer_features or ())
    statistics = FileStatistics(schema, properties, tight_bounds=tight)
    file = next(table.rglob("part-*.parquet"))
    rows = pq.ParquetFile(file, coerce_int96_timestamp_unit="us").read()
    for batch in rows.to_batches(max_chunksize=2):
        statistics.add(batch)
    return _read(add.stats, schema), _read(statistics.json(), schema)


def _only(parsed: list[Action], kind: str) -> Any:
    return next(action for each in parsed if (action := getattr(each, kind)))


def _read(text: str, schema: TableSchema) -> dict[str, Any]:
    """The statistics with numbers as readers read them: exact, but FLOAT in 32 bits."""
    read = json.loads(text, parse_float=DecimalNumber)
    for bounds in (read.get("minValues", {}), read.get("maxValues", {})):
        for field in schema.data.fields:
            if field.type == Primitive("float") and field.physical_name in bounds:
                bounds[field.physical_name] = str(np.float32(bounds[field.physical_name]))
    return read


def _leaves(tree: Mapping[str, Any]) -> Iterator[Any]:
    for value in tree.values():
        if isinstance(value, dict):
            yield from _leaves(value)
        else:
            yield value
