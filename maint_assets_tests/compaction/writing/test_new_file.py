"""Files being written: row groups, dictionaries, checksums, and a full disk."""

import io
import json
import math
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from maint_assets.compaction.engines.arrow import write_data_file
from maint_assets.compaction.writing import new_file
from maint_assets.compaction.writing.add_actions import Marks
from maint_assets.compaction.writing.new_file import NewFile
from maint_assets.compaction.writing.target import Rewriting, rewriting
from maint_assets.snapshot.head import table_head
from maint_assets.storage.location import Location
from maint_assets_tests.support.builder import TableBuilder

ROWS = 10_000
UNIQUE = [f"{number:09d}" for number in np.random.default_rng(3).permutation(ROWS)]
LIST = {"type": "array", "elementType": "string", "containsNull": True}
MAP = {
    "type": "map",
    "keyType": "string",
    "valueType": {"type": "struct", "fields": [{"name": "x", "type": "string"}]},
    "valueContainsNull": True,
}


def table_of(path: Path, fields: dict[str, Any], **properties: str) -> Rewriting:
    table = TableBuilder(path)
    table.create(fields=fields, configuration=properties)
    return rewriting(table_head(Location.of(str(path))))


def written(how: Rewriting, columns: dict[str, Any], *, batch_rows: int = 1000) -> pq.ParquetFile:
    sink = io.BytesIO()
    with NewFile(sink, how) as file:
        for batch in pa.table(columns, schema=how.files.arrow).to_batches(batch_rows):
            file.append(batch)
    return pq.ParquetFile(io.BytesIO(sink.getvalue()))


def with_dictionary(file: pq.ParquetFile) -> set[str]:
    group = file.metadata.row_group(0)
    columns = (group.column(at) for at in range(group.num_columns))
    return {column.path_in_schema for column in columns if column.has_dictionary_page}


def test_only_columns_that_repeat_get_a_dictionary(tmp_path: Path) -> None:
    how = table_of(tmp_path, {"id": "string", "day": "date", "none": "long", "some": "string"})
    some = [None if number % 2 else text for number, text in enumerate(UNIQUE)]
    days = np.arange(ROWS) % 300

    file = written(
        how,
        {
            "id": UNIQUE,
            "day": pa.array(days.astype("int32"), pa.date32()),
            "none": [None] * ROWS,
            "some": some,
        },
    )

    assert with_dictionary(file) == {"day", "none"}


def test_parts_of_columns_keep_their_dictionaries(tmp_path: Path) -> None:
    fields = {"l": LIST, "m": MAP, "s": {"type": "struct", "fields": MAP["valueType"]["fields"]}}
    how = table_of(tmp_path, fields)
    columns = {
        "l": [["a", "b"]] * 9,
        "m": [[("k", {"x": "y"})]] * 9,
        "s": [{"x": "z"}] * 9,
    }

    file = written(how, columns)

    paths = {file.schema.column(at).path for at in range(len(file.schema))}
    assert with_dictionary(file) == paths
    assert file.read().to_pydict() == {key: list(value) for key, value in columns.items()}


def test_footers_hold_no_bounds_of_floating_point_numbers(tmp_path: Path) -> None:
    struct = [{"name": name, "type": name} for name in ("float", "long")]
    by_number = {"type": "map", "keyType": "double", "valueType": "float"}
    fields = {
        "x": "double",
        "n": "long",
        "s": {"type": "struct", "fields": struct},
        "l": LIST | {"elementType": "double"},
        "m": by_number | {"valueContainsNull": True},
    }
    how = table_of(tmp_path, fields)
    columns = {
        "x": [1.0, float("nan")], "n": [1, 2], "s": [{"float": 1.0, "long": 2}] * 2,
        "l": [[1.0]] * 2, "m": [[(1.0, 2.0)]] * 2,
    }  # fmt: skip

    group = written(how, columns).metadata.row_group(0)

    leaves = [group.column(at) for at in range(group.num_columns)]
    assert [each.path_in_schema for each in leaves if each.is_stats_set] == ["n", "s.long"]


@pytest.mark.parametrize(
    "fields",
    [
        {"a.b": "double", "a": {"type": "struct", "fields": [{"name": "b", "type": "long"}]}},
        {"a": {"type": "struct", "fields": [{"name": "b", "type": "long"}]}, "a.b": "double"},
        {"a": LIST | {"elementType": "long"}, "a.list.element": "double"},
    ],
)
def test_leaves_of_one_path_get_neither_bounds_nor_dictionaries(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    how = table_of(tmp_path, {**fields, "a.": "long"})
    columns = {
        name: [-0.0, math.nan] * 9 if kind == "double" else [{"b": 1}] * 18
        for name, kind in fields.items()
    } | {"a.": [1, 2] * 9}
    if "a.list.element" in fields:
        columns["a"] = [[1]] * 18

    file = written(how, columns)

    group = file.metadata.row_group(0)
    found = [group.column(at) for at in range(group.num_columns)]
    assert [each.path_in_schema for each in found if each.is_stats_set] == ["a."]
    assert with_dictionary(file) == {"a."}


def test_a_struct_may_hold_several_leaves_of_one_path(tmp_path: Path) -> None:
    inner = {"type": "struct", "fields": [{"name": "d", "type": "double"}]}
    parts = [{"name": "c.d", "type": "long"}, {"name": "c", "type": inner}]
    parts.append({"name": "e", "type": "double"})
    how = table_of(tmp_path, {"a": {"type": "struct", "fields": parts}})
    rows = [{"c.d": 5, "c": {"d": -0.0}, "e": -0.0}, {"c.d": 6, "c": {"d": 1.0}, "e": 1.0}] * 9

    file = written(how, {"a": rows})

    assert file.metadata.num_rows == len(rows)
    assert with_dictionary(file) == set()


def test_leaves_with_a_negative_zero_get_no_dictionary(tmp_path: Path) -> None:
    struct = [{"name": name, "type": name} for name in ("float", "double")]
    by_number = {"type": "map", "keyType": "double", "valueType": "float"}
    fields = {
        "minus": "double", "zero": "double", "s": {"type": "struct", "fields": struct},
        "l": LIST | {"elementType": "float"}, "m": by_number | {"valueContainsNull": True},
    }  # fmt: skip
    how = table_of(tmp_path, fields)
    columns = {
        "minus": [-0.0, 1.0, None], "zero": [0.0, 1.0, float("nan")],
        "s": [{"float": -0.0, "double": -1.0}, None, {"float": 1.0, "double": 0.0}],
        "l": [[1.0], [0.0, -0.0], None], "m": [[(0.0, -0.0)], [(1.0, None)], None],
    }  # fmt: skip
    repeated = {name: values * 100 for name, values in columns.items()}

    file = written(how, repeated)

    assert with_dictionary(file) == {"zero", "s.double", "m.key_value.key"}


def test_a_file_is_made_again_where_a_negative_zero_comes_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_file, "ROW_GROUP_ROWS", 100)
    struct = {"type": "struct", "fields": [{"name": "y", "type": "float"}]}
    array = LIST | {"elementType": "double"}
    how = table_of(tmp_path, {"x": "double", "s": struct, "l": array, "z": "double"})
    late = {2: "x", 3: "l"}
    calls: list[int] = []

    def fill(file: NewFile) -> None:
        calls.append(1)
        for group in range(5):
            first, second = (-0.0 if late.get(group) == name else 0.0 for name in ("x", "l"))
            columns = {"x": [first] * 100, "s": [{"y": 0.0}] * 100, "l": [[1.0, second]] * 100}
            file.append(pa.record_batch(columns | {"z": [0.0] * 100}, schema=how.files.arrow))

    add = write_data_file(fill, how, values={}, marks=Marks())

    assert add is not None and len(calls) == 2
    (path,) = tmp_path.glob("**/*.parquet")
    file = pq.ParquetFile(path)
    assert (file.num_row_groups, with_dictionary(file)) == (5, {"s.y", "z"})
    assert json.loads(add.stats or "")["minValues"]["x"] == 0.0
    assert math.copysign(1, json.loads(add.stats or "")["minValues"]["x"]) == -1
    assert file.read()["x"].to_pylist() == [0.0] * 500


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()])
def test_a_negative_zero_is_distinguished_from_other_numbers(kind: pa.DataType) -> None:
    others = pa.array([0.0, -1.0, float("nan"), -float("nan"), -float("inf"), None], kind)

    assert not new_file._has_negative_zero(others)
    assert new_file._has_negative_zero(pa.concat_arrays([others, pa.array([-0.0], kind)]))
    assert not new_file._has_negative_zero(pa.array([None], kind))


FEW = pa.array(["a", "b"] * 2_000).dictionary_encode()
LONG = pa.array(["a" * 4_092, "b" * 4_092] * 2_000).dictionary_encode()


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"a": pa.array(range(4_000), pa.int64())}, 16_384),
        ({"a": FEW}, 16_384),
        ({"a": FEW, "b": pa.array(["x" * 124] * 4_000)}, 4_096),
        ({"a": FEW, "b": LONG}, 1_024),
        ({"a": pa.chunked_array([["x" * 124] * 40, ["x" * 252] * 40])}, 2_730),
        ({"a": pa.array([], pa.string())}, 16_384),
    ],
)
def test_so_much_is_encoded_at_once_that_pages_stay_moderate(
    columns: dict[str, Any], expected: int
) -> None:
    assert new_file._batch_rows(pa.table(columns)) == pytest.approx(expected, rel=0.01)


def test_rows_come_in_order_whatever_the_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_file, "ROW_GROUP_ROWS", 3000)
    how = table_of(tmp_path, {"id": "string"})

    file = written(how, {"id": UNIQUE})

    groups = [file.metadata.row_group(at).num_rows for at in range(file.num_row_groups)]
    assert groups == [3000, 3000, 3000, 1000]
    assert file.read()["id"].to_pylist() == UNIQUE


def test_a_flipped_bit_is_found_by_the_checksum_of_its_page(tmp_path: Path) -> None:
    how = table_of(tmp_path, {"id": "string"}, **{"delta.parquet.compression.codec": "none"})
    sink = io.BytesIO()
    with NewFile(sink, how) as file:
        file.append(pa.record_batch({"id": UNIQUE}, schema=how.files.arrow))
    damaged = sink.getvalue().replace(UNIQUE[5000].encode(), b"x" * 9)

    found = pq.ParquetFile(io.BytesIO(damaged), page_checksum_verification=True)

    with pytest.raises(OSError, match="CRC"):
        found.read()


class FullDisk(io.BytesIO):
    """A disk that is full after some bytes."""

    def write(self, data: Any) -> int:
        if self.tell() > 20_000:
            raise OSError(28, "No space left on device")
        return super().write(data)


@pytest.fixture
def no_thread_left() -> Iterator[None]:
    before = threading.active_count()
    yield
    assert threading.active_count() == before


@pytest.mark.usefixtures("no_thread_left")
@pytest.mark.parametrize("rows", [1000, 100_000], ids=["while-rows-come", "at-the-end"])
def test_a_full_disk_is_an_error_of_the_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(new_file, "ROW_GROUP_ROWS", rows)
    how = table_of(tmp_path, {"id": "string"})

    with pytest.raises(OSError, match="No space"), NewFile(FullDisk(), how) as file:
        for batch in pa.table({"id": UNIQUE}, schema=how.files.arrow).to_batches(1000):
            file.append(batch)
