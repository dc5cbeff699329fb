"""Our checkpoints: delta-spark and delta-rs read from them all that the commits contain."""

import errno
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from maint_assets.assets.spark_resource import typed_errors
from maint_assets.commit import whole_files
from maint_assets.commit.checkpoint import writer
from maint_assets.commit.whole_files import put_file_if_absent
from maint_assets.errors import (
    ChecksumMismatchError,
    CommitError,
    CorruptLogError,
    UnsupportedFeatureError,
)
from maint_assets.snapshot import replay
from maint_assets.snapshot.whole import live_adds
from maint_assets.storage.location import Location
from maint_assets_tests.oracles import delta_spark
from maint_assets_tests.oracles.delta_spark import table as quoted
from maint_assets_tests.support.builder import DAY_MS, TableBuilder, tree
from maint_assets_tests.support.checkpoint_writing import (
    compared,
    content,
    hint,
    log,
    state,
    story,
    without_commits,
    written,
)
from maint_assets_tests.support.faulty import Conflict, FaultyStore, LostAnswer

COLUMNS = "id BIGINT, name STRING, p STRING, d DECIMAL(20,2), t TIMESTAMP, s STRUCT<x: DOUBLE>"
VALUES = "'a b/é', 1.25, TIMESTAMP'9999-12-31 00:00:00Z', struct(double('NaN'))"
INSERT = f"INSERT INTO {{t}} SELECT id, concat('n', id), {VALUES} FROM range(0, 20, 1, 2)"
FEATURES: dict[str, dict[str, str]] = {
    "deletion vectors, rows tracked": {
        "delta.enableDeletionVectors": "true",
        "delta.enableRowTracking": "true",
    },
    "columns mapped, parsed statistics only": {
        "delta.columnMapping.mode": "name",
        "delta.checkpoint.writeStatsAsJson": "false",
    },
    "V2, texts of statistics only": {
        "delta.checkpointPolicy": "v2",
        "delta.checkpoint.writeStatsAsStruct": "false",
    },
}


@pytest.mark.parametrize("what", FEATURES)
def test_delta_reads_from_a_checkpoint_all_that_the_commits_hold(
    spark: SparkSession, tmp_path: Path, what: str
) -> None:
    properties = FEATURES[what] | {"delta.checkpointInterval": "1000"}
    made(spark, tmp_path / "t", [INSERT, "DELETE FROM {t} WHERE id = 3"], properties)
    expected, rows = state(spark, tmp_path / "t"), repr(delta_spark.rows(spark, tmp_path / "t"))

    done = written(spark, tmp_path / "t")

    alone = without_commits(tmp_path / "t", done.version)
    assert done.made and done.hint_moved
    assert compared(state(spark, alone)) == compared(expected)
    assert repr(delta_spark.rows(spark, alone)) == rows
    assert (done.adds, done.tombstones) == (len(expected["allFiles"]), len(expected["tombstones"]))
    assert hint(tmp_path / "t")["numOfAddFiles"] == done.adds
    assert len(DeltaTable(alone).file_uris()) == done.adds


def made(
    spark: SparkSession, path: Path, statements: Sequence[str], properties: Mapping[str, str]
) -> None:
    stored = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    create = f"CREATE TABLE {{t}} ({COLUMNS}) USING delta PARTITIONED BY (p)"
    for statement in (f"{create} TBLPROPERTIES ({stored})", *statements):
        spark.sql(statement.format(t=quoted(path))).collect()


def test_same_columns_as_deltas_own_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    made(spark, tmp_path / "t", [INSERT], {"delta.enableDeletionVectors": "true"})
    copy = shutil.copytree(tmp_path / "t", tmp_path / "theirs")
    log(spark, copy).checkpoint()

    written(spark, tmp_path / "t")

    ours, theirs = (
        pq.read_table(next((path / "_delta_log").glob("*.checkpoint.parquet")))
        for path in (tmp_path / "t", copy)
    )
    assert columns(ours.schema) == columns(theirs.schema)
    assert hint(tmp_path / "t")["size"] == hint(copy)["size"] == ours.num_rows


def test_footers_hold_no_bounds_of_typed_floating_point_numbers(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    spark.sql(
        f"CREATE TABLE delta.`{path}` (id INT, x DOUBLE, p DOUBLE) USING delta PARTITIONED BY (p) "
        "TBLPROPERTIES ('delta.checkpoint.writeStatsAsStruct' = 'true')"
    )
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (1, 1D, 1D), (2, double('NaN'), double('NaN'))")

    written(spark, path)

    file = pq.ParquetFile(next((path / "_delta_log").glob("*.checkpoint.parquet")))
    group = file.metadata.row_group(0)
    leaves_of_adds = [group.column(at) for at in range(group.num_columns)]
    bounded = {each.path_in_schema: each.is_stats_set for each in leaves_of_adds}
    assert (
        not bounded["add.partitionValues_parsed.p"] and not bounded["add.stats_parsed.maxValues.x"]
    )
    assert bounded["add.stats_parsed.maxValues.id"]
    found = spark.read.parquet(str(path / "_delta_log" / "*.checkpoint.parquet"))
    assert found.where("add.partitionValues_parsed.p > 1").count() == 1


@pytest.mark.oracle
def test_footers_hold_no_bounds_of_leaves_whose_dotted_paths_are_the_same(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Arrow finds leaf columns by dotted paths: bounds of one would be written for both."""
    path = tmp_path / "t"
    spark.sql(
        f"CREATE TABLE delta.`{path}` (id INT, `a.b` DOUBLE, a STRUCT<b: INT>) USING delta "
        "TBLPROPERTIES ('delta.checkpoint.writeStatsAsStruct' = 'true')"
    )
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (1, 2D, named_struct('b', 3))")

    written(spark, path)

    file = pq.ParquetFile(next((path / "_delta_log").glob("*.checkpoint.parquet")))
    every = [file.metadata.row_group(0).column(at) for at in range(file.metadata.num_columns)]
    bounded = [each.path_in_schema for each in every if each.is_stats_set]
    assert "add.stats_parsed.maxValues.id" in bounded
    assert "add.stats_parsed.maxValues.a.b" not in bounded
    assert [each.path_in_schema for each in every].count("add.stats_parsed.maxValues.a.b") == 2
    assert [row["id"] for row in delta_spark.rows(spark, path)] == [1]


def columns(schema: pa.Schema) -> set[str]:
    """The paths of all leaf columns."""
    return {".".join(names) for field in schema for names in leaves(field)}


def leaves(field: pa.Field) -> list[list[str]]:
    if not pa.types.is_struct(field.type):
        return [[field.name]]
    return [[field.name, *below] for child in field.type for below in leaves(child)]


def test_expired_tombstones_removed_domains_and_old_applications_are_left_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    configuration = {"delta.setTransactionRetentionDuration": "interval 3 days"}
    table = story(tmp_path / "t", configuration=configuration, features=["domainMetadata"])

    written(spark, table.path, now_ms=table.now_ms)

    assert [row["path"] for row in content(table.path, "remove")] == ["b"]
    assert [row["domain"] for row in content(table.path, "domainMetadata")] == ["kept"]
    assert [row["appId"] for row in content(table.path, "txn")] == ["new"]
    assert {row["dataChange"] for row in content(table.path, "add")} == {False}


def test_tombstone_exactly_at_the_cutoff_is_left_out(spark: SparkSession, tmp_path: Path) -> None:
    table = story(tmp_path / "t")
    (removed_ms,) = (
        remove["deletionTimestamp"] for (path, _), remove in table.tombstones.items() if path == "b"
    )

    written(spark, table.path, now_ms=removed_ms + 7 * DAY_MS)

    assert content(table.path, "remove") == []


@pytest.mark.parametrize("way", ["one task", "streamed", "buckets"])
@pytest.mark.parametrize("does", ["both adds and removes", "holds twice"])
def test_checkpoint_that_readers_see_differently_is_not_carried_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, does: str
) -> None:
    table = story(tmp_path / "t").checkpoint().add("newer", "more")
    by_way(monkeypatch, way, tail=table.log / f"{table.version:020}.json")
    (file,) = table.log.glob("*.checkpoint.parquet")
    rows = pq.read_table(file)
    live = next(row["add"]["path"] for row in rows.to_pylist() if row["add"])
    kind = "remove" if does == "both adds and removes" else "add"
    more = dict.fromkeys(rows.column_names)
    more[kind] = next(row[kind] for row in rows.to_pylist() if row[kind]) | {"path": live}
    more[kind]["deletionVector"] = None
    pq.write_table(pa.concat_tables([rows, pa.Table.from_pylist([more], rows.schema)]), file)

    message = f"checkpoint {table.version - 1} {does} {live}"
    with pytest.raises(CorruptLogError, match=message), typed_errors():
        written(spark, table.path)


def by_way(monkeypatch: pytest.MonkeyPatch, way: str, *, tail: Path) -> None:
    """Make the replay go ``way``; ``tail`` is the commit after the checkpoint."""
    monkeypatch.setattr(live_adds, "SMALL_LOG_BYTES", 1 << 30 if way == "one task" else -1)
    size = tail.stat().st_size
    monkeypatch.setattr(live_adds, "BUCKET_BYTES", size - 1 if way == "buckets" else size)
    monkeypatch.setattr(replay, "SHARE_BYTES", 1_000)


@pytest.mark.parametrize("way", ["one task", "streamed", "buckets"])
@pytest.mark.parametrize("first", ["add", "remove"])
def test_version_that_readers_see_differently_gets_no_checkpoint(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, first: str
) -> None:
    monkeypatch.setattr(live_adds, "SMALL_LOG_BYTES", 1 << 30 if way == "one task" else -1)
    monkeypatch.setattr(live_adds, "BUCKET_BYTES", 1_000 if way == "buckets" else 1 << 30)
    table = story(tmp_path / "t")
    added = table.added("both", rows=4)
    removed = {"remove": {"path": "both", "deletionTimestamp": table.clock_ms, "dataChange": True}}
    table.commit([added, removed] if first == "add" else [removed, added]).add("newer")
    before = tree(table.path)

    message = r"0{19}6\.json both adds and removes both"
    with pytest.raises(CorruptLogError, match=message), typed_errors():
        written(spark, table.path)

    assert tree(table.path) == before


def test_version_after_which_readers_agree_again_gets_its_checkpoint(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = story(tmp_path / "t")
    added = table.added("both", rows=4)
    table.commit([added, {"remove": {"path": "both", "dataChange": True}}])
    table.live["both"] = added["add"]

    table.remove("both")

    assert written(spark, table.path).made


@pytest.mark.parametrize("way", ["streamed", "buckets"])
def test_large_state_is_that_of_a_small_one(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    small = story(tmp_path / "small").checkpoint().add("d").remove("c")
    large = story(tmp_path / "large").checkpoint().add("d").remove("c")
    whole = written(spark, small.path)
    monkeypatch.setattr(live_adds, "SMALL_LOG_BYTES", -1)
    monkeypatch.setattr(live_adds, "BUCKET_BYTES", 1_000 if way == "buckets" else 1 << 30)

    done = written(spark, large.path)

    numbers = ("version", "actions", "adds", "tombstones", "live_bytes")
    assert [getattr(done, name) for name in numbers] == [getattr(whole, name) for name in numbers]


def test_hint_never_moves_to_an_older_version(spark: SparkSession, tmp_path: Path) -> None:
    table = story(tmp_path / "t").checkpoint().add("d")
    before = hint(table.path)

    done = written(spark, table.path, version=table.version - 3)

    assert done.made and not done.hint_moved
    assert hint(table.path) == before


def test_version_that_has_a_checkpoint_gets_no_second_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = story(tmp_path / "t").checkpoint()
    file = next(table.log.glob("*.checkpoint.parquet"))
    before = file.read_bytes()

    assert not written(spark, table.path).made
    assert file.read_bytes() == before


def test_damaged_file_of_its_name_is_not_overwritten(spark: SparkSession, tmp_path: Path) -> None:
    table = story(tmp_path / "t")
    table.write_log(f"{table.version:020}.checkpoint.parquet", "PAR1")

    with pytest.raises(CommitError, match="exists already"):
        written(spark, table.path)

    assert not (table.log / "_last_checkpoint").exists()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def halved(path: Path) -> None:
    table = pq.read_table(path)
    pq.write_table(table.slice(0, table.num_rows - 1), path)


@pytest.mark.parametrize("damage", [cut, halved])
@pytest.mark.parametrize("policy", ["classic", "v2"])
def test_damaged_copy_gets_neither_name_nor_hint(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    damage: Callable[[Path], None],
    policy: str,
) -> None:
    configuration = {"delta.checkpointPolicy": policy}
    table = story(tmp_path / "t", configuration=configuration, features=["v2Checkpoint"])
    before = sorted(path.name for path in table.log.iterdir())
    monkeypatch.setattr(whole_files, "_synced", damage)

    with pytest.raises(CommitError, match="not written correctly"):
        written(spark, table.path)

    found = [path.name for path in table.log.iterdir() if path.name != "_sidecars"]
    assert sorted(found) == before
    assert not list(table.log.glob("_sidecars/*"))


def test_state_that_the_checksum_contradicts_is_not_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = story(tmp_path / "t").checksum()
    name = f"{table.version:020}.crc"
    content = json.loads((table.log / name).read_text())
    table.write_log(name, json.dumps(content | {"numFiles": content["numFiles"] + 1}))

    with pytest.raises(ChecksumMismatchError):
        written(spark, table.path)

    assert not list(table.log.glob("*checkpoint*"))


def test_table_with_an_unknown_feature_gets_no_checkpoint(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = story(tmp_path / "t", features=["feature of 2031"])

    with pytest.raises(UnsupportedFeatureError, match="feature of 2031"):
        written(spark, table.path)


def test_v2_checkpoint_of_an_empty_table_is_readable(spark: SparkSession, tmp_path: Path) -> None:
    configuration = {"delta.checkpointPolicy": "v2"}
    table = TableBuilder(tmp_path / "t").create(
        configuration=configuration, features=["v2Checkpoint"]
    )

    done = written(spark, table.path)

    assert delta_spark.rows(spark, without_commits(table.path, done.version)) == []


def test_log_with_many_sidecars_has_every_action_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("maint_assets.commit.checkpoint.parts.PART_ROWS", 1)
    configuration = {"delta.checkpointPolicy": "v2"}
    table = story(tmp_path / "t", configuration=configuration, features=["v2Checkpoint"])
    table.checkpoint("v2-parquet", parts=2).add("d")

    done = written(spark, table.path)

    assert len(done.files) == 1 + done.adds + done.tombstones
    assert done.adds == len(DeltaTable(table.path).file_uris())


@pytest.mark.parametrize("fault", [LostAnswer, Conflict])
def test_top_file_of_which_the_answer_misleads_is_ours(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: type[FaultyStore]
) -> None:
    configuration = {"delta.checkpointPolicy": "v2"}
    table = story(tmp_path / "t", configuration=configuration, features=["v2Checkpoint"])
    fault(monkeypatch)

    done = written(spark, table.path)

    assert done.made and done.hint_moved
    assert len(list(table.log.glob("*.checkpoint.*.json"))) == 1


@pytest.mark.parametrize("policy", ["classic", "v2"])
def test_file_of_which_the_link_is_answered_wrongly_is_ours(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    configuration = {"delta.checkpointPolicy": policy}
    table = story(tmp_path / "t", configuration=configuration, features=["v2Checkpoint"])
    links = MisledLinks(monkeypatch, [FileExistsError()])

    done = written(spark, table.path)

    assert done.made and done.hint_moved and links.made == len(done.files) - (policy == "v2")


class MisledLinks:
    """A network file system that makes a link, loses its response, and returns an error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, errors: list[OSError]) -> None:
        self.link, self.errors, self.made = os.link, errors, 0
        monkeypatch.setattr(whole_files.os, "link", self._link)

    def _link(self, source: Path, target: Path) -> None:
        self.link(source, target)
        self.made += 1
        if self.errors:
            raise self.errors.pop()


@pytest.mark.parametrize(
    "error", [FileExistsError(), OSError(errno.EIO, "input/output error")], ids=["exists", "failed"]
)
def test_link_that_is_there_is_ours_whatever_was_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    (tmp_path / "made").write_bytes(b"whole")
    location = Location.of(str(tmp_path / "t"))
    MisledLinks(monkeypatch, [error])

    done = put_file_if_absent(location, "x", tmp_path / "made", check=lambda _: None)

    assert done
    assert [(path.name, path.read_bytes()) for path in (tmp_path / "t").iterdir()] == [
        ("x", b"whole")
    ]


def test_same_bytes_of_somebody_else_are_not_ours(tmp_path: Path) -> None:
    (tmp_path / "made").write_bytes(b"whole")
    (tmp_path / "x").write_bytes(b"whole")

    location = Location.of(str(tmp_path))

    assert not put_file_if_absent(location, "x", tmp_path / "made", check=lambda _: None)


def test_link_that_is_reported_as_existing_but_absent_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exists(_: Path, target: Path) -> None:
        raise FileExistsError(errno.EEXIST, "file exists", str(target))

    (tmp_path / "made").write_bytes(b"whole")
    monkeypatch.setattr(whole_files.os, "link", exists)

    with pytest.raises(OSError, match="is absent"):
        put_file_if_absent(Location.of(str(tmp_path)), "x", tmp_path / "made", check=lambda _: None)


def test_hint_that_cannot_be_written_is_reported_in_one_sentence(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> bool:
        raise OSError(errno.ENOSPC, "No space left on device")

    table = story(tmp_path / "t")
    monkeypatch.setattr(writer, "write_hint", full)

    found = r"is written, but _last_checkpoint cannot be \(.*No space left"
    with pytest.raises(CommitError, match=found):
        written(spark, table.path)

    assert len(content(table.path, "protocol")) == 1
