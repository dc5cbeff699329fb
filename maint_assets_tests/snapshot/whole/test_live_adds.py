"""Live files as whole add actions: with all fields of the log, in whatever form it has them."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from maint_assets.datasets.rows import Rows
from maint_assets.errors import CorruptLogError, LogGapError
from maint_assets.snapshot import replay
from maint_assets.snapshot.file_actions import actions_of
from maint_assets.snapshot.head import table_head
from maint_assets.snapshot.log_units import checkpoint_units
from maint_assets.snapshot.whole import live_adds
from maint_assets.snapshot.whole.actions import full_actions_of
from maint_assets.snapshot.whole.schemas import LIVE_ADDS_ARROW
from maint_assets.storage.location import Location
from maint_assets_tests.oracles.delta_spark import table as quoted
from maint_assets_tests.snapshot.segments import finish, story
from maint_assets_tests.support.builder import TableBuilder
from maint_assets_tests.support.checkpoints import CLASSIC

Action = dict[str, Any]
WHOLE: Action = {
    "tags": {"INSERTION_TIME": "1", "none": None},
    "baseRowId": 7,
    "defaultRowCommitVersion": 3,
    "clusteringProvider": "liquid",
}


def head_of(path: Path, version: int | None = None):
    return table_head(Location.of(str(path)), version)


def collected(spark: SparkSession, path: Path, version: int | None = None) -> list[Any]:
    found = live_adds.live_adds(
        spark, head_of(path, version), parallelism=2, scratch=str(path.with_name("scratch"))
    )
    return [row for rows in found for row in frame(rows).collect()]


def frame(rows: Rows):
    return rows.as_frame(from_arrow_schema(LIVE_ADDS_ARROW))


def adds(spark: SparkSession, path: Path, version: int | None = None) -> dict[str, Action]:
    rows = collected(spark, path, version)
    found = {row["log_key"]: present(row["add"].asDict(recursive=True)) for row in rows}
    assert len(found) == len(rows)
    return found


def present(action: Action) -> Action:
    """The action without nulls, and with dataChange false."""
    vector = action.get("deletionVector")
    whole = action | ({"deletionVector": present_fields(vector)} if vector else {})
    return present_fields(whole) | {"dataChange": False}


def present_fields(action: Action) -> Action:
    return {name: value for name, value in action.items() if value is not None}


def live(table: TableBuilder) -> dict[str, Action]:
    return {path: present(add) for path, add in table.live.items()}


@pytest.mark.parametrize("way", ["one task", "streamed", "buckets"])
def test_live_adds_are_whole_however_large_the_log(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    if way != "one task":
        monkeypatch.setattr(live_adds, "SMALL_LOG_BYTES", -1)
        monkeypatch.setattr(replay, "SHARE_BYTES", 1_000)
    if way == "buckets":
        monkeypatch.setattr(live_adds, "BUCKET_BYTES", 3_000)
    table = story(tmp_path / "t").add("whole", **WHOLE)
    table.checkpoint("v2-parquet" if way == "streamed" else "classic", parts=2)
    finish(table)
    table.add("newer", **WHOLE)

    assert adds(spark, table.path) == live(table)


@pytest.mark.parametrize("way", ["one task", "streamed", "buckets"])
def test_adds_of_commits_that_remove_their_files_too_are_disputed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    if way != "one task":
        monkeypatch.setattr(live_adds, "SMALL_LOG_BYTES", -1)
    if way == "buckets":
        monkeypatch.setattr(live_adds, "BUCKET_BYTES", 100)
    table = TableBuilder(tmp_path / "t").create().add("old", "again", "early", "kept")
    table.commit([removed("early"), table.added("early")]).checkpoint()
    for order in (1, -1):
        name = f"both{order}"
        table.commit([table.added(name), removed(name)][::order])
    table.commit([removed("again")]).commit([table.added("again")])
    table.commit([removed("both1"), table.added("late")]).commit([table.added("both1")])

    rows = collected(spark, table.path)

    by_key = {row["log_key"]: row["disputed"] for row in rows}
    assert by_key == dict.fromkeys(["old", "again", "early", "kept", "late", "both1"], False) | {
        "both-1": True
    }


def removed(path: str) -> Action:
    return {"remove": {"path": path, "deletionTimestamp": 1, "dataChange": True}}


def test_older_version_has_its_own_files(spark: SparkSession, tmp_path: Path) -> None:
    table = TableBuilder(tmp_path).create().add("a").checkpoint().add("b").remove("a").checkpoint()
    expected = live(table) | {"a": present(table.tombstones[("a", None)])}

    assert set(adds(spark, tmp_path, version=2)) == set(expected)
    assert head_of(tmp_path, 2).version == 2


@pytest.mark.parametrize("version", [-1, 1, 5])
def test_version_that_the_log_does_not_have_is_named(tmp_path: Path, version: int) -> None:
    table = TableBuilder(tmp_path).create().add("a").add("b").checkpoint().add("c")
    for old in (0, 1):
        (table.log / f"{old:020}.json").unlink()

    with pytest.raises(LogGapError, match=rf"version {version} .* versions 2 to 3"):
        head_of(tmp_path, version)


def test_live_adds_are_those_that_delta_rs_sees(spark: SparkSession, tmp_path: Path) -> None:
    table = TableBuilder(tmp_path / "t").create(partition_columns=["p"])
    table.add("a", "b c", partition={"p": "é/%"}).add("d").checkpoint().remove("d").add("e", rows=7)

    found = adds(spark, table.path)

    theirs = pa.table(DeltaTable(table.path).get_add_actions()).to_pylist()
    sizes = {row["path"]: row["size_bytes"] for row in theirs}
    rows = {row["path"]: row["num_records"] for row in theirs}
    assert {key: add["size"] for key, add in found.items()} == sizes
    assert {key: json.loads(add["stats"])["numRecords"] for key, add in found.items()} == rows


def test_statistics_of_a_checkpoint_without_texts_are_those_of_the_commits(
    spark: SparkSession, tmp_path: Path
) -> None:
    columns = "i INT, d DATE, n DECIMAL(9,2), x DOUBLE, s STRUCT<t: TIMESTAMP, z: TIMESTAMP_NTZ>"
    spark.sql(
        f"CREATE TABLE {quoted(tmp_path)} ({columns}) USING delta TBLPROPERTIES ("
        "'delta.checkpoint.writeStatsAsJson' = 'false', 'delta.checkpointInterval' = '1')"
    )
    spark.sql(
        f"INSERT INTO {quoted(tmp_path)} SELECT 1, DATE'2024-02-29', 1.10, double('NaN'), "
        "struct(TIMESTAMP'2024-02-29 12:00:00.123Z', TIMESTAMP_NTZ'2024-02-29 12:00:00')"
    )
    commits = adds(spark, tmp_path, version=0) | logged(tmp_path)

    head = head_of(tmp_path)
    batches = full_actions_of(head.location, checkpoint_units(head))
    found = {add["path"]: add for batch in batches for add in batch["add"].to_pylist()}

    assert {path: stats_of(add) for path, add in found.items()} == {
        path: stats_of(add) for path, add in commits.items()
    }


def logged(path: Path) -> dict[str, Action]:
    lines = (path / f"_delta_log/{1:020}.json").read_text().splitlines()
    found = [json.loads(line).get("add") for line in lines]
    return {add["path"]: add for add in found if add}


def stats_of(add: Action) -> Any:
    return json.loads(add["stats"])


DAMAGED: dict[str, tuple[Action, str]] = {
    "no path": ({"path": None}, "add.path is null"),
    "no size": ({"size": None}, "add.size is null"),
    "no time": ({"modificationTime": None}, "add.modificationTime is null"),
    "no partition values": ({"partitionValues": None}, "add.partitionValues is null"),
}


@pytest.mark.parametrize("action", ["add", "remove"])
def test_checkpoint_whose_actions_are_no_structs_is_named(tmp_path: Path, action: str) -> None:
    table = TableBuilder(tmp_path).create().add("a").remove("a").add("b").checkpoint()
    (unit,) = checkpoint_units(head_of(tmp_path))
    name = table.log / f"{3:020}.checkpoint.parquet"
    rows = pq.read_table(name)
    at = rows.schema.get_field_index(action)
    pq.write_table(rows.set_column(at, action, pa.array([1] * rows.num_rows)), name)

    for of in (full_actions_of, actions_of):
        with pytest.raises(CorruptLogError, match=f"{action} is a column of int64"):
            list(of(Location.of(str(tmp_path)), [unit]))


@pytest.mark.parametrize("what", DAMAGED)
def test_damaged_add_of_a_checkpoint_is_named(tmp_path: Path, what: str) -> None:
    table = TableBuilder(tmp_path).create().add("a").checkpoint()
    fields, message = DAMAGED[what]
    rows = [{"add": add | fields} for add in table.live.values()]
    name = table.log / f"{1:020}.checkpoint.parquet"
    head = head_of(tmp_path)
    pq.write_table(pa.Table.from_pylist(rows, CLASSIC), name)

    with pytest.raises(CorruptLogError, match=message):
        list(full_actions_of(Location.of(str(tmp_path)), checkpoint_units(head)))
    if what in {"no path", "no size"}:
        with pytest.raises(CorruptLogError, match=message):
            list(actions_of(Location.of(str(tmp_path)), checkpoint_units(head)))
