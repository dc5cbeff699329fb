"""Files that Arrow would read differently from Spark are recognised by their footers."""

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from maint_assets.compaction.columns.physical import FileSchema
from maint_assets.compaction.reading.hazards import names_calendar
from maint_assets.delta.actions import Add
from maint_assets.errors import StorageError
from maint_assets.storage.location import Location
from maint_assets_tests.support.data_files import Opened, schema_of

VERSION, SCHEMA = "org.apache.spark.version", "org.apache.spark.sql.parquet.row.metadata"
DATES, INT96 = "org.apache.spark.legacyDateTime", "org.apache.spark.legacyINT96"
KINDS = {
    "long": pa.int64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


def hazards(
    path: Path, columns: pa.Table, schema: Any, *, footer: Any = None, **options: Any
) -> list[str]:
    pq.write_table(columns.replace_schema_metadata(footer or {}), path / "f", **options)
    target = schema if isinstance(schema, FileSchema) else FileSchema.of(schema)
    return Opened(Location.of(str(path)), target, (Add("f", 1),)).hazards()


@pytest.mark.parametrize(
    ("kind", "footer", "int96", "is_hazard"),
    [
        ("date", {}, False, False),
        ("date", {VERSION: "3.0.0"}, False, False),
        ("date", {VERSION: "4.2.0", SCHEMA: "{}"}, False, False),
        ("date", {VERSION: "3.0.0", DATES: ""}, False, True),
        ("date", {VERSION: "2.4.8"}, False, True),
        ("date", {SCHEMA: "{}"}, False, True),
        ("date", {VERSION: "none"}, False, True),
        ("date", {VERSION: "3.0.1", INT96: ""}, False, False),
        ("timestamp", {VERSION: "2.4.8"}, False, True),
        ("timestamp", {VERSION: "3.0.1"}, False, False),
        ("timestamp", {VERSION: "3.0.1"}, True, True),
        ("timestamp", {VERSION: "3.1.0"}, True, False),
        ("timestamp", {VERSION: "3.10.0"}, True, False),
        ("timestamp", {VERSION: "3.1.0", INT96: ""}, True, True),
        ("timestamp", {VERSION: "3.1.0", DATES: ""}, True, False),
        ("timestamp", {}, True, False),
        ("timestamp_ntz", {VERSION: "2.4.8"}, False, False),
        ("long", {VERSION: "2.4.8", DATES: "", INT96: ""}, False, False),
    ],
)
def test_days_of_the_julian_calendar_are_left_to_spark(
    tmp_path: Path, kind: str, footer: dict[str, str], int96: bool, is_hazard: bool
) -> None:
    columns = pa.table({"c": pa.nulls(1, KINDS[kind])})
    struct = {"type": "struct", "fields": [{"name": "c", "type": kind}]}
    options: Any = {"footer": footer, "use_deprecated_int96_timestamps": int96}

    flat = hazards(tmp_path, columns, schema_of(("c", kind)), **options)
    nested = pa.table({"s": columns.to_struct_array()})
    below = hazards(tmp_path, nested, schema_of(("s", struct)), **options)

    assert bool(flat) is bool(below) is is_hazard
    assert all("Julian" in reason for reason in (*flat, *below))


@pytest.mark.parametrize(
    ("footer", "engine", "is_doubtful"),
    [
        ({VERSION: "2.4.8"}, "spark", False),
        ({VERSION: "3.3.0", DATES: ""}, "spark", False),
        ({SCHEMA: "{}"}, "spark", True),
        ({DATES: ""}, "spark", True),
        ({VERSION: "none", SCHEMA: "{}"}, None, False),
    ],
)
def test_spark_takes_what_it_knows_the_calendar_of(
    tmp_path: Path, footer: dict[str, str], engine: str | None, is_doubtful: bool
) -> None:
    columns = pa.table({"c": pa.nulls(1, pa.date32())})
    pq.write_table(columns.replace_schema_metadata(footer), tmp_path / "f")
    target = FileSchema.of(schema_of(("c", "date")))

    (found,) = Opened(Location.of(str(tmp_path)), target, (Add("f", 1),)).found_hazards()

    assert (found.engine, found.is_doubtful) == (engine, is_doubtful)
    known = names_calendar({key.encode(): b"" for key in footer})
    assert known is not is_doubtful


def test_what_spark_keeps_does_not_hide_what_nothing_keeps(tmp_path: Path) -> None:
    columns = pa.table({"c": pa.nulls(1, pa.date32()), "n": pa.nulls(1, pa.timestamp("ns"))})
    pq.write_table(columns.replace_schema_metadata({DATES: "", VERSION: "3.0.0"}), tmp_path / "f")
    target = FileSchema.of(schema_of(("c", "date"), ("n", "timestamp_ntz")))

    (found,) = Opened(Location.of(str(tmp_path)), target, (Add("f", 1),)).found_hazards()

    assert found.engine is None and "nanoseconds" in found.text


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_nanoseconds_are_a_hazard(tmp_path: Path, zone: str | None) -> None:
    columns = pa.table({"c": pa.nulls(1, pa.timestamp("ns", zone))})
    kind = "timestamp" if zone else "timestamp_ntz"

    found = hazards(tmp_path, columns, schema_of(("c", kind)))

    assert found == ["column c holds nanoseconds, and a Delta table microseconds"]


@pytest.mark.parametrize(
    ("columns", "schema", "why"),
    [
        (
            pa.table({"c": pa.nulls(1, pa.uint8())}),
            FileSchema.of(schema_of(("c", "byte"))),
            "column c is uint8, which does not become int8",
        ),
        (
            pa.table({"c": pa.nulls(1, pa.timestamp("us", "UTC"))}),
            FileSchema.of(schema_of(("c", "timestamp_ntz"))),
            r"column c is timestamp\[us, tz=UTC\], which does not become timestamp\[us\]",
        ),
        (
            pa.table({"c": [1]}),
            FileSchema.of(schema_of(("c", "long")), row_tracking=("i", "v")),
            "rows without a row id",
        ),
        (
            pa.table({"c": [1], "i": ["1"], "v": [1]}),
            FileSchema.of(schema_of(("c", "long")), row_tracking=("i", "v")),
            "column i of row tracking",
        ),
    ],
)
def test_what_could_not_be_read_is_known_from_the_footer(
    tmp_path: Path, columns: pa.Table, schema: FileSchema, why: str
) -> None:
    (found,) = hazards(tmp_path, columns, schema)

    assert re.search(why, found)


def test_partition_value_without_its_zone_is_a_hazard_where_files_hold_it(tmp_path: Path) -> None:
    pq.write_table(pa.table({"c": [1]}), tmp_path / "f")
    schema = schema_of(("c", "long"), ("p", "timestamp"), partitions=("p",))
    add = Add("f", 1, partition_values={"p": "2020-01-01 00:00:00"})

    def found(*, partition_columns: bool) -> list[str]:
        target = FileSchema.of(schema, partition_columns=partition_columns)
        return Opened(Location.of(str(tmp_path)), target, (add,)).hazards()

    assert found(partition_columns=False) == []
    assert len(found(partition_columns=True)) == 1


def test_encrypted_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"PARE" + b"\0" * 40 + b"\x08\0\0\0PARE")
    found = Opened(
        Location.of(str(tmp_path)), FileSchema.of(schema_of(("c", "long"))), (Add("f", 1),)
    )

    with pytest.raises(StorageError, match="data file f cannot be rewritten"):
        found.hazards()
