"""The code paths for large tables, forced here, give the same results as those for small ones."""

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from maint_assets.assets.stages import vacuum
from maint_assets.cli.vacuum import VacuumReport
from maint_assets.datasets import exchange, rows
from maint_assets.snapshot import replay
from maint_assets.snapshot.schemas import SNAPSHOT_SCHEMA
from maint_assets.vacuum import deletion, listing
from maint_assets.vacuum.diff import DIFF_SCHEMA
from maint_assets.vacuum.valid_files import VALID_FILES_SCHEMA
from maint_assets_tests.oracles import delta_spark
from maint_assets_tests.support.builder import TableBuilder
from maint_assets_tests.support.chain import Chain, directories, files


@pytest.fixture
def nothing_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove every threshold below which a stage takes one task; slices of three entries."""
    monkeypatch.setattr(replay, "SMALL_LOG_BYTES", 0)
    monkeypatch.setattr(replay, "BUCKET_BYTES", 3_000)
    monkeypatch.setattr(replay, "SHARE_BYTES", 1_000)
    monkeypatch.setattr(rows, "TASK_ROWS", 3)
    monkeypatch.setattr(exchange, "BUCKET_ROWS", 10)
    monkeypatch.setattr(listing, "SMALL_ENTRIES", 5)
    monkeypatch.setattr(vacuum, "SMALL_ENTRIES", 5)
    monkeypatch.setattr(listing, "SLICE_ENTRIES", 3)
    monkeypatch.setattr(deletion, "SMALL_PLAN", 0)
    monkeypatch.setattr("maint_assets.assets.stages.vacuum_deletion.SMALL_PLAN", 0)
    monkeypatch.setattr("maint_assets.assets.stages.vacuum_deletion.CHECKS_PER_TASK", 3)


def _table(path: Path, kind: str = "classic", parts: int = 2) -> TableBuilder:
    """Partitions, a checkpoint between commits, removes, deletion vectors, untracked files."""
    features = ["v2Checkpoint"] if kind != "classic" else []
    table = TableBuilder(path).at(days_ago=40).create(partition_columns=["p"], features=features)
    for value in ("a b", "é/ü", "100%"):
        table.add("1.parquet", "2.parquet", "3.parquet", partition={"p": value})
    table.remove(sorted(table.live)[0])
    table.checkpoint(kind, parts=parts)
    table.remove(sorted(table.live)[1])
    table.add("new.parquet", partition={"p": "a b"})
    for number in range(8):
        table.stray(f"deep/er/stray{number}.parquet", age_days=30)
    table.stray("fresh/stray.parquet", age_days=0).directory("empty/inner", age_days=30)
    table.age("**/*", 30)
    return table


def _planned(path: Path, workspace: Path) -> tuple[Chain, VacuumReport]:
    chain = Chain.of(path, workspace, retention="1 day", allow_short_retention=True)
    return chain, chain.plan()


SCHEMAS = {"snapshot": SNAPSHOT_SCHEMA, "valid_files": VALID_FILES_SCHEMA, "diff": DIFF_SCHEMA}


def _digests(chain: Chain) -> dict[str, str | None]:
    """The digest of the rows of each planning stage."""
    instance, store = chain.launcher.instance, chain.launcher.store
    keys = {stage: chain.launcher.key(chain.table, stage) for stage in SCHEMAS}
    return {
        stage: store.latest(instance, key)[1].digest_of_parts(SCHEMAS[stage])
        for stage, key in keys.items()
    }


@pytest.mark.parametrize(
    ("kind", "parts"), [("classic", 2), ("v2-json", 0), ("v2-json", 2), ("v2-parquet", 2)]
)
def test_large_plan_is_the_small_one(
    kind: str, parts: int, spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path = tmp_path / "t"
    _table(path, kind, parts)

    small, report = _planned(path, tmp_path / "small")
    request.getfixturevalue("nothing_is_small")
    large, again = _planned(path, tmp_path / "large")

    assert files(report) == files(again) != set()
    assert directories(report) == directories(again) != set()
    assert _digests(small) == _digests(large)
    assert None not in _digests(small).values()


def test_large_plan_is_executed_whole(
    spark: SparkSession, tmp_path: Path, nothing_is_small: None
) -> None:
    path = tmp_path / "t"
    _table(path)
    live = delta_spark.active_files(spark, path)
    chain, report = _planned(path, tmp_path / "ws")

    done = chain.execute(report).done

    assert done is not None
    assert (done.files, done.directories) == (len(files(report)), len(directories(report)))
    assert not any((path / name).exists() for name in files(report) | directories(report))
    assert live == delta_spark.active_files(spark, path) != set()
    assert all((path / name).exists() for name in live)


@pytest.mark.parametrize(
    "name", ["checkpoint-cdf-table", "checkpoint-v2-table", "simple_table_with_checkpoint"]
)
def test_large_plan_of_a_real_table_is_the_small_one(
    name: str,
    spark: SparkSession,
    shared_tables: Path,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    path = shutil.copytree(shared_tables / name, tmp_path / name)

    small, _ = _planned(path, tmp_path / "small")
    request.getfixturevalue("nothing_is_small")
    large, _ = _planned(path, tmp_path / "large")

    before, after = _digests(small), _digests(large)
    assert (before["snapshot"], before["valid_files"]) == (after["snapshot"], after["valid_files"])
