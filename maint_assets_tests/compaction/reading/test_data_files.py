"""The live rows of data files in the columns of new files, as delta-spark reads them."""

import datetime as dt
import struct
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64
from pyspark.sql import SparkSession

from maint_assets.compaction.columns.physical import FileSchema
from maint_assets.compaction.reading.data_files import rows_of
from maint_assets.compaction.reading.matching import matches, sources
from maint_assets.delta.actions import Add, DeletionVector
from maint_assets.errors import CorruptLogError, StorageError
from maint_assets.storage.location import Location
from maint_assets_tests.oracles.delta_spark import table
from maint_assets_tests.support import vectors
from maint_assets_tests.support.builder import TableBuilder
from maint_assets_tests.support.data_files import Opened, by_delta_spark, opened, schema_of

STRUCT = {"type": "struct", "fields": [{"name": n, "type": "long"} for n in ("x", "y")]}
ALL_TYPES = """
    SELECT CAST(id AS BYTE) AS b, CAST(id AS SHORT) AS s, CAST(id AS INT) AS i, id AS l,
      CAST(id AS FLOAT) / 3 AS f, IF(id = 2, DOUBLE('NaN'), id / 7) AS d, id = 1 AS flag,
      CAST(id AS DECIMAL(7, 2)) AS small, CAST(id AS DECIMAL(38, 10)) AS wide,
      concat('é', id) AS text, CAST(concat('b', id) AS BINARY) AS bin,
      make_date(1500 + 400 * id, 1, 1) AS day,
      CAST(concat(1500 + 400 * id, '-01-01 01:02:03.456789') AS TIMESTAMP) AS at,
      CAST(concat(1500 + 400 * id, '-01-01 01:02:03.456789') AS TIMESTAMP_NTZ) AS local,
      IF(id = 1, NULL, array(id, NULL)) AS list, map('k', id, 'n', NULL) AS m,
      IF(id = 2, NULL, struct(id AS x, array(struct(id AS y)) AS z)) AS st,
      array(TIMESTAMP'2300-01-01 00:00:00') AS moments
    FROM range(0, 3, 1, 1)
"""


def holding(path: Path, columns: pa.Table, schema: Any, **fields: Any) -> Opened:
    """Write one file with these columns, and open it as a file of a table with that schema."""
    pq.write_table(columns, path / "f", row_group_size=4)
    target = schema if isinstance(schema, FileSchema) else FileSchema.of(schema)
    add = Add("f", (path / "f").stat().st_size, **fields)
    return Opened(Location.of(str(path)), target, (add,))


def read(found: Opened) -> list[dict[str, Any]]:
    return pa.Table.from_batches(found.batches(), found.target.arrow).to_pylist()


def values(found: Opened, column: str = "c") -> list[Any]:
    return [row[column] for row in read(found)]


def utc(year: int, *rest: int) -> dt.datetime:
    return dt.datetime(year, *(rest or (1, 1)), tzinfo=dt.timezone.utc)


MOMENTS = [utc(1500), utc(2300), None]
DAY = dt.date(2020, 1, 2)
LOCAL = dt.datetime.combine(DAY, dt.time())
UTC_US = pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("kind", "given", "stored", "expected"),
    [
        ("short", pa.int8(), [-1], [-1]),
        ("integer", pa.int8(), [-1], [-1]),
        ("long", pa.int16(), [-1], [-1]),
        ("long", pa.int32(), [2**31 - 1], [2**31 - 1]),
        ("short", pa.uint8(), [2**8 - 1], [2**8 - 1]),
        ("integer", pa.uint16(), [2**16 - 1], [2**16 - 1]),
        ("long", pa.uint32(), [2**32 - 1], [2**32 - 1]),
        ("double", pa.int32(), [2**31 - 1], [2.0**31 - 1]),
        ("double", pa.float32(), [0.5], [0.5]),
        ("timestamp_ntz", pa.date32(), [DAY], [LOCAL]),
        ("timestamp", pa.timestamp("us"), [LOCAL], [LOCAL.replace(tzinfo=dt.timezone.utc)]),
        ("timestamp", pa.timestamp("ms"), [LOCAL], [LOCAL.replace(tzinfo=dt.timezone.utc)]),
        ("decimal(12,2)", pa.int32(), [5], [Decimal("5.00")]),
        ("decimal(20,0)", pa.int64(), [2**63 - 1], [Decimal(2**63 - 1)]),
        ("decimal(12,4)", pa.decimal128(10, 2), [Decimal("1.25")], [Decimal("1.2500")]),
        ("decimal(38,2)", pa.decimal256(20, 2), [Decimal("1.25")], [Decimal("1.25")]),
        ("string", pa.large_string(), ["a"], ["a"]),
        ("string", pa.string_view(), ["a"], ["a"]),
        ("string", pa.dictionary(pa.int8(), pa.string()), ["a", None], ["a", None]),
        ("binary", pa.binary(2), [b"ab"], [b"ab"]),
        ("timestamp", pa.timestamp("ms", "UTC"), [utc(1500)], [utc(1500)]),
        ("timestamp", pa.timestamp("us", "Asia/Tokyo"), [utc(1500)], [utc(1500)]),
        ("timestamp_ntz", pa.timestamp("ms"), [LOCAL], [LOCAL]),
        ("long", pa.null(), [None], [None]),
        ("string", pa.binary(), ["é".encode(), None], ["é", None]),
        ("string", pa.large_binary(), [b"a"], ["a"]),
        ("string", pa.binary_view(), [b"a"], ["a"]),
        ("binary", pa.string(), ["é", None], ["é".encode(), None]),
        ("binary", pa.large_string(), ["a"], [b"a"]),
        ("binary", pa.string_view(), ["a"], [b"a"]),
        ("byte", pa.int32(), [-(2**7), 2**7 - 1, None], [-(2**7), 2**7 - 1, None]),
        ("short", pa.int32(), [-(2**15), 2**15 - 1], [-(2**15), 2**15 - 1]),
        ("long", pa.duration("us"), [7, None], [7, None]),
        ("long", pa.duration("s"), [7], [7]),
    ],
)
def test_type_that_was_widened_since_is_cast(
    tmp_path: Path, kind: str, given: pa.DataType, stored: list[Any], expected: list[Any]
) -> None:
    columns = pa.table({"c": pa.array(stored, given)})
    listed = pa.table({"c": pa.array([stored, None], pa.list_(given))})
    array = {"type": "array", "elementType": kind}

    assert values(holding(tmp_path, columns, schema_of(("c", kind)))) == expected
    assert values(holding(tmp_path, listed, schema_of(("c", array)))) == [expected, None]


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("byte", pa.int16()),
        ("integer", pa.int64()),
        ("double", pa.int64()),
        ("float", pa.float64()),
        ("float", pa.int8()),
        ("float", pa.float16()),
        ("byte", pa.uint8()),
        ("short", pa.uint16()),
        ("integer", pa.uint32()),
        ("long", pa.uint64()),
        ("integer", pa.duration("us")),
        ("decimal(11,2)", pa.int32()),
        ("decimal(21,2)", pa.int64()),
        ("decimal(10,2)", pa.decimal128(10, 3)),
        ("decimal(10,2)", pa.decimal128(11, 2)),
        ("decimal(11,3)", pa.decimal128(11, 2)),
        ("string", pa.int32()),
        ("string", pa.uuid()),
        ("string", pa.binary(2)),
        ("boolean", pa.int8()),
        ("boolean", pa.bool8()),
        ("timestamp", pa.opaque(pa.timestamp("us", "UTC"), "moment", "other")),
        ("date", pa.timestamp("us")),
        ("timestamp", pa.date32()),
        ("timestamp_ntz", UTC_US),
        ("timestamp", pa.int64()),
        ("string", pa.struct([("x", pa.string())])),
        (STRUCT, pa.int64()),
        (STRUCT, pa.list_(pa.int64())),
        ({"type": "map", "keyType": "long", "valueType": "long"}, pa.list_(pa.int64())),
    ],
)
def test_any_other_type_is_refused(tmp_path: Path, kind: Any, given: pa.DataType) -> None:
    columns = pa.table({"c": pa.nulls(1, given)})

    found = holding(tmp_path, columns, schema_of(("c", kind)))

    with pytest.raises(StorageError, match=r"file f .* column c is .*, which does not become"):
        found.batches()
    assert len(found.hazards()) == 1


@pytest.mark.parametrize(
    ("kind", "storage", "given"),
    [
        ("binary", pa.array([bytes(range(16)), None], pa.binary(16)), pa.uuid()),
        ("string", pa.array(["{}", None]), pa.json_()),
        ("byte", pa.array([1, None], pa.int8()), pa.bool8()),
        ("long", pa.array([1, None], pa.int32()), pa.opaque(pa.int32(), "number", "other")),
    ],
)
def test_types_of_other_libraries_are_read_as_they_are_stored(
    tmp_path: Path, kind: str, storage: pa.Array, given: pa.DataType
) -> None:
    columns = pa.table({"c": pa.ExtensionArray.from_storage(given, storage)})

    assert values(holding(tmp_path, columns, schema_of(("c", kind)))) == storage.to_pylist()


@pytest.mark.parametrize(
    ("kind", "stored"),
    [("string", b"\xff"), ("byte", 2**7), ("byte", -(2**7) - 1), ("short", 2**15)],
)
def test_values_that_the_table_s_type_cannot_hold_are_refused(
    tmp_path: Path, kind: str, stored: Any
) -> None:
    arrow = pa.binary() if kind == "string" else pa.int32()
    found = holding(tmp_path, pa.table({"c": pa.array([stored], arrow)}), schema_of(("c", kind)))

    with pytest.raises(StorageError, match=r"Invalid UTF8|not in range"):
        found.batches()


def test_moments_that_lose_digits_are_refused(tmp_path: Path) -> None:
    columns = pa.table({"c": pa.array([1], pa.timestamp("ns", "UTC"))})

    found = holding(tmp_path, columns, schema_of(("c", "timestamp")))

    with pytest.raises(StorageError, match="would lose data"):
        found.batches()


def test_int96_is_exact_far_from_today(tmp_path: Path) -> None:
    columns = pa.table({
        "c": pa.array(MOMENTS, UTC_US),
        "l": pa.array([[each] for each in MOMENTS], pa.list_(UTC_US)),
    })
    array = {"type": "array", "elementType": "timestamp"}
    found = holding(tmp_path, columns, schema_of(("c", "timestamp"), ("l", array)))
    pq.write_table(columns, tmp_path / "f", use_deprecated_int96_timestamps=True)

    assert values(found) == MOMENTS
    assert values(found, "l") == [[each] for each in MOMENTS]
    with pytest.raises(StorageError, match="column c is int96, which does not become"):
        holding_again(found, schema_of(("c", "timestamp_ntz"))).batches()


def test_int96_is_recognised_behind_columns_of_other_libraries(tmp_path: Path) -> None:
    moments = pa.array([utc(1500)], UTC_US)
    pair = pa.opaque(pa.struct([("a", pa.int64()), ("b", pa.int64())]), "pair", "other")
    columns = pa.table({"u": pa.nulls(1, pa.uuid()), "o": pa.nulls(1, pair), "c": moments})
    found = holding(tmp_path, columns, schema_of(("c", "timestamp")))
    pq.write_table(columns, tmp_path / "f", use_deprecated_int96_timestamps=True)

    assert values(found) == [utc(1500)]


def holding_again(found: Opened, schema: Any) -> Opened:
    return Opened(found.location, FileSchema.of(schema), found.adds)


def test_columns_are_matched_by_name_at_every_level(tmp_path: Path) -> None:
    old = pa.struct([("gone", pa.string()), ("y", pa.int32())])
    columns = pa.table({
        "_change_type": pa.array(["insert", "insert"]),
        "l": pa.array([[{"gone": "g", "y": 1}, None], None], pa.large_list(old)),
        "m": pa.array([[("k", {"gone": "g", "y": 2})], []], pa.map_(pa.string(), old)),
        "s": pa.array([{"gone": "g", "y": 3}, None], old),
        "t": pa.array([{"gone": "g"}, None], pa.struct([("gone", pa.string())])),
    })
    array = {"type": "array", "elementType": STRUCT}
    by_key = {"type": "map", "keyType": "string", "valueType": STRUCT}

    schema = schema_of(("new", "date"), ("t", STRUCT), ("s", STRUCT), ("m", by_key), ("l", array))
    first, second = read(holding(tmp_path, columns, schema))

    assert first == {
        "new": None,
        "t": {"x": None, "y": None},
        "s": {"x": None, "y": 3},
        "m": [("k", {"x": None, "y": 2})],
        "l": [{"x": None, "y": 1}, None],
    }
    assert second == {"new": None, "t": None, "s": None, "m": [], "l": None}


def test_slices_are_cast_as_well_as_whole_columns(tmp_path: Path) -> None:
    old = pa.struct([("y", pa.int32())])
    inner = [[{"y": 1}], None, [{"y": 2}, None, {"y": 3}]]
    columns = pa.table({
        "l": pa.array(inner, pa.list_(old)),
        "m": pa.array([[("k", each)] for each in inner], pa.map_(pa.string(), pa.list_(old))),
        "s": pa.array([{"l": each} for each in inner], pa.struct([("l", pa.list_(old))])),
    })
    array = {"type": "array", "elementType": STRUCT}
    by_key = {"type": "map", "keyType": "string", "valueType": array}
    below = {"type": "struct", "fields": [{"name": "l", "type": array}]}
    found = holding(tmp_path, columns, schema_of(("l", array), ("m", by_key), ("s", below)))

    with pq.ParquetFile(tmp_path / "f") as file:
        whole = file.read().combine_chunks().to_batches()[0]
        for match in matches(sources(file), found.target):
            assert match.source is not None
            part = match.cast(whole.column(match.source).slice(1, 2))
            part.validate(full=True)
            assert part.to_pylist() == values(found, match.source)[1:]


def test_file_without_any_column_of_the_table_has_null_rows(tmp_path: Path) -> None:
    columns = pa.table({"gone": range(10)})

    assert values(holding(tmp_path, columns, schema_of(("c", "long")))) == [None] * 10


def test_defaults_of_columns_are_never_applied(tmp_path: Path) -> None:
    default = {"CURRENT_DEFAULT": "42", "EXISTS_DEFAULT": "42"}
    schema = schema_of(("a", "long"), {"name": "c", "type": "long", "metadata": default})

    assert values(holding(tmp_path, pa.table({"a": [1]}), schema)) == [None]


def test_columns_with_dots_are_distinguished_from_fields(tmp_path: Path) -> None:
    columns = pa.table({"a": [{"b": 1}], "a.b": [2]})
    inner = {"type": "struct", "fields": [{"name": "b", "type": "long"}]}

    schema = schema_of(("a", inner), ("a.b", "long"))

    assert read(holding(tmp_path, columns, schema)) == [{"a": {"b": 1}, "a.b": 2}]
    assert values(holding(tmp_path, columns, schema_of(("a", inner))), "a") == [{"b": 1}]


def test_a_column_in_another_case_is_the_table_s_if_no_other_can_be(tmp_path: Path) -> None:
    columns = pa.table({"C": [1], "S": [{"X": 2}], "L": [[{"Y": 3}]]})
    array = {"type": "array", "elementType": STRUCT}

    found = holding(tmp_path, columns, schema_of(("s", STRUCT), ("c", "long"), ("l", array)))

    assert read(found) == [{"s": {"x": 2, "y": None}, "c": 1, "l": [{"x": None, "y": 3}]}]
    assert found.hazards() == []


def test_the_column_of_exactly_the_name_comes_before_others(tmp_path: Path) -> None:
    columns = pa.table({"C": [1], "c": [2]})

    assert values(holding(tmp_path, columns, schema_of(("c", "long")))) == [2]
    older = holding(tmp_path, columns.select(["C"]), schema_of(("c", "long"), ("C", "long")))
    assert read(older) == [{"c": None, "C": 1}]


def test_two_columns_in_another_case_are_refused(tmp_path: Path) -> None:
    columns = pa.table({"cC": [1], "Cc": [2]})
    found = holding(tmp_path, columns, schema_of(("cc", "long")))

    with pytest.raises(StorageError, match="column cc is in it 2 times, as 'cC' and 'Cc'"):
        found.batches()


def test_text_that_is_json_to_parquet_is_text(tmp_path: Path) -> None:
    docs = pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a": 1}', None, "2"]))
    lists = pa.ListArray.from_arrays(pa.array([0, 2, None, 3]), docs)
    columns = pa.table({"c": docs, "l": lists})
    array = {"type": "array", "elementType": "string"}

    found = holding(tmp_path, columns, schema_of(("c", "string"), ("l", array)))

    assert values(found) == ['{"a": 1}', None, "2"]
    assert values(found, "l") == [['{"a": 1}', None], ["2"], None]


@pytest.mark.parametrize("view", [pa.list_view, pa.large_list_view])
def test_lists_that_arrow_wrote_as_views_are_lists(tmp_path: Path, view: Any) -> None:
    inner = [["a", None], None, [], ["b"]]
    columns = pa.table({
        "l": pa.array(inner, view(pa.string())),
        "s": pa.array([{"x": each} for each in inner], pa.struct([("x", view(pa.string()))])),
    })
    array = {"type": "array", "elementType": "string"}
    below = {"type": "struct", "fields": [{"name": "x", "type": array}]}

    found = holding(tmp_path, columns, schema_of(("l", array), ("s", below)))

    assert found.hazards() == []
    assert read(found) == [{"l": each, "s": {"x": each}} for each in inner]


def test_a_file_that_arrow_cannot_read_as_the_table_s_is_not_called_broken(tmp_path: Path) -> None:
    found = holding(tmp_path, pa.table({"c": ["a"]}), schema_of(("c", "long")))

    with pytest.raises(StorageError, match="the file itself may be sound"):
        found.batches()


def with_ids(names: Sequence[tuple[str, int | None]]) -> pa.Schema:
    return pa.schema([
        pa.field(name, pa.int64(), metadata=number and {"PARQUET:field_id": str(number)})
        for name, number in names
    ])


def by_id(*names: tuple[str, int]) -> FileSchema:
    fields = [
        {
            "name": f"logical {name}",
            "type": "long",
            "metadata": {
                "delta.columnMapping.id": number,
                "delta.columnMapping.physicalName": name,
            },
        }
        for name, number in names
    ]
    return FileSchema.of(schema_of(*fields, mapped=True), by_id=True)


def test_columns_are_matched_by_id_where_the_table_says_so(tmp_path: Path) -> None:
    schema = with_ids([("a", 2), ("b", 1), ("d", 4)])
    columns = pa.table({"a": [10], "b": [20], "d": [40]}, schema)

    found = read(holding(tmp_path, columns, by_id(("a", 1), ("b", 2), ("c", 3))))

    assert found == [{"a": 20, "b": 10, "c": None}]


@pytest.mark.parametrize(
    ("ids", "why"),
    [
        ([("a", None), ("b", None)], "have no field ids"),
        ([("a", None), ("b", 2)], "column logical a is in it as 'a', without its field id"),
        ([("a", 1), ("b", 1)], "column logical a is in it 2 times"),
    ],
)
def test_file_without_clear_ids_is_refused(tmp_path: Path, ids: Any, why: str) -> None:
    columns = pa.table({"a": [10], "b": [20]}, with_ids(ids))

    with pytest.raises(StorageError, match=why):
        holding(tmp_path, columns, by_id(("a", 1), ("b", 2))).batches()


def test_column_that_the_schema_gives_no_id_is_refused(tmp_path: Path) -> None:
    columns = pa.table({"a": [10], "b": [20]}, with_ids([("a", 1), ("b", None)]))
    schema = FileSchema.of(schema_of(("c", "long")), by_id=True)

    with pytest.raises(StorageError, match="column c has no id in the table's schema"):
        holding(tmp_path, columns, schema).batches()


PARTITIONS = {
    "text": ("string", "a b", "a b"),
    "day": ("date", "1500-01-02", dt.date(1500, 1, 2)),
    "at": ("timestamp", "1500-01-01T00:00:00.000000Z", utc(1500)),
    "local": ("timestamp_ntz", "2020-01-02 00:00:00", LOCAL),
    "whole": ("long", "-5", -5),
    "exact": ("decimal(5,2)", "1.5", Decimal("1.50")),
    "real": ("double", "-Infinity", -float("inf")),
    "flag": ("boolean", "true", True),
    "raw": ("binary", "\u0001b", b"\x01b"),
    "empty": ("string", "", None),
    "none": ("timestamp", None, None),
}


def partitioned(kinds: dict[str, str]) -> FileSchema:
    schema = schema_of(("c", "long"), *kinds.items(), partitions=tuple(kinds))
    return FileSchema.of(schema, partition_columns=True)


def test_partition_columns_are_typed_values_of_the_log(tmp_path: Path) -> None:
    schema = partitioned({name: kind for name, (kind, _, _) in PARTITIONS.items()})
    raw = {name: text for name, (_, text, _) in PARTITIONS.items()}
    columns = pa.table({"c": [1, 2], "text": ["other", "other"]})

    found = read(holding(tmp_path, columns, schema, partition_values=raw))

    expected = {name: value for name, (_, _, value) in PARTITIONS.items()}
    assert found == [{"c": 1} | expected, {"c": 2} | expected]


@pytest.mark.parametrize(
    ("kind", "raw"), [("timestamp", "2020-01-01 00:00:00"), ("long", "1.5"), ("byte", "300")]
)
def test_partition_value_that_is_none_of_its_type_is_refused(
    tmp_path: Path, kind: str, raw: str
) -> None:
    columns = pa.table({"c": [1]})

    found = holding(tmp_path, columns, partitioned({"p": kind}), partition_values={"p": raw})

    with pytest.raises(StorageError, match=f"partition column p is '{raw}'"):
        found.batches()


def tracked(path: Path, columns: pa.Table, **fields: Any) -> Opened:
    schema = FileSchema.of(schema_of(("c", "long")), row_tracking=("_id", "_version"))
    return holding(path, columns, schema, **fields)


def test_rows_keep_the_ids_they_have_or_get_those_of_their_file(tmp_path: Path) -> None:
    plain = pa.table({"c": [1, 2]})
    ids = {"_id": pa.array([7, None]), "_version": pa.array([None, 3], pa.int64())}
    recorded = {"base_row_id": 100, "default_row_commit_version": 9}

    assert read(tracked(tmp_path, plain, **recorded)) == [
        {"c": 1, "_id": 100, "_version": 9},
        {"c": 2, "_id": 101, "_version": 9},
    ]
    assert read(tracked(tmp_path, pa.table({"c": [1, 2], **ids}), **recorded)) == [
        {"c": 1, "_id": 7, "_version": 9},
        {"c": 2, "_id": 101, "_version": 3},
    ]


@pytest.mark.parametrize("ids", [{}, {"_id": pa.array([1, None]), "_version": pa.array([1, 1])}])
def test_rows_without_an_id_are_refused(tmp_path: Path, ids: dict[str, pa.Array]) -> None:
    found = tracked(tmp_path, pa.table({"c": [1, 2], **ids}))

    with pytest.raises(StorageError, match="rows without a row id"):
        found.batches()


def test_deleted_rows_are_left_out_by_their_place_in_the_file(tmp_path: Path) -> None:
    table = TableBuilder(tmp_path).create(features=["deletionVectors"]).add("a", rows=10)
    table.delete_rows("a", 0, 4, 5, 9)
    found = opened(tmp_path)
    tracking = FileSchema.of(found.target.table, row_tracking=("_id", "_version"))
    add = Add(**{
        field: getattr(found.adds[0], field) for field in ("path", "size", "deletion_vector")
    }, base_row_id=50, default_row_commit_version=1)  # fmt: skip

    batches = list(rows_of(found.location, [add], tracking))

    rows = pa.Table.from_batches(batches).to_pylist()
    assert [row["id"] for row in rows] == [1, 2, 3, 6, 7, 8]
    assert [row["_id"] for row in rows] == [51, 52, 53, 56, 57, 58]


def test_deleted_rows_are_left_out_of_each_batch(tmp_path: Path) -> None:
    edges = {0, 65_535, 199_999}
    deleted = BitMap64(edges).union(BitMap64(range(65_536, 131_072)))
    bitmap = struct.pack("<i", vectors.MAGIC) + deleted.serialize()
    text = vectors.z85(bitmap + b"\0" * (-len(bitmap) % 4))
    columns = pa.table({"c": range(200_000)})
    found = tracked(
        tmp_path,
        columns,
        base_row_id=7,
        default_row_commit_version=1,
        deletion_vector=DeletionVector("i", text, len(bitmap), len(deleted)),
    )
    pq.write_table(columns, tmp_path / "f", row_group_size=30_000)

    rows = pa.Table.from_batches(found.batches())

    left = [row for row in range(200_000) if row not in deleted]
    assert rows["c"].to_pylist() == left
    assert rows["_id"].to_pylist() == [row + 7 for row in left]
    assert len(rows["c"].chunks) > 2


def test_vector_over_rows_that_the_file_lacks_is_refused(tmp_path: Path) -> None:
    TableBuilder(tmp_path).create().add("a", rows=2).delete_rows("a", 2)

    with pytest.raises(CorruptLogError, match="names row 2 of 2"):
        opened(tmp_path).batches()


def test_wide_rows_come_in_small_batches(tmp_path: Path) -> None:
    columns = pa.table({"c": [str(row) * 20_000 for row in range(1_000)]})
    found = holding(tmp_path, columns, schema_of(("c", "string")))
    pq.write_table(columns, tmp_path / "f", use_dictionary=False)

    batches = found.batches()

    assert max(batch.nbytes for batch in batches) < 2 * 16 * 1024 * 1024
    assert sum(batch.num_rows for batch in batches) == 1_000


def test_damaged_page_is_refused(tmp_path: Path) -> None:
    columns = pa.table({"c": [f"text {row}" for row in range(1_000)]})
    found = holding(tmp_path, columns, schema_of(("c", "string")))
    options: Any = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    pq.write_table(columns, tmp_path / "f", **options)
    raw = (tmp_path / "f").read_bytes()
    (tmp_path / "f").write_bytes(raw.replace(b"text 500", b"text 5O0", 1))

    with pytest.raises(StorageError, match=r"data file f cannot be rewritten: .*CRC"):
        found.batches()


@pytest.mark.parametrize("content", [None, b"", b"PAR1 no Parquet"])
def test_file_that_is_missing_or_no_parquet_is_refused(
    tmp_path: Path, content: bytes | None
) -> None:
    found = holding(tmp_path, pa.table({"c": [1]}), schema_of(("c", "long")))
    (tmp_path / "f").unlink()
    if content is not None:
        (tmp_path / "f").write_bytes(content)

    with pytest.raises(StorageError, match="data file f"):
        found.batches()


def test_file_outside_of_the_table_is_read(tmp_path: Path) -> None:
    TableBuilder(tmp_path / "original").create().add("a b%é", rows=2)
    found = opened(tmp_path / "original")
    outside = Add(f"file://{tmp_path}/original/{found.adds[0].path}", 1)

    clone = Opened(Location.of(str(tmp_path)), found.target, (outside,))

    assert clone.rows() == found.rows()
    assert len(clone.rows()) == 2


def test_files_by_delta_rs_have_the_rows_that_it_reads(tmp_path: Path) -> None:
    columns = pa.table({
        "c": pa.array([1, None], pa.int16()),
        "at": pa.array([utc(1500), utc(2300)], UTC_US),
        "s": pa.array([{"x": ["a"]}, None], pa.struct([("x", pa.list_(pa.large_string()))])),
        "p": pa.array([DAY, DAY]),
    })
    deltalake.write_deltalake(str(tmp_path), columns, partition_by=["p"])

    found = opened(tmp_path)

    assert read(found) == columns.to_pylist()
    assert found.hazards() == []


@pytest.mark.oracle
class TestAgainstDeltaSpark:
    """We read the same rows as delta-spark after its statements on a table."""

    @pytest.fixture
    def run(self, spark: SparkSession, tmp_path: Path) -> Any:
        def run(*statements: str) -> None:
            for statement in statements:
                spark.sql(statement.format(t=table(tmp_path)))

        return run

    def test_all_types_and_a_struct_that_evolves(
        self, spark: SparkSession, tmp_path: Path, run: Any
    ) -> None:
        run(f"CREATE TABLE {{t}} USING delta PARTITIONED BY (day) AS {ALL_TYPES}")
        written = pq.ParquetFile(next(tmp_path.rglob("*.parquet"))).schema
        assert "INT96" in [written.column(at).physical_type for at in range(len(written))]
        run(
            "ALTER TABLE {t} ADD COLUMNS (st.z.element.new INT AFTER y, st.first DATE FIRST)",
            f"INSERT INTO {{t}} BY NAME SELECT l + 1 AS l, text FROM ({ALL_TYPES})",
        )

        found = opened(tmp_path)

        assert found.rows() == by_delta_spark(spark, tmp_path)
        assert found.hazards() == []

    @pytest.mark.parametrize("mode", ["name", "id"])
    def test_columns_that_were_renamed_dropped_and_added_again(
        self, spark: SparkSession, tmp_path: Path, run: Any, mode: str
    ) -> None:
        run(
            "CREATE TABLE {t} (a INT, b STRING, s STRUCT<x: INT, y: ARRAY<STRUCT<z: INT, w: INT>>>,"
            " p INT) USING delta PARTITIONED BY (p) TBLPROPERTIES"
            f" ('delta.columnMapping.mode' = '{mode}')",
            "INSERT INTO {t} VALUES (1, 'b', named_struct('x', 1, 'y',"
            " array(named_struct('z', 2, 'w', 3))), 7)",
            "ALTER TABLE {t} RENAME COLUMN s.y.element.w TO v",
            "ALTER TABLE {t} DROP COLUMNS (b, s.x)",
            "ALTER TABLE {t} ADD COLUMNS (b INT, s.x INT)",
            "INSERT INTO {t} BY NAME SELECT 2 AS a, 3 AS b, 8 AS p",
        )

        assert opened(tmp_path).rows() == by_delta_spark(spark, tmp_path)

    def test_types_that_were_widened(self, spark: SparkSession, tmp_path: Path, run: Any) -> None:
        kinds = {
            "b": ("TINYINT", "SMALLINT", "1"),
            "f": ("FLOAT", "DOUBLE", "0.1"),
            "t": ("DATE", "TIMESTAMP_NTZ", "'1500-01-01'"),
            "n": ("DECIMAL(5, 2)", "DECIMAL(10, 4)", "1.25"),
            "w": ("INT", "DECIMAL(12, 2)", "5"),
        }
        columns = ", ".join(f"{name} {old}" for name, (old, _, _) in kinds.items())
        row = ", ".join(value for _, _, value in kinds.values())
        run(
            f"CREATE TABLE {{t}} ({columns}) USING delta"
            " TBLPROPERTIES ('delta.enableTypeWidening' = 'true',"
            " 'delta.feature.timestampNtz' = 'supported')",
            f"INSERT INTO {{t}} VALUES ({row})",
            *(f"ALTER TABLE {{t}} ALTER COLUMN {n} TYPE {new}" for n, (_, new, _) in kinds.items()),
            f"INSERT INTO {{t}} VALUES ({row})",
        )

        found = opened(tmp_path)

        assert found.rows() == by_delta_spark(spark, tmp_path)
        assert found.hazards() == []

    def test_row_ids_through_updates_and_deletes(
        self, spark: SparkSession, tmp_path: Path, run: Any
    ) -> None:
        run(
            "CREATE TABLE {t} (id BIGINT, v INT) USING delta TBLPROPERTIES"
            " ('delta.enableRowTracking' = 'true', 'delta.enableDeletionVectors' = 'true')",
            "INSERT INTO {t} SELECT id, 0 FROM range(0, 20, 1, 2)",
            "UPDATE {t} SET v = 2 WHERE id IN (3, 12)",
            "DELETE FROM {t} WHERE id IN (0, 5)",
        )
        found = opened(tmp_path)
        assert found.target.row_tracking is not None

        judged = by_delta_spark(
            spark,
            tmp_path,
            f"_metadata.row_id AS `{found.target.row_tracking[0]}`",
            f"_metadata.row_commit_version AS `{found.target.row_tracking[1]}`",
        )

        assert found.rows() == judged
        assert len(judged) == 18


def test_a_batch_is_bounded_by_what_its_values_take_in_memory(tmp_path: Path) -> None:
    TableBuilder(tmp_path).create(fields={"value": "string"}).add("a.parquet", rows=1)
    long = pa.table({"value": pa.array(["x" * 4_000] * 20_000).dictionary_encode()})
    pq.write_table(long.cast(pa.schema([("value", pa.string())])), tmp_path / "a.parquet")

    batches = opened(tmp_path).batches()

    assert sum(batch.num_rows for batch in batches) == 20_000
    assert max(batch.nbytes for batch in batches) <= 32 << 20


@pytest.mark.oracle
def test_spark_reads_unsigned_integers_in_the_next_wider_type(
    spark: SparkSession, tmp_path: Path
) -> None:
    kinds = {"a": ("short", pa.uint8()), "b": ("integer", pa.uint16()), "c": ("long", pa.uint32())}
    table = TableBuilder(tmp_path).create(fields={name: kind for name, (kind, _) in kinds.items()})
    most = {n: pa.array([2**k.bit_width - 1, 0, None], k) for n, (_, k) in kinds.items()}
    pq.write_table(pa.table(most), tmp_path / "f")
    size = (tmp_path / "f").stat().st_size
    add = {"path": "f", "partitionValues": {}, "size": size, "modificationTime": 0}
    table.commit([{"add": add | {"dataChange": True}}])

    assert opened(tmp_path).rows() == by_delta_spark(spark, tmp_path)
