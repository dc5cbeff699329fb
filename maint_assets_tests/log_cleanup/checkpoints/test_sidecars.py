"""Sidecars that a kept checkpoint names are never deleted (PROTOCOL, "Metadata Cleanup" 5)."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from maint_assets.errors import StalePlanError
from maint_assets.log_cleanup import deletion
from maint_assets.log_cleanup.deletion import delete_planned
from maint_assets_tests.log_cleanup.conftest import CleaningOf
from maint_assets_tests.log_cleanup.logs import (
    locations_of,
    plan_of,
    planned,
    planned_rows,
    sidecar_log,
)
from maint_assets_tests.oracles import delta_spark
from maint_assets_tests.support.builder import TableBuilder

STRAY = "_sidecars/00000000-0000-0000-0000-000000000000.parquet"


def _v2_log(path: Path, kind: str = "v2-json") -> TableBuilder:
    return sidecar_log(path, 3, 6, 10, 18, kind=kind)


def _sidecars(builder: TableBuilder) -> set[str]:
    return {f"_sidecars/{file.name}" for file in (builder.log / "_sidecars").iterdir()}


def _of(builder: TableBuilder, version: int) -> set[str]:
    """The sidecars written with a version: those as old as its commit."""
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


def test_a_sidecar_with_other_actions_makes_no_anchor(tmp_path: Path):
    """PROTOCOL allows file actions only; delta-spark does not read any others."""
    builder = _v2_log(tmp_path)
    sidecar = builder.log / min(_of(builder, 10))
    (top,) = builder.log.glob(f"{10:020d}.checkpoint.*.json")
    rows, size = pq.read_table(sidecar), sidecar.stat().st_size
    txn = [{"appId": "app", "version": 1}, *[None] * (rows.num_rows - 1)]
    pq.write_table(rows.append_column("txn", pa.array(txn)), sidecar)
    top.write_text(top.read_text().replace(f": {size}", f": {sidecar.stat().st_size}"))

    _, found = planned(tmp_path)

    assert found.anchor_version == 6
    assert "it is a sidecar, and holds txn actions" in found.rejected[0]


def test_a_sidecar_that_a_checkpoint_names_since_the_last_batch_stays(tmp_path: Path):
    builder = sidecar_log(tmp_path / "t", 3, 6, 10)
    (old,) = builder.log.glob(f"{3:020d}.checkpoint.*.json")
    text = old.read_text().replace('"version": 3', '"version": 20')
    rows, _ = planned_rows(tmp_path / "t")
    plan = plan_of(tmp_path / "t", rows.num_rows, anchor=10)
    (tmp_path / "ledger").mkdir()
    at = rows["kind"].to_pylist().index("sidecar") + 1
    left = [name for name in rows["path"].to_pylist()[at:] if name.rpartition("/")[2] in text]

    def batches() -> Iterator[pa.RecordBatch]:
        yield from rows.slice(0, at).to_batches()
        (builder.log / old.name.replace(f"{3:020d}", f"{20:020d}")).write_text(text)
        yield from rows.slice(at).to_batches()

    done = delete_planned(batches(), plan, locations_of(plan, tmp_path / "ledger"))

    assert len(left) >= 1
    assert all((tmp_path / "t" / path).exists() for path in left)
    assert done.outcomes["sidecar"]["skipped"] == len(left)


def _nested(builder: TableBuilder) -> None:
    """Move the sidecars of checkpoint 10 into a directory below that of all others."""
    (top,) = builder.log.glob(f"{10:020d}.checkpoint.*.json")
    (builder.log / "_sidecars/sub").mkdir()
    for name in _of(builder, 10):
        (builder.log / name).rename(builder.log / name.replace("/", "/sub/"))
    top.write_text(top.read_text().replace('"path": "', '"path": "sub/'))


def _lost(builder: TableBuilder) -> None:
    (name,) = list((builder.log / "_sidecars/sub").iterdir())[:1]
    name.unlink()


def _swapped(builder: TableBuilder) -> None:
    name = next((builder.log / "_sidecars/sub").iterdir())
    name.write_bytes(name.read_bytes()[::-1])


@pytest.mark.parametrize("meanwhile", [_lost, _swapped])
def test_a_nested_sidecar_that_is_lost_between_two_batches_stops_the_deletion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[TableBuilder], None]
):
    builder = _v2_log(tmp_path / "t")
    _nested(builder)
    rows, found = planned_rows(tmp_path / "t")
    plan = plan_of(tmp_path / "t", rows.num_rows, anchor=found.anchor_version or 0)
    (tmp_path / "ledger").mkdir()
    monkeypatch.setattr(deletion, "BATCH_PATHS", 4)
    batches = rows.to_batches(max_chunksize=4)

    def loses() -> Iterator[pa.RecordBatch]:
        yield batches[0]
        meanwhile(builder)
        yield from batches[1:]

    with pytest.raises(StalePlanError, match="is gone or was changed"):
        delete_planned(loses(), plan, locations_of(plan, tmp_path / "ledger"))

    assert found.anchor_version == 10
    assert not (builder.log / f"{1:020d}.json").exists()
    assert (builder.log / f"{2:020d}.json").exists()


@pytest.mark.parametrize("nested", [False, True])
def test_sidecars_named_by_uris_or_nested_are_kept_by_an_execution(
    tmp_path: Path, spark: SparkSession, cleaning_of: CleaningOf, nested: bool
):
    builder = _v2_log(tmp_path)
    if nested:
        _nested(builder)
    (top,) = builder.log.glob(f"{10:020d}.checkpoint.*.json")
    whole = f'"path": "{(builder.log / "_sidecars").as_uri()}/'
    top.write_text(top.read_text().replace('"path": "', whole))
    rows = {version: delta_spark.rows(spark, tmp_path, version) for version in (10, 14, 20)}

    report = cleaning_of(tmp_path).clean()

    assert report.done and report.done.earliest_version == 10
    assert not report.planned.rejected
    assert {version: delta_spark.rows(spark, tmp_path, version) for version in rows} == rows
