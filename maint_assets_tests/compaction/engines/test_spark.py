"""Files that Arrow would change are rewritten by Spark: the same rows, and a usable table."""

import datetime as dt
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from maint_assets.cli.compaction import CompactionReport
from maint_assets_tests.compaction.conftest import Compacting
from maint_assets_tests.oracles import delta_spark
from maint_assets_tests.support.builder import TableBuilder, encoded
from maint_assets_tests.support.old_writers import LEGACY, NO_CALENDAR, file_of, settings, texts

pytestmark = [pytest.mark.oracle, pytest.mark.slow]


COLUMNS = (
    "id BIGINT, day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, name STRING, x DOUBLE, "
    "s STRUCT<at: TIMESTAMP, n: INT>, l ARRAY<DATE>, m MAP<STRING, TIMESTAMP>"
)
OLD = ("0001-01-01", "1200-02-29", "1582-10-04", "1582-10-15", "1899-12-31", "2024-02-29")


def rows_of_old_days(first: int) -> str:
    """Rows with dates and timestamps of all ages, some null."""
    values = ", ".join(
        f"({first + at}, DATE'{day}', TIMESTAMP'{day} 01:02:03.456789', "
        f"TIMESTAMP_NTZ'{day} 01:02:03', 'n{at}', {at}.5, "
        f"named_struct('at', TIMESTAMP'{day} 00:00:00', 'n', {at}), "
        f"array(DATE'{day}', NULL), map('k', TIMESTAMP'{day} 23:59:59'))"
        for at, day in enumerate(OLD)
    )
    return f"VALUES {values}, ({first + len(OLD)}, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)"


def live_files(spark: SparkSession, path: Path) -> list[pq.ParquetFile]:
    return [pq.ParquetFile(path / file) for file in delta_spark.active_files(spark, path)]


def ledger(report: CompactionReport) -> list[dict[str, Any]]:
    assert report.ledger is not None
    return ds.dataset(report.ledger, format="parquet").to_table().to_pylist()


def properties(**values: str) -> str:
    return ", ".join(
        f"'delta.{key.replace('__', '.')}' = '{value}'" for key, value in values.items()
    )


UPDATE = "UPDATE {t} SET name = 'new' WHERE id % 7 = 3"
TABLES: dict[str, tuple[str, tuple[str, ...]]] = {
    "plain": ("", ()),
    "partitioned": ("PARTITIONED BY (day)", ()),
    "written partition columns": (
        "PARTITIONED BY (day, name) "
        f"TBLPROPERTIES ({properties(writePartitionColumnsToParquet='true')})",
        (),
    ),
    "deletion vectors": (
        f"TBLPROPERTIES ({properties(enableDeletionVectors='true')})",
        ("DELETE FROM {t} WHERE id IN (0, 3, 12)", "DELETE FROM {t} WHERE id = 6"),
    ),
    "column mapping by name": (
        f"TBLPROPERTIES ({properties(columnMapping__mode='name')})",
        ("ALTER TABLE {t} RENAME COLUMN at TO `the moment`", "ALTER TABLE {t} DROP COLUMN x"),
    ),
    "column mapping by id": (
        f"TBLPROPERTIES ({properties(columnMapping__mode='id')})",
        ("ALTER TABLE {t} RENAME COLUMN day TO `a.day`", "ALTER TABLE {t} DROP COLUMN s.n"),
    ),
    "row tracking": (
        f"TBLPROPERTIES ({properties(enableRowTracking='true', enableDeletionVectors='true')})",
        (UPDATE, "DELETE FROM {t} WHERE id = 1"),
    ),
    "new columns": ("", ("ALTER TABLE {t} ADD COLUMNS (more INT, s.more STRING)",)),
}
EACH_TIME = {"deletion vectors"}
"""What CI runs; the others run in ``make stories``."""


@pytest.mark.parametrize("name", ["__maint_assets_bin", "__MAINT_assets_values"])
def test_columns_named_like_ours_are_refused_and_left_as_they_are(
    name: str, spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    path, t = tmp_path / "t", delta_spark.table(tmp_path / "t")
    with settings(spark, LEGACY):
        spark.sql(f"CREATE TABLE {t} (id BIGINT, day DATE, {name} STRING) USING delta")
        for at in range(2):
            spark.sql(f"INSERT INTO {t} VALUES ({at}, DATE'1200-02-29', 'x')")
    before = texts(spark, path), sorted(path.rglob("*.parquet"))

    report = compacting(path).compact()

    rows = ledger(report)
    assert {row["state"] for row in rows} == {"refused"}
    assert all(f"the name of column {name} is reserved" in row["reason"] for row in rows)
    assert (texts(spark, path), sorted(path.rglob("*.parquet"))) == before


@pytest.mark.parametrize(
    "kind", [pytest.param(n, marks=[] if n in EACH_TIME else [pytest.mark.long]) for n in TABLES]
)
def test_old_calendars_are_rewritten_by_spark(
    kind: str, spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    clause, changes = TABLES[kind]
    path, t = tmp_path / "t", delta_spark.table(tmp_path / "t")
    with settings(spark, LEGACY):
        spark.sql(f"CREATE TABLE {t} ({COLUMNS}) USING delta {clause}")
        for first in (0, 7):
            spark.sql(f"INSERT INTO {t} {rows_of_old_days(first)}")
        for change in changes:
            spark.sql(change.format(t=t))
    ids = ("_metadata.row_id", "_metadata.row_commit_version") if kind == "row tracking" else ()
    before = texts(spark, path, *ids)
    chain = compacting(path, max_deleted_rows_ratio=0.0)

    report, again = chain.compact(), chain.compact()

    assert report.done is not None and report.done.not_committed == {}
    assert {row["engine"] for row in ledger(report)} == {"spark"}
    assert report.done.bins_by_engine == {"spark": report.done.bins}
    assert texts(spark, path, *ids) == before
    assert again.planned.plan.bins == 0
    for file in live_files(spark, path):
        assert "INT96" not in str(file.schema)
        assert b"org.apache.spark.legacyDateTime" not in (file.metadata.metadata or {})
    spark.sql(UPDATE.format(t=t))
    spark.sql(f"DELETE FROM {t} WHERE id = 2")
    assert len(texts(spark, path)) == len(before) - 1


def test_columns_that_differ_in_case_alone_keep_their_values(
    spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    """delta-spark and deltalake refuse such a table, but its writer may have a reader."""
    table = TableBuilder(tmp_path / "t").create(fields={"id": "long", "day": "date", "Day": "date"})
    for at in range(2):
        with settings(spark, {"spark.sql.caseSensitive": "true", **LEGACY}):
            row = f"{at}L AS id, DATE'1200-01-0{at + 1}' AS day, DATE'1300-01-0{at + 1}' AS `Day`"
            spark.sql(f"SELECT {row}").coalesce(1).write.parquet(str(tmp_path / f"{at}"))
        (file,) = (tmp_path / f"{at}").glob("*.parquet")
        shutil.copy(file, table.path / f"{at}.parquet")
        add = {"path": f"{at}.parquet", "partitionValues": {}, "size": file.stat().st_size}
        table.commit([{"add": {**add, "modificationTime": 1, "dataChange": True}}])

    report = compacting(table.path).compact()

    assert {(row["engine"], row["state"]) for row in ledger(report)} == {("spark", "committed")}
    (new,) = table.path.glob("part-*.parquet")
    assert pq.read_table(new).to_pylist() == [
        {"id": at, "day": dt.date(1200, 1, at + 1), "Day": dt.date(1300, 1, at + 1)}
        for at in range(2)
    ]


def test_new_files_hold_what_the_protocol_wants(
    spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    path, t = tmp_path / "t", delta_spark.table(tmp_path / "t")
    mapped = properties(columnMapping__mode="name", enableDeletionVectors="true")
    with settings(spark, LEGACY):
        spark.sql(f"CREATE TABLE {t} ({COLUMNS}) USING delta TBLPROPERTIES ({mapped})")
        for first in (0, 7):
            rows = f"SELECT /*+ COALESCE(1) */ * FROM ({rows_of_old_days(first)})"
            spark.sql(f"INSERT INTO {t} {rows}")
    old = [file.schema_arrow for file in live_files(spark, path)]

    done = compacting(path).compact().done

    (new,) = live_files(spark, path)
    assert done is not None and done.files_added == 1
    assert new.metadata.row_group(0).column(0).compression == "ZSTD"
    found, wanted = (_ids(schema) for schema in (new.schema_arrow, old[0]))
    assert found == wanted and all(number > 0 for number in found.values())
    assert new.read().column(0).to_pylist() == [*range(14)], "rows keep their order"
    stats = json.loads(_added(path)["stats"])
    assert stats["numRecords"] == 14 and stats["tightBounds"] is True
    by_name = {field["name"]: field["metadata"] for field in _fields(path)}
    day = by_name["day"]["delta.columnMapping.physicalName"]
    assert (stats["minValues"][day], stats["maxValues"][day]) == ("0001-01-01", "2024-02-29")
    assert stats["nullCount"][day] == 2


def _ids(schema: pa.Schema) -> dict[str, int]:
    found: dict[str, int] = {}

    def walk(field: pa.Field, above: str) -> None:
        path = f"{above}/{field.name}"
        number = (field.metadata or {}).get(b"PARQUET:field_id")
        if number is not None:
            found[path] = int(number)
        if pa.types.is_struct(field.type):
            for at in range(field.type.num_fields):
                walk(field.type.field(at), path)

    for field in schema:
        walk(field, "")
    return found


def _actions(path: Path) -> list[dict[str, Any]]:
    newest = max((path / "_delta_log").glob("*.json"))
    return [json.loads(line) for line in newest.read_text(encoding="utf-8").splitlines()]


def _added(path: Path) -> dict[str, Any]:
    (added,) = [action["add"] for action in _actions(path) if "add" in action]
    return added


def _fields(path: Path) -> list[dict[str, Any]]:
    first = (path / "_delta_log" / f"{0:020}.json").read_text(encoding="utf-8").splitlines()
    (metadata,) = [json.loads(line)["metaData"] for line in first if "metaData" in line]
    return json.loads(metadata["schemaString"])["fields"]


VARIANTS = (
    "INSERT INTO {t} SELECT id, parse_json(concat('{{\"a\": ', id, ', \"b\": [1, null]}}')), "
    "named_struct('v', parse_json('\"text\"')), IF(id % 2 = 0, NULL, parse_json('null')) "
    "FROM range({first}, {last}, 1, 1)"
)


@pytest.mark.long
@pytest.mark.parametrize("shredded", [False, True])
def test_variants_are_rewritten_by_spark(
    shredded: bool, spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    path, t = tmp_path / "t", delta_spark.table(tmp_path / "t")
    columns = "id BIGINT, v VARIANT, s STRUCT<v: VARIANT>, w VARIANT"
    on = properties(enableVariantShredding=str(shredded).lower(), enableDeletionVectors="true")
    spark.sql(f"CREATE TABLE {t} ({columns}) USING delta TBLPROPERTIES ({on})")
    for first in (0, 10):
        spark.sql(VARIANTS.format(t=t, first=first, last=first + 10))
    spark.sql(f"DELETE FROM {t} WHERE id = 3")
    before, old = texts(spark, path), live_files(spark, path)

    report = compacting(path).compact()

    assert report.error is None and report.done is not None
    assert report.done.bins_by_engine == {"spark": 1}
    assert texts(spark, path) == before
    (new,) = live_files(spark, path)
    assert {is_shredded(file) for file in (new, *old)} == {shredded}
    added = _added(path)
    assert json.loads(added["stats"])["nullCount"] == {"id": 0, "v": 0, "s": {"v": 0}, "w": 10}
    spark.sql(f"DELETE FROM {t} WHERE id = 4")
    assert len(texts(spark, path)) == len(before) - 1


def is_shredded(file: pq.ParquetFile) -> bool:
    return "typed_value" in str(file.schema)


def days(*values: int) -> pa.Table:
    return pa.table({"id": list(values), "day": pa.array(values, pa.date32())})


@pytest.mark.parametrize(("oldest", "is_kept"), [(-141_427, True), (-141_428, False)])
def test_days_of_an_unknown_calendar_are_kept_where_it_makes_no_difference(
    oldest: int, is_kept: bool, tmp_path: Path, spark: SparkSession, compacting: Compacting
) -> None:
    table = TableBuilder(tmp_path).create(fields={"id": "long", "day": "date"})
    table.commit([file_of(tmp_path, "1.parquet", days(oldest, 5), footer=NO_CALENDAR)])
    # Not written by Spark: its days are of the ISO calendar, although in the same bin.
    table.commit([file_of(tmp_path, "2.parquet", days(-700_000, 6), footer={})])
    before, on_disk = texts(spark, tmp_path), set(tmp_path.rglob("*"))

    report = compacting(tmp_path).compact()

    assert report.error is None and report.done is not None
    assert (report.done.bins, report.done.refused) == ((1, 0) if is_kept else (0, 1))
    assert is_kept or "footer does not name the calendar" in next(iter(report.done.not_committed))
    assert texts(spark, tmp_path) == before
    assert is_kept or set(tmp_path.rglob("*")) == on_disk


def test_a_bin_that_spark_cannot_keep_does_not_stop_the_others(
    tmp_path: Path, spark: SparkSession, compacting: Compacting
) -> None:
    fields = {"id": "long", "day": "date", "p": "integer"}
    table = TableBuilder(tmp_path).create(partition_columns=["p"], fields=fields)
    for p in range(5):
        for name in ("a", "b"):
            oldest = -200_000 if p == 3 else 0
            made = file_of(tmp_path, f"{p}{name}.parquet", days(oldest, p), footer=NO_CALENDAR)
            made["add"]["partitionValues"] = {"p": str(p)}
            table.commit([made])
    before = texts(spark, tmp_path)

    report = compacting(tmp_path).compact()

    assert report.error is None and report.done is not None
    assert (report.done.bins, report.done.refused) == (4, 1)
    assert texts(spark, tmp_path) == before
    assert len(list(tmp_path.rglob("part-*"))) == 4, "nothing but the new files"


def test_a_file_that_no_engine_keeps_does_not_stop_spark_from_merging_the_others(
    tmp_path: Path, spark: SparkSession, compacting: Compacting
) -> None:
    table = TableBuilder(tmp_path).create(fields={"id": "long", "day": "date"})
    for at in range(3):
        made = file_of(tmp_path, f"{at}.parquet", days(at), footer=NO_CALENDAR)
        made["add"]["size"] += at == 1
        table.commit([made])
    before = texts(spark, tmp_path)

    done = compacting(tmp_path).compact().done

    assert done is not None and (done.bins_by_engine, done.refused) == ({"spark": 1}, 1)
    assert (done.files_removed, done.files_added) == (2, 1)
    assert texts(spark, tmp_path) == before


def test_arrow_and_spark_rewrite_in_one_commit(
    tmp_path: Path, spark: SparkSession, compacting: Compacting
) -> None:
    fields = {"id": "long", "day": "date", "p": "integer"}
    table = TableBuilder(tmp_path).create(partition_columns=["p"], fields=fields)
    for p, footer in ((0, NO_CALENDAR), (1, {})):
        for name in ("a #%20", "b"):
            made = file_of(tmp_path, f"{p}{name}.parquet", days(p, 7), footer=footer)
            made["add"] |= {
                "partitionValues": {"p": str(p)},
                "path": encoded(f"{p}{name}.parquet"),
            }
            table.commit([made])
    before = texts(spark, tmp_path)

    report = compacting(tmp_path).compact()

    assert report.done is not None and report.done.bins_by_engine == {"arrow": 1, "spark": 1}
    assert len(report.done.versions) == 1
    assert report.json()["bins_by_engine"] == {"arrow": 1, "spark": 1}
    assert texts(spark, tmp_path) == before


def test_a_row_that_spark_lost_fails_the_bin(
    tmp_path: Path, spark: SparkSession, compacting: Compacting, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = TableBuilder(tmp_path).create(fields={"id": "long", "day": "date"})
    table.commit([file_of(tmp_path, "1.parquet", days(4, 5), footer=NO_CALENDAR)])
    table.commit([file_of(tmp_path, "2.parquet", days(6), footer=NO_CALENDAR)])
    on_disk = set(tmp_path.rglob("*"))
    losing(monkeypatch, lambda rows: rows.where("id <> 5"))

    report = compacting(tmp_path).compact()

    assert report.done is not None and (report.done.bins, report.done.failed) == (0, 1)
    assert "2 rows for 3 live rows" in next(iter(report.done.not_committed))
    assert set(tmp_path.rglob("*")) == on_disk


def test_a_page_with_a_wrong_checksum_is_not_rewritten(
    spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    path, t = tmp_path / "t", delta_spark.table(tmp_path / "t")
    with settings(spark, {**LEGACY, "spark.sql.parquet.compression.codec": "uncompressed"}):
        spark.sql(f"CREATE TABLE {t} (id BIGINT, day DATE, name STRING) USING delta")
        for name in ("needle", "hay"):
            spark.sql(f"INSERT INTO {t} VALUES (1, DATE'2020-01-01', '{name}')")
    for file in map(path.joinpath, delta_spark.active_files(spark, path)):
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
        file.write_bytes(file.read_bytes().replace(b"\x06\0\0\0needle", b"\x06\0\0\0noodle"))
    assert {row["name"] for row in delta_spark.rows(spark, path)} == {"noodle", "hay"}

    report = compacting(path).compact()

    assert report.done is not None and (report.done.bins, report.done.failed) == (0, 1)
    assert "CRC" in next(iter(report.done.not_committed))


def test_text_that_sparks_fast_reader_garbles_is_kept(
    tmp_path: Path, spark: SparkSession, compacting: Compacting
) -> None:
    """Spark 4.2 misreads its own uncompressed pages of version 2, unless it verifies checksums."""
    path = tmp_path / "t"
    with settings(spark, LEGACY):
        for first in (0, 5):
            rows = spark.sql(
                "SELECT id, concat('text-', id) AS name, DATE'1500-01-01' AS day "
                f"FROM range({first}, {first + 5}, 1, 1)"
            )
            writer = rows.write.format("delta").mode("append").option("compression", "none")
            writer = writer.option("parquet.writer.version", "v2")
            writer.option("parquet.enable.dictionary", "false").save(str(path))
    garbled, one_by_one = texts(spark, path), {"spark.sql.parquet.enableVectorizedReader": "false"}
    with settings(spark, one_by_one):
        before = texts(spark, path)
    assert garbled != before, "else this shows nothing"

    done = compacting(path).compact().done

    assert done is not None and done.bins_by_engine == {"spark": 1}
    assert texts(spark, path) == before
    assert [f'"name":"text-{number}"' in row for number, row in enumerate(before)] == [True] * 10


def test_columns_are_found_by_their_id(
    spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    t = delta_spark.table(tmp_path)
    mapped = properties(columnMapping__mode="id")
    spark.sql(f"CREATE TABLE {t} (id BIGINT, day DATE) USING delta TBLPROPERTIES ({mapped})")
    fields = [
        pa.field(name, kind, metadata={"PARQUET:field_id": number})
        for name, kind, number in (("x", pa.int64(), "1"), ("y", pa.date32(), "2"))
    ]
    for version, name in enumerate(("1.parquet", "2.parquet"), 1):
        columns = pa.table([[version], pa.array([5], pa.date32())], pa.schema(fields))
        commit(tmp_path, version, file_of(tmp_path, name, columns, footer=NO_CALENDAR))
    before = texts(spark, tmp_path)

    report = compacting(tmp_path).compact()

    assert report.done is not None and report.done.bins_by_engine == {"spark": 1}
    assert texts(spark, tmp_path) == before
    assert all('"day":"1970-01-06"' in row for row in before)


def commit(path: Path, version: int, action: dict[str, Any]) -> None:
    info = {"commitInfo": {"timestamp": 1, "operation": "WRITE"}}
    lines = "\n".join(map(json.dumps, (info, action)))
    (path / "_delta_log" / f"{version:020}.json").write_text(lines, encoding="utf-8")


def losing(monkeypatch: pytest.MonkeyPatch, change: Callable[[Any], Any]) -> None:
    from maint_assets.compaction.engines.spark_rows import SparkInputs  # noqa: PLC0415

    read = SparkInputs.rows
    monkeypatch.setattr(SparkInputs, "rows", lambda self, bins: change(read(self, bins)))


def test_the_session_of_the_user_stays_as_it_is(
    tmp_path: Path, spark: SparkSession, compacting: Compacting
) -> None:
    table = TableBuilder(tmp_path).create(fields={"id": "long", "day": "date"})
    for name in ("1.parquet", "2.parquet"):
        table.commit([file_of(tmp_path, name, days(4, 5), footer=NO_CALENDAR)])
    before = {row.key: row.value for row in spark.sql("SET").collect()}

    report = compacting(tmp_path).compact()

    assert report.done is not None and report.done.bins_by_engine == {"spark": 1}
    assert {row.key: row.value for row in spark.sql("SET").collect()} == before
