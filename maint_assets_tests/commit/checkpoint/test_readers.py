"""Our checkpoints against Delta's own: the same hint, and readers read the same from both.

deltalake (1.6.6) is built on delta-kernel-rs and stands for Kernel here. It is compared with
the commits, as it found no statistics in Delta's own V2 checkpoint without texts.
"""

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from maint_assets.commit import whole_files
from maint_assets_tests.oracles import delta_spark
from maint_assets_tests.oracles.delta_spark import table as quoted
from maint_assets_tests.support.builder import TableBuilder
from maint_assets_tests.support.checkpoint_writing import (
    compared,
    content,
    head_of,
    hint,
    log,
    state,
    story,
    without_commits,
    written,
)
from maint_assets_tests.support.killing import MODULE

PARTITIONS = "i INT, d DATE, b BOOLEAN, c DECIMAL(9,2), s STRING"
STATEMENTS = (
    f"CREATE TABLE {{t}} (id BIGINT, name STRING, n STRUCT<x: DOUBLE, at TIMESTAMP>, {PARTITIONS}) "
    "USING delta PARTITIONED BY (i, d, b, c, s) TBLPROPERTIES ("
    "'delta.enableDeletionVectors' = 'true', 'delta.enableRowTracking' = 'true', "
    "'delta.columnMapping.mode' = 'name', 'delta.feature.v2Checkpoint' = 'supported', "
    "'delta.checkpointInterval' = '1000')",
    "INSERT INTO {t} SELECT id, concat('n', id), struct(id / 3, TIMESTAMP'2026-02-03 04:05:06.7Z'),"
    " -7, DATE'1582-10-04', true, -1.5, 'a b/é%=' FROM range(0, 20, 1, 2)",
    "INSERT INTO {t} SELECT id, null, null, null, null, null, null, null FROM range(20, 22, 1, 1)",
    "ALTER TABLE {t} RENAME COLUMN name TO `the name`",
    "DELETE FROM {t} WHERE id = 3",
    "DELETE FROM {t} WHERE id >= 20",
)
STATS = "delta.checkpoint.writeStatsAs"
FORMS = {
    f"{policy}, {'text' if text else 'no text'}, {'parsed' if struct else 'not parsed'}": {
        "delta.checkpointPolicy": policy,
        f"{STATS}Json": str(text).lower(),
        f"{STATS}Struct": str(struct).lower(),
    }
    for policy in ("classic", "v2")
    for text in (True, False)
    for struct in (True, False)
}
EACH_TIME = {"v2, no text, parsed"}
"""What CI runs; the others run in ``make stories``."""


@pytest.fixture(scope="module")
def everything(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Column mapping, deletion vectors, row tracking (a domain), partitions of all types, a txn."""
    path = tmp_path_factory.mktemp("everything") / "t"
    for statement in STATEMENTS:
        spark.sql(statement.format(t=quoted(path))).collect()
    return path


def twins(spark: SparkSession, table: Path, folder: Path, properties: dict[str, str]) -> list[Path]:
    """Two copies of a table with these properties: one with our checkpoint, one with Delta's."""
    ours = shutil.copytree(table, folder / "ours")
    stored = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    spark.sql(f"ALTER TABLE {quoted(ours)} SET TBLPROPERTIES ({stored})").collect()
    theirs = shutil.copytree(ours, folder / "theirs")
    written(spark, ours)
    log(spark, theirs).checkpoint()
    return [ours, theirs]


@pytest.mark.parametrize(
    "form", [name if name in EACH_TIME else pytest.param(name, marks=pytest.mark.long)
             for name in FORMS],
)  # fmt: skip
def test_readers_find_in_ours_what_they_find_in_deltas_own(
    spark: SparkSession, everything: Path, tmp_path: Path, form: str
) -> None:
    pair = twins(spark, everything, tmp_path, FORMS[form])
    version = head_of(pair[0]).version

    ours, theirs = (without_commits(path, version) for path in pair)

    assert compared(state(spark, ours)) == compared(state(spark, theirs))
    assert repr(delta_spark.rows(spark, ours)) == repr(delta_spark.rows(spark, everything))
    stats = "true" in FORMS[form].values()
    assert found_by_kernel(ours, stats=stats) == found_by_kernel(everything, stats=stats)
    found = spark.read.format("delta").load(str(ours)).where("id < 2 and d = '1582-10-04'")
    assert found.count() == 2


def found_by_kernel(path: Path, *, stats: bool) -> list[str]:
    """The live files with partition values and, with ``stats``, statistics; one line per file."""
    rows = DeltaTable(path).get_add_actions(flatten=True)
    about = ("min.", "max.", "null_count.", "num_records")
    names = sorted(name for name in rows.schema.names if stats or not name.startswith(about))
    return sorted(repr([row[name] for name in names]) for row in rows.to_struct_array().to_pylist())


def test_parsed_values_are_deltas_own(
    spark: SparkSession, everything: Path, tmp_path: Path
) -> None:
    pair = twins(spark, everything, tmp_path, FORMS["classic, text, parsed"])

    ours, theirs = (adds(spark, path) for path in pair)

    assert ours == theirs
    assert all(row["stats_parsed"] and row["partitionValues_parsed"] for row in ours)


def test_parsed_values_of_odd_names_are_deltas_own(spark: SparkSession, tmp_path: Path) -> None:
    names = ["id", 'Ä"', "列\\"]
    stats = {"numRecords": 1} | {
        key: {name: at for at, name in enumerate(names, start)}
        for key, start in (("minValues", 1), ("maxValues", 5), ("nullCount", 0))
    }
    table = TableBuilder(tmp_path / "t").create(fields=dict.fromkeys(names, "long"))
    table.add("a", rows=[dict.fromkeys(names, 1)], stats=json.dumps(stats))
    pair = [table.path, shutil.copytree(table.path, tmp_path / "theirs")]
    written(spark, pair[0])
    log(spark, pair[1]).checkpoint()

    ours, theirs = (adds(spark, path) for path in pair)

    assert [row["stats_parsed"] for row in ours] == [stats]
    assert ours == theirs


def adds(spark: SparkSession, path: Path) -> list[dict[str, Any]]:
    """The adds of a table's single-file checkpoint, as Spark reads them."""
    file = next((path / "_delta_log").glob("0*.checkpoint.parquet"))
    rows = spark.read.parquet(str(file)).where("add is not null").collect()
    return sorted((row.add.asDict(recursive=True) for row in rows), key=lambda add: add["path"])


@pytest.mark.parametrize("policy", ["classic", "v2"])
def test_hint_is_deltas_own_and_delta_takes_it(
    spark: SparkSession, everything: Path, tmp_path: Path, policy: str
) -> None:
    pair = twins(spark, everything, tmp_path, FORMS[f"{policy}, text, parsed"])

    ours, theirs = map(hint, pair)

    assert shape(ours) == shape(theirs)
    assert [ours[name] for name in ("version", "size", "numOfAddFiles")] == [
        theirs[name] for name in ("version", "size", "numOfAddFiles")
    ]
    assert in_order(ours.get("checkpointSchema")) == in_order(theirs.get("checkpointSchema"))
    assert taken(spark, pair[0]) == ours["size"]


def shape(value: Any) -> Any:
    """The keys of objects at any depth, without values and without columns of schemas."""
    if isinstance(value, dict):
        return {key: key == "checkpointSchema" or shape(value[key]) for key in value}
    return sorted(map(repr, map(shape, value))) if isinstance(value, list) else type(value)


def in_order(schema: Any) -> Any:
    """A schema with its fields sorted by name: readers ignore their order."""
    if isinstance(schema, list):
        return sorted(map(in_order, schema), key=lambda field: field["name"])
    return {k: in_order(v) for k, v in schema.items()} if isinstance(schema, dict) else schema


def taken(spark: SparkSession, path: Path) -> int:
    """The number of actions in the hint as Delta reads it; -1 if Delta refuses it."""
    return log(spark, path).readLastCheckpointFile().get().size()


def test_hint_in_place_of_deltas_own_is_taken(
    spark: SparkSession, everything: Path, tmp_path: Path
) -> None:
    table = shutil.copytree(everything, tmp_path / "t")
    log(spark, table).checkpoint()
    assert (table / "_delta_log/._last_checkpoint.crc").exists()
    spark.sql(f"DELETE FROM {quoted(table)} WHERE id = 5").collect()

    done = written(spark, table)

    assert taken(spark, table) == done.actions


def test_sum_that_hadoop_kept_of_a_lost_checkpoint_spoils_nothing(
    spark: SparkSession, everything: Path, tmp_path: Path
) -> None:
    table = shutil.copytree(everything, tmp_path / "t")
    log(spark, table).checkpoint()
    next((table / "_delta_log").glob("0*.checkpoint.parquet")).unlink()

    done = written(spark, table)

    alone = without_commits(table, done.version)
    assert repr(delta_spark.rows(spark, alone)) == repr(delta_spark.rows(spark, everything))


def test_v2_without_files_is_readable(spark: SparkSession, tmp_path: Path) -> None:
    table = TableBuilder(tmp_path / "t").create(
        configuration={"delta.checkpointPolicy": "v2"}, features=["v2Checkpoint"]
    )

    done = written(spark, table.path)

    assert taken(spark, table.path) == done.actions
    for path in (table.path, without_commits(table.path, done.version)):
        assert delta_spark.rows(spark, path) == []
        assert DeltaTable(path).file_uris() == []
        assert DeltaTable(path).metadata().configuration == {"delta.checkpointPolicy": "v2"}


def test_what_has_expired_is_what_delta_leaves_out(spark: SparkSession, tmp_path: Path) -> None:
    configuration = {"delta.setTransactionRetentionDuration": "interval 3 days"}
    table = story(tmp_path / "t", configuration=configuration, features=["domainMetadata"])
    theirs = shutil.copytree(table.path, tmp_path / "theirs")
    clock = delta_spark.clock_at(spark, table.now_ms)
    delta_spark.log_at(spark, theirs, clock).checkpoint()

    written(spark, table.path, now_ms=table.now_ms)

    for name in ("remove", "txn", "domainMetadata", "protocol"):
        assert content(table.path, name) == content(theirs, name), name


@pytest.mark.parametrize("policy", ["classic", pytest.param("v2", marks=pytest.mark.long)])
def test_old_version_is_read_from_its_checkpoint_alone(
    spark: SparkSession, tmp_path: Path, policy: str
) -> None:
    configuration = {"delta.checkpointPolicy": policy}
    table = TableBuilder(tmp_path / "t").create(
        configuration=configuration, features=["v2Checkpoint"]
    )
    table.add("a", "b").remove("a")
    old, expected = table.version, delta_spark.rows(spark, table.path)
    table.add("c").remove("b").checkpoint()
    before, newest = hint(table.path), delta_spark.rows(spark, table.path)

    done = written(spark, table.path, version=old)

    assert (done.made, done.hint_moved, hint(table.path)) == (True, False, before)
    alone = without_commits(table.path, old)
    assert delta_spark.rows(spark, alone, old) == expected
    assert delta_spark.rows(spark, alone) == newest
    assert [Path(file).name for file in DeltaTable(alone, version=old).file_uris()] == ["b"]


def test_half_written_files_of_a_killed_writer_are_seen_by_nobody(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = story(
        tmp_path / "t",
        configuration={"delta.checkpointPolicy": "v2"},
        features=["v2Checkpoint", "domainMetadata"],
    )
    name = f".{table.version:020}.checkpoint.parquet.{table.next_uuid()}.tmp"
    for half in (name, f"_sidecars/{name}", "._last_checkpoint.tmp"):
        table.stray(f"_delta_log/{half}", content=b"PAR1")
    expected = delta_spark.rows(spark, table.path)

    done = written(spark, table.path)

    assert delta_spark.rows(spark, without_commits(table.path, done.version)) == expected
    assert len(DeltaTable(table.path).file_uris()) == done.adds == len(table.live)


def same_checkpoint(table: TableBuilder) -> None:
    table.checkpoint()


def newer_checkpoint(table: TableBuilder) -> None:
    table.add("d").checkpoint()


@pytest.mark.parametrize(
    ("meanwhile", "made"), [(same_checkpoint, False), (newer_checkpoint, True)]
)
def test_checkpoint_of_another_writer_meanwhile_wins(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    meanwhile: Callable[[TableBuilder], None],
    made: bool,
) -> None:
    table = story(tmp_path / "t")
    others: list[dict[str, Any]] = []

    def interrupted(_: Path) -> None:
        meanwhile(table)
        others.append(hint(table.path))

    monkeypatch.setattr(whole_files, "_synced", interrupted)

    done = written(spark, table.path)

    assert (done.made, done.hint_moved) == (made, False)
    assert [hint(table.path)] == others
    assert delta_spark.active_files(spark, table.path) == set(table.live)


KILLED = {
    "checkpoint copied": ("classic", True),
    "sidecars put": ("v2", True),
    "checkpoint in place": ("classic", False),
    "hint copied": ("v2", False),
}
"""Where the command is killed: the policy, and whether the next run has to write a checkpoint."""


@pytest.mark.long
@pytest.mark.parametrize("step", KILLED)
def test_what_a_killed_checkpoint_leaves_nobody_sees(
    spark: SparkSession, tmp_path: Path, step: str
) -> None:
    policy, again = KILLED[step]
    table = story(
        tmp_path / "t",
        configuration={"delta.checkpointPolicy": policy},
        features=["v2Checkpoint", "domainMetadata"],
    )
    expected = delta_spark.rows(spark, table.path)

    process = subprocess.run(
        [sys.executable, "-m", MODULE, step, "checkpoint", str(table.path)],
        capture_output=True, text=True, start_new_session=True, cwd=tmp_path, timeout=180,
        check=False,
    )  # fmt: skip

    assert process.returncode == -signal.SIGKILL, process.stderr
    assert delta_spark.rows(spark, table.path) == expected
    assert len(DeltaTable(table.path).file_uris()) == len(table.live)
    assert written(spark, table.path).made == again
    assert delta_spark.rows(spark, without_commits(table.path, table.version)) == expected
