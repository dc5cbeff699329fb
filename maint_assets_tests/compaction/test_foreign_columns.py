"""Columns as other writers make them keep their rows, as Spark reads them before and afterwards."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from maint_assets_tests.compaction.conftest import Compacting
from maint_assets_tests.oracles import delta_spark
from maint_assets_tests.support.builder import TableBuilder
from maint_assets_tests.support.old_writers import NO_CALENDAR, file_of, texts

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

FIELDS = [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in ("x", "y")]
STRUCT = {"type": "struct", "fields": FIELDS}
LIST = {"type": "array", "elementType": STRUCT, "containsNull": True}
ENGINES = {"arrow": {}, "spark": NO_CALENDAR}
"""Footers of a file with dates, by the engine that then rewrites it."""


def table_of(path: Path, fields: dict[str, Any], *files: pa.Table, footer: Any = None) -> None:
    """A table of files with these columns."""
    table = TableBuilder(path).create(fields=fields)
    for at, columns in enumerate(files):
        table.commit([file_of(path, f"{at}.parquet", columns, footer=footer or {})])


@pytest.mark.parametrize("engine", ENGINES)
def test_names_in_another_case_are_the_table_s(
    engine: str, spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    fields = {"id": "long", "day": "date", "s": STRUCT, "l": LIST}
    days = pa.array([1, None], pa.date32())
    columns = {"Day": days, "ID": [1, 2], "S": [{"Y": 5}, None], "l": [[{"X": 6}, None], None]}
    usual = {"day": days, "id": [3, 4], "s": [{"x": 7, "y": 8}] * 2}
    files = pa.table(columns), pa.table(usual)
    table_of(tmp_path, fields, *files, footer=ENGINES[engine])
    before = texts(spark, tmp_path)

    done = compacting(tmp_path).compact().done

    assert done is not None and (done.bins_by_engine, done.not_committed) == ({engine: 1}, {})
    assert texts(spark, tmp_path) == before
    assert any('"id":1,"day":"1970-01-02","s":{"y":5},"l":[{"x":6}' in row for row in before)


@pytest.mark.parametrize("engine", ENGINES)
def test_json_in_a_column_of_text_is_text(
    engine: str, spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    docs = pa.ExtensionArray.from_storage(pa.json_(), pa.array([json.dumps({"a": "\u00e9"}), None]))
    columns = pa.table({"id": [1, 2], "doc": docs, "day": pa.array([1, 2], pa.date32())})
    fields = {"id": "long", "doc": "string", "day": "date"}
    table_of(tmp_path, fields, columns, columns, footer=ENGINES[engine])
    assert "JSON" in str(pq.ParquetFile(tmp_path / "0.parquet").schema)
    before = texts(spark, tmp_path)

    done = compacting(tmp_path).compact().done

    assert done is not None and (done.bins_by_engine, done.not_committed) == ({engine: 1}, {})
    assert texts(spark, tmp_path) == before


def stored_as(kind: Any, storage: Any, values: list[Any]) -> pa.Array:
    """Values of a type of another library."""
    return pa.ExtensionArray.from_storage(kind, pa.array(values, storage))


OTHERS: dict[str, tuple[str, pa.Array]] = {
    "text": ("string", pa.array(["\u00e9".encode(), None], pa.binary())),
    "bytes": ("binary", pa.array(["\u00e9", None], pa.string())),
    "json": ("binary", stored_as(pa.json_(), pa.string(), ["{}", None])),
    "uuid": ("binary", stored_as(pa.uuid(), pa.binary(16), [bytes(range(16)), None])),
    "tiny": ("byte", pa.array([-(2**7), 2**7 - 1], pa.int32())),
    "small": ("short", pa.array([-(2**15), None], pa.int32())),
    "flag": ("byte", stored_as(pa.bool8(), pa.int8(), [1, None])),
    "seconds": ("long", pa.array([7, None], pa.duration("s"))),
    "micros": ("long", pa.array([-7, None], pa.duration("us"))),
}
"""Columns by name: the type in the table, and values of another type in the file."""


@pytest.mark.parametrize("nested", [False, True])
def test_columns_of_other_types_are_as_spark_reads_them(
    nested: bool, spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    fields: dict[str, Any] = {name: kind for name, (kind, _) in OTHERS.items()}
    columns = pa.table({name: values for name, (_, values) in OTHERS.items()})
    if nested:
        inner = [
            {"name": n, "type": k, "nullable": True, "metadata": {}} for n, k in fields.items()
        ]
        fields = {"s": {"type": "struct", "fields": inner}}
        columns = pa.table({"s": columns.to_struct_array()})
    table_of(tmp_path, {"id": "long", **fields}, *[columns.add_column(0, "id", [[1, 2]])] * 2)
    before = texts(spark, tmp_path)

    done = compacting(tmp_path, verify_rows="full").compact().done

    assert done is not None and (done.bins_by_engine, done.not_committed) == ({"arrow": 1}, {})
    assert texts(spark, tmp_path) == before
    assert (
        '"text":"\u00e9","bytes":"w6k=","json":"e30=","uuid":"AAECAwQFBgcICQoLDA0ODw=="'
        in before[0]
    )
    assert '"tiny":-128,"small":-32768,"flag":1,"seconds":7,"micros":-7' in before[0]


def test_lists_that_arrow_wrote_as_views_keep_their_rows(
    spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    array = {"type": "array", "elementType": "long", "containsNull": True}
    lists = pa.array([[1, None], None, []], pa.list_view(pa.int64()))
    columns = pa.table({"id": [1, 2, 3], "l": lists})
    table_of(tmp_path, {"id": "long", "l": array}, columns, columns)
    before = texts(spark, tmp_path)

    done = compacting(tmp_path).compact().done

    assert done is not None and (done.bins, done.not_committed) == (1, {})
    assert texts(spark, tmp_path) == before


UNSIGNED = {"a": ("short", pa.uint8()), "b": ("integer", pa.uint16()), "c": ("long", pa.uint32())}
ASKED = [
    f"{name} {how} {value}"
    for name, (_, kind) in UNSIGNED.items()
    for how in ("=", "<", ">=", "<>")
    for value in (0, 1, 2 ** (kind.bit_width - 1), 2**kind.bit_width - 1)
] + [f"{name} is null" for name in UNSIGNED]


def by_delta(spark: SparkSession, path: Path, condition: str) -> list[int]:
    found = spark.read.format("delta").load(str(path)).where(condition)
    return [row["id"] for row in found.collect()]


def by_spark(spark: SparkSession, path: Path, condition: str) -> list[int]:
    """The ids found by reading the files directly, in the table's types."""
    kind = spark.read.format("delta").load(str(path)).schema
    found = spark.read.schema(kind).parquet(*DeltaTable(path).file_uris()).where(condition)
    return [row["id"] for row in found.collect()]


def by_duckdb(_: SparkSession, path: Path, condition: str) -> list[int]:
    with duckdb.connect() as connection:
        found = connection.read_parquet(DeltaTable(path).file_uris()).filter(condition)
        return [row[0] for row in found.project("id").fetchall()]


def by_polars(_: SparkSession, path: Path, condition: str) -> list[int]:
    found = pl.scan_parquet(DeltaTable(path).file_uris()).filter(pl.sql_expr(condition))
    return found.select("id").collect()["id"].to_list()


READERS = by_delta, by_spark, by_duckdb, by_polars


def answers(
    spark: SparkSession, path: Path, asked: list[str], readers: Any = READERS
) -> dict[str, list[int]]:
    delta_spark.forget(spark)
    return {
        f"{reader.__name__}: {condition}": sorted(reader(spark, path, condition))
        for reader in readers
        for condition in asked
    }


@pytest.mark.parametrize(
    ("asked", "readers"),
    [
        pytest.param(ASKED, READERS, id="all", marks=pytest.mark.long),
        pytest.param(ASKED[::10], READERS, id="some"),
    ],
)
def test_readers_find_unsigned_integers_by_the_same_filters(
    asked: list[str],
    readers: tuple[Callable[..., list[int]], ...],
    spark: SparkSession,
    tmp_path: Path,
    compacting: Compacting,
) -> None:
    path, peer = tmp_path / "ours", tmp_path / "peer"
    fields = {"id": "long"} | {name: kind for name, (kind, _) in UNSIGNED.items()}
    values = [[2**kind.bit_width - 1, 2 ** (kind.bit_width - 1)] for _, kind in UNSIGNED.values()]
    files = [
        pa.table([[2 * at, 2 * at + 1]] + [
            pa.array([value, None], kind)
            for value, (_, kind) in zip(some, UNSIGNED.values(), strict=True)
        ], names=["id", *UNSIGNED])
        for at, some in enumerate([*zip(*values, strict=True), (0, 0, 0)])
    ]  # fmt: skip
    table_of(path, fields, *files)
    shutil.copytree(path, peer)
    before = answers(spark, path, asked, readers)

    done = compacting(path).compact().done
    spark.sql(f"OPTIMIZE {delta_spark.table(peer)}").collect()

    assert done is not None and (done.files_removed, done.files_added) == (3, 1)
    assert answers(spark, path, asked, readers) == before
    assert answers(spark, peer, asked, readers) == before


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("columns", "values", "number"),
    [
        ("`a.b` DOUBLE, a STRUCT<b: BIGINT>", "{f}, named_struct('b', {i}L)", "`a.b`"),
        ("a ARRAY<BIGINT>, `a.list.element` DOUBLE", "array({i}L), {f}", "`a.list.element`"),
    ],
)
def test_nan_is_found_in_a_column_whose_dotted_name_is_the_path_of_another_leaf(
    spark: SparkSession,
    tmp_path: Path,
    compacting: Compacting,
    columns: str,
    values: str,
    number: str,
) -> None:
    """Arrow finds leaf columns by dotted paths: an option for one applies to the other too."""
    spark.sql(f"CREATE TABLE delta.`{tmp_path}` (id BIGINT, {columns}) USING delta")
    for i, text in enumerate(("0.0", "0.1", "NaN")):
        row = values.format(i=i, f=f"CAST('{text}' AS DOUBLE)")
        spark.sql(f"INSERT INTO delta.`{tmp_path}` VALUES ({i}L, {row})")

    done = compacting(tmp_path).compact().done

    delta_spark.forget(spark)
    found = spark.read.format("delta").load(str(tmp_path)).where(f"{number} > 1.0").select("id")
    assert done is not None and done.bins == 1
    assert [row.id for row in found.collect()] == [2]


@pytest.mark.oracle
def test_two_leaves_of_one_dotted_path_are_rewritten_as_delta_does(
    spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    columns = "id BIGINT, a STRUCT<b: BIGINT, `c.d`: BIGINT, c: STRUCT<d: BIGINT>>"
    spark.sql(f"CREATE TABLE delta.`{tmp_path}` ({columns}) USING delta")
    for i in range(3):
        inner = f"named_struct('b', {i}L, 'c.d', {i + 5}L, 'c', named_struct('d', {i + 7}L))"
        spark.sql(f"INSERT INTO delta.`{tmp_path}` VALUES ({i}L, {inner})")
    before = delta_spark.rows(spark, tmp_path)

    done = compacting(tmp_path).compact().done

    assert done is not None and done.bins == 1
    assert delta_spark.rows(spark, tmp_path) == before
