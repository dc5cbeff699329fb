"""The physical columns in which new files are written."""

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from maint_assets.compaction.columns.physical import FIELD_ID, FileSchema, physical_schema, unkept
from maint_assets.compaction.columns.spark_schema import has_equal_names
from maint_assets_tests.support.data_files import schema_of

STRUCT = {"type": "struct", "fields": [{"name": "x", "type": "integer"}]}
VOID_STRUCT = {"type": "struct", "fields": [{"name": "x", "type": "void"}]}


def array(element: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": element, "containsNull": True}


def mapped(name: str, kind: Any, number: int, **nested: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "delta.columnMapping.id": number,
        "delta.columnMapping.physicalName": f"col-{name}",
    }
    if nested:
        ids = {f"col-{name}.{path.replace('_', '.')}": each for path, each in nested.items()}
        metadata["delta.columnMapping.nested.ids"] = ids
    return {"name": name, "type": kind, "metadata": metadata}


def written(schema: pa.Schema, path: Path) -> pq.ParquetSchema:
    pq.write_table(schema.empty_table(), path)
    return pq.ParquetFile(path).schema


@pytest.mark.parametrize(
    ("kind", "arrow"),
    [
        ("byte", pa.int8()),
        ("short", pa.int16()),
        ("integer", pa.int32()),
        ("long", pa.int64()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("decimal(20,3)", pa.decimal128(20, 3)),
        ("string", pa.string()),
        ("binary", pa.binary()),
        ("boolean", pa.bool_()),
        ("date", pa.date32()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestamp_ntz", pa.timestamp("us")),
        (array("string"), pa.list_(pa.string())),
        (STRUCT, pa.struct([("x", pa.int32())])),
        ({"type": "map", "keyType": "long", "valueType": "date"}, pa.map_(pa.int64(), pa.date32())),
    ],
)
def test_each_type_has_its_arrow_type(kind: Any, arrow: pa.DataType) -> None:
    schema = schema_of(("c", kind))

    found = physical_schema(schema, partition_columns=False, row_tracking=None)

    assert found == pa.schema([("c", arrow)])
    assert not unkept(schema)


def test_all_fields_of_a_file_are_optional_but_keys(tmp_path: Path) -> None:
    kind = {"type": "map", "keyType": "string", "valueType": array(STRUCT)}
    target = FileSchema.of(schema_of(("a", "long"), ("m", kind)))

    text = str(written(target.arrow, tmp_path / "f"))

    required = [line.split()[-1] for line in text.splitlines() if "required" in line]
    assert required == ["{", "(String);"]


def test_ids_of_fields_and_of_listed_parts_are_in_the_file(tmp_path: Path) -> None:
    inner = {"type": "struct", "fields": [mapped("x", "integer", 3), mapped("y", array("long"), 4)]}
    schema = schema_of(
        mapped("s", inner, 2), mapped("l", array(array("long")), 5, element=6, element_element=7),
        mapped("m", {"type": "map", "keyType": "long", "valueType": "long"}, 8, key=9, value=10),
        mapped=True,
    )  # fmt: skip

    target = FileSchema.of(schema, by_id=True).arrow
    pq.write_table(target.empty_table(), tmp_path / "f")
    s, nested, m = pq.ParquetFile(tmp_path / "f").schema_arrow

    def number(field: pa.Field) -> int | None:
        return int(field.metadata[FIELD_ID]) if field.metadata else None

    assert [number(s), number(s.type.field(0)), number(s.type.field(1))] == [2, 3, 4]
    assert number(s.type.field(1).type.value_field) is None
    assert s.type.field(0).name == "col-x"
    inner_list = nested.type.value_field
    assert [number(nested), number(inner_list), number(inner_list.type.value_field)] == [5, 6, 7]
    assert [number(m), number(m.type.key_field), number(m.type.item_field)] == [8, 9, 10]


def test_partition_columns_and_row_ids_come_last() -> None:
    schema = schema_of(("p", "date"), ("a", "long"), ("b", "string"), partitions=("p",))

    plain = FileSchema.of(schema)
    full = FileSchema.of(schema, partition_columns=True, row_tracking=("_id", "_version"))

    assert plain.arrow.names == ["a", "b"]
    assert full.arrow.names == ["a", "b", "p", "_id", "_version"]
    assert full.arrow.types[2:] == [pa.date32(), pa.int64(), pa.int64()]


def test_schema_reaches_executors_as_it_is() -> None:
    target = FileSchema.of(schema_of(mapped("a", "long", 1), mapped=True), by_id=True)

    found = pickle.loads(pickle.dumps(target))

    assert found == target
    assert found.arrow.equals(target.arrow, check_metadata=True)


def test_void_columns_are_left_out_of_files() -> None:
    struct = {"type": "struct", "fields": [{"name": n, "type": n} for n in ("void", "long")]}

    target = FileSchema.of(schema_of(("v", "void"), ("a", "long"), ("s", struct)))

    assert target.arrow == pa.schema([("a", pa.int64()), ("s", pa.struct([("long", pa.int64())]))])


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("geometry(OGC:CRS84)", r"type geometry\(OGC:CRS84\)"),
        ("interval day to second", "type interval day to second"),
        ("decimal(39,3)", r"decimal\(39,3\)"),
        (array("void"), r"column c\.element has the type void"),
        (array({"type": "map", "keyType": "long", "valueType": "object"}), "c.element.value"),
        (array(VOID_STRUCT), r"column c\.element\.x has the type void"),
        (VOID_STRUCT, "column c is a struct of which files would hold no field"),
        ("void", "no column that data files hold"),
    ],
)
def test_type_that_arrow_would_not_keep_is_refused(kind: Any, why: str) -> None:
    schema = schema_of(("c", kind), ("p", "string"), partitions=("p",))

    assert len(unkept(schema)) == 1
    with pytest.raises(ValueError, match=why):
        FileSchema.of(schema)


def of_longs(*names: str) -> dict[str, Any]:
    return {"type": "struct", "fields": [{"name": name, "type": "long"} for name in names]}


@pytest.mark.parametrize(
    ("columns", "is_equal"),
    [
        ({"a": "long", "b": of_longs("a", "B")}, False),
        ({"a": "long", "A": "long"}, True),
        ({"s": of_longs("x", "X")}, True),
        ({"l": {"type": "array", "elementType": of_longs("Ä", "ä")}}, True),
        ({"m": {"type": "map", "keyType": "long", "valueType": of_longs("x", "X")}}, True),
    ],
)
def test_names_that_differ_in_case_alone_are_recognised(
    columns: dict[str, Any], is_equal: bool
) -> None:
    assert has_equal_names(schema_of(*columns.items()).data.fields) is is_equal
