"""Sidecars: those that a checkpoint which stays names never go (PROTOCOL, "Metadata Cleanup" 5)."""

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from maint_assets_tests.builder import TableBuilder
from maint_assets_tests.log_cleanup.logs import daily_log, planned
from maint_assets_tests.oracles import delta_spark

STRAY = "_sidecars/00000000-0000-0000-0000-000000000000.parquet"


def _v2_log(path: Path, kind: str = "v2-json") -> TableBuilder:
    at = {version: lambda table: table.checkpoint(kind, parts=2) for version in (3, 6, 10, 18)}
    return daily_log(path, at=at, features=("v2Checkpoint",))


def _sidecars(builder: TableBuilder) -> set[str]:
    return {f"_sidecars/{file.name}" for file in (builder.log / "_sidecars").iterdir()}


def _of(builder: TableBuilder, version: int) -> set[str]:
    """The sidecars written with a version: as old as its commit."""
    at_ms = builder.mtime_ms(f"_delta_log/{version:020d}.json")
    found = ((name, builder.mtime_ms(f"_delta_log/{name}")) for name in _sidecars(builder))
    return {name for name, modified_ms in found if 0 <= modified_ms - at_ms < 60_000}


@pytest.mark.parametrize("kind", ["v2-json", "v2-parquet"])
def test_sidecars_of_checkpoints_that_go_go_with_them(tmp_path: Path, kind: str):
    builder = _v2_log(tmp_path, kind)

    names, found = planned(tmp_path)

    assert found.anchor_version == 10
    assert names & _sidecars(builder) == _of(builder, 3) | _of(builder, 6)
    assert len(_of(builder, 3)) == 2


def test_a_sidecar_may_be_named_by_its_whole_uri(spark: SparkSession, tmp_path: Path):
    """PROTOCOL allows it, though no writer does it; delta-spark reads it too."""
    builder = _v2_log(tmp_path)
    files = delta_spark.active_files(spark, tmp_path)
    whole = f'"path": "{(builder.log / "_sidecars").as_uri()}/'
    for top in builder.log.glob("*.checkpoint.*.json"):
        named = top.read_text().replace('"path": "', whole)
        assert named.count(whole) == 2
        top.write_text(named)

    names, found = planned(tmp_path)

    assert (found.anchor_version, found.rejected) == (10, [])
    assert names & _sidecars(builder) == _of(builder, 3) | _of(builder, 6)
    for name in names:
        (builder.log / name).unlink()
    (builder.log / "_last_checkpoint").unlink(missing_ok=True)
    assert delta_spark.active_files(spark, tmp_path) == files


def test_a_sidecar_elsewhere_makes_no_anchor(tmp_path: Path):
    builder = _v2_log(tmp_path)
    (top,) = builder.log.glob(f"{10:020d}.checkpoint.*.json")
    top.write_text(top.read_text().replace('"path": "', '"path": "file:///elsewhere/'))

    _, found = planned(tmp_path)

    assert found.anchor_version == 6
    assert "is not in _delta_log/_sidecars" in found.rejected[0]


def test_a_shared_sidecar_stays(tmp_path: Path):
    builder = _v2_log(tmp_path)
    (old,) = builder.log.glob(f"{3:020d}.checkpoint.*.json")
    (new,) = builder.log.glob(f"{18:020d}.checkpoint.*.json")
    shared = [line for line in old.read_text().splitlines() if '"sidecar"' in line]
    new.write_text(new.read_text() + "\n".join(shared) + "\n")

    names, _ = planned(tmp_path)

    assert names & _sidecars(builder) == _of(builder, 6)


def test_an_old_sidecar_that_nobody_names_goes_a_young_one_stays(tmp_path: Path):
    builder = _v2_log(tmp_path)
    young = STRAY.replace("0000.p", "0001.p")
    for name, days in ((STRAY, 30.0), (young, 0.9)):
        builder.write_log(name, "x").age(f"_delta_log/{name}", days)

    names, _ = planned(tmp_path)

    assert STRAY in names
    assert young not in names


def test_even_with_no_retention_a_sidecar_of_less_than_a_day_stays(tmp_path: Path):
    builder = _v2_log(tmp_path)
    builder.write_log(STRAY, "x").age(f"_delta_log/{STRAY}", 0.9)

    assert STRAY not in planned(tmp_path, days=0, granularity="minute")[0]


def test_no_sidecar_goes_when_a_checkpoint_that_stays_cannot_be_read(tmp_path: Path):
    builder = _v2_log(tmp_path)
    (newest,) = builder.log.glob(f"{18:020d}.checkpoint.*.json")
    newest.write_text('{"checkpointMetadata":{"version":18}}\n{"sidecar":{"pa')

    names, found = planned(tmp_path)

    assert not names & _sidecars(builder)
    assert "no sidecar is planned" in found.notes[0]
    assert found.anchor_version == 10


def test_an_anchor_without_one_of_its_sidecars_is_passed_over(tmp_path: Path):
    builder = _v2_log(tmp_path)
    lost = min(_of(builder, 10))
    (builder.log / lost).unlink()

    names, found = planned(tmp_path)

    assert found.anchor_version == 6
    assert "is missing" in found.rejected[0]
    assert names & _sidecars(builder) == _of(builder, 3)


def test_an_anchor_with_a_sidecar_of_another_size_is_passed_over(tmp_path: Path):
    builder = _v2_log(tmp_path)
    changed = builder.log / min(_of(builder, 10))
    changed.write_bytes(changed.read_bytes() + b"x")

    assert planned(tmp_path)[1].anchor_version == 6


def test_a_log_without_a_directory_of_sidecars_is_no_fault(tmp_path: Path):
    builder = _v2_log(tmp_path)
    shutil.rmtree(builder.log / "_sidecars")

    assert planned(tmp_path)[1].stop_reason == "anchor_invalid"
