"""A purge rewrites the files with dropped columns, as Delta's REORG does, and only once."""

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from maint_assets.cli.compaction import plan_compaction
from maint_assets.compaction.planning.dropped_columns import Held, holds_dropped
from maint_assets.compaction.reading.matching import sources
from maint_assets.delta.schema import TableSchema
from maint_assets.errors import StorageError
from maint_assets_tests.compaction.conftest import Compacting
from maint_assets_tests.oracles import delta_spark
from maint_assets_tests.oracles.feature_tables import FEATURE_TABLES
from maint_assets_tests.support.builder import TableBuilder
from maint_assets_tests.support.data_files import schema_of

STRUCT = {"type": "struct", "fields": [{"name": "A", "type": "long", "metadata": {}}]}
LIST = {"type": "array", "elementType": STRUCT, "containsNull": True}
MAP = {"type": "map", "keyType": "string", "valueType": STRUCT, "valueContainsNull": True}
SCHEMA = schema_of(
    ("id", "long"), ("s", STRUCT), ("l", LIST), ("m", MAP), ("v", "variant"), ("day", "date"),
    partitions=("day",),
)  # fmt: skip
PART, OTHER = pa.struct({"a": pa.int64()}), pa.struct({"a": pa.int64(), "b": pa.int64()})


@pytest.mark.parametrize(
    ("columns", "is_dropped"),
    [
        ({"id": pa.int64()}, False),
        ({"ID": pa.int64(), "day": pa.date32(), "row_id": pa.int64()}, False),
        ({"id": pa.int64(), "x": pa.int64()}, True),
        ({"s": PART, "l": pa.list_(PART), "m": pa.map_(pa.string(), PART)}, False),
        ({"s": OTHER}, True),
        ({"l": pa.list_(OTHER)}, True),
        ({"m": pa.map_(pa.string(), OTHER)}, True),
        ({"v": pa.struct({"metadata": pa.binary(), "value": pa.binary()})}, False),
    ],
)
def test_a_column_or_a_part_that_the_schema_lacks_is_found(
    columns: dict[str, pa.DataType], is_dropped: bool, tmp_path: Path
) -> None:
    pq.write_table(pa.schema(list(columns.items())).empty_table(), tmp_path / "f")

    with pq.ParquetFile(tmp_path / "f") as file:
        assert holds_dropped(sources(file), held(SCHEMA)) is is_dropped


def held(schema: TableSchema) -> Held:
    return Held("t", schema.columns, frozenset({"row_id"}))


def test_a_file_that_cannot_be_opened_ends_the_planning(
    tmp_path: Path, compacting: Compacting
) -> None:
    TableBuilder(tmp_path).create().add("1.parquet").add("2.parquet")
    (tmp_path / "2.parquet").write_bytes(b"nothing")

    with pytest.raises(StorageError, match=r"2\.parquet"):
        compacting(tmp_path, purge=True).compact()


def test_only_partitions_that_were_asked_for_are_looked_into(
    tmp_path: Path, compacting: Compacting
) -> None:
    table = TableBuilder(tmp_path).create(partition_columns=["p"])
    for p in ("1", "2"):
        table.add("f.parquet", partition={"p": p})
    (tmp_path / "p=2" / "f.parquet").write_bytes(b"nothing")

    report = compacting(tmp_path, purge=True, where="p = '1'").compact()

    assert report.planned.plan.left_out == {"whole": 1, "other_partition": 1}


CREATE = (
    "CREATE TABLE {t} (id BIGINT, secret STRING, name STRING, s STRUCT<a: INT, secret: STRING>, "
    "l ARRAY<STRUCT<a: INT, secret: STRING>>, p INT) USING delta {clause} TBLPROPERTIES "
    "('delta.columnMapping.mode' = '{mode}', "
    "'delta.enableDeletionVectors' = 'true', 'delta.enableRowTracking' = '{tracked}')"
)
INSERT = (
    "INSERT INTO {t} SELECT id, 'secret-column', 'n', "
    "named_struct('a', 1, 'secret', 'secret-field'), "
    "array(named_struct('a', 1, 'secret', 'secret-element')), id % 2 "
    "FROM range({first}, {last}, 1, 1)"
)
DROPS = {
    "secret-column": "ALTER TABLE {t} DROP COLUMN secret",
    "secret-field": "ALTER TABLE {t} DROP COLUMN s.secret",
    "secret-element": "ALTER TABLE {t} DROP COLUMN l.element.secret",
}


@pytest.mark.oracle
@pytest.mark.slow
@pytest.mark.parametrize(
    ("made", "dropped"),
    [
        pytest.param(
            {"mode": "name", "tracked": "false", "clause": "PARTITIONED BY (p)"},
            ["secret-column"],
            marks=pytest.mark.long,
        ),
        pytest.param(
            {"mode": "name", "tracked": "true", "clause": ""},
            ["secret-field"],
            marks=pytest.mark.long,
        ),
        pytest.param(
            {"mode": "id", "tracked": "true", "clause": "PARTITIONED BY (p)"},
            ["secret-element", "secret-column"],
            marks=pytest.mark.long,
        ),
        pytest.param({"mode": "id", "tracked": "false", "clause": ""}, [], marks=pytest.mark.long),
    ],
)
def test_the_files_of_deltas_own_purge_are_taken(
    made: dict[str, str],
    dropped: list[str],
    spark: SparkSession,
    tmp_path: Path,
    compacting: Compacting,
) -> None:
    path, t = tmp_path / "t", delta_spark.table(tmp_path / "t")
    spark.sql(CREATE.format(t=t, **made))
    for first in (0, 10, 20):
        spark.sql(INSERT.format(t=t, first=first, last=first + 10))
    spark.sql(f"UPDATE {t} SET name = 'updated' WHERE id = 25")
    for name in dropped:
        spark.sql(DROPS[name].format(t=t))
    spark.sql(f"ALTER TABLE {t} RENAME COLUMN name TO label")
    if "secret-column" in dropped:  # a new column of that name is not in the old files
        spark.sql(f"ALTER TABLE {t} ADD COLUMN secret STRING")
    spark.sql(f"INSERT INTO {t} (id, label, p) VALUES (100, 'whole', 1)")
    before, live = delta_spark.rows(spark, path), delta_spark.active_files(spark, path)
    theirs = shutil.copytree(path, tmp_path / "theirs")
    chain = compacting(path, purge=True)

    report = chain.compact()
    spark.sql(f"REORG TABLE {delta_spark.table(theirs)} APPLY (PURGE)")

    assert report.error is None and report.done is not None and report.done.not_committed == {}
    ours, others = (delta_spark.active_files(spark, each) for each in (path, theirs))
    assert live - ours == live - others != set()
    assert delta_spark.rows(spark, path) == delta_spark.rows(spark, theirs) == before
    text = "".join(str(pq.read_table(path / file).to_pylist()) for file in ours)
    assert [name in text for name in DROPS] == [name not in dropped for name in DROPS]
    assert plan_compaction(chain.launcher, chain.table).planned.plan.bins == 0


@pytest.mark.oracle
@pytest.mark.slow
@pytest.mark.long
def test_variants_are_no_columns_of_their_own(
    spark: SparkSession, tmp_path: Path, compacting: Compacting
) -> None:
    FEATURE_TABLES["variantType"](spark, tmp_path)
    spark.sql(f"REORG TABLE {delta_spark.table(tmp_path)} APPLY (PURGE)")

    assert compacting(tmp_path, purge=True).compact().planned.plan.bins == 0
