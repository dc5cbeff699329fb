"""V2 checkpoints whose adds lack a field that PROTOCOL requires: no log begins with one."""

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from maint_assets_tests.log_cleanup.logs import commits, daily_log, planned
from maint_assets_tests.oracles import delta_spark
from maint_assets_tests.support.builder import TableBuilder
from maint_assets_tests.support.edits import Edit, edit_rows, rewrite

FIELDS = ("path", "size", "dataChange", "partitionValues", "modificationTime")

UNREADABLE = "unreadable"


def _v2_log(path: Path, *, parts: int) -> tuple[TableBuilder, Path]:
    """A log with a V2 checkpoint of version 10 in JSON, and the path of that file."""
    at = {10: lambda table: table.checkpoint("v2-json", parts=parts)}
    table = daily_log(path, at=at, versions=12, checksums=False, features=("v2Checkpoint",))
    (top,) = table.log.glob(f"{10:020d}.checkpoint.*.json")
    return table, top


def _edit_lines(top: Path, action: str, edit: Edit) -> None:
    lines = [json.loads(line) for line in top.read_text().splitlines()]
    for line in lines:
        if action in line:
            edit(line[action])
    rewrite(top, "".join(json.dumps(line) + "\n" for line in lines))


def _without(path: Path, field: str, *, parts: int) -> TableBuilder:
    table, top = _v2_log(path, parts=parts)
    if not parts:
        _edit_lines(top, "add", lambda add: add.pop(field))
        return table

    def forget(row: dict[str, Any]) -> None:
        if row["add"]:
            row["add"][field] = None

    (sidecar,) = (table.log / "_sidecars").glob("*.parquet")
    edit_rows(sidecar, forget)
    size = sidecar.stat().st_size
    _edit_lines(top, "sidecar", lambda named: named.update(sizeInBytes=size))
    return table


def _spark_rows(spark: SparkSession, path: Path) -> int | str:
    delta_spark.forget(spark)
    try:
        return spark.read.format("delta").load(str(path)).count()
    except Exception:  # noqa: BLE001  (each version fails in its own way)
        return UNREADABLE


def _rust_files(path: Path) -> int | str:
    try:
        return len(DeltaTable(str(path)).file_uris())
    except Exception:  # noqa: BLE001
        return UNREADABLE


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("parts", [0, 1], ids=["in JSON", "in a sidecar"])
def test_a_v2_checkpoint_whose_adds_lack_a_field_is_no_anchor(
    spark: SparkSession, tmp_path: Path, field: str, parts: int
) -> None:
    table = _without(tmp_path, field, parts=parts)

    names, found = planned(tmp_path)

    assert (names, found.anchor_version, found.stop_reason) == (set(), None, "anchor_invalid")
    assert field in found.rejected[0] and "add" in found.rejected[0]
    for name in commits(*range(10)):
        (table.log / name).unlink()
    # In a sidecar, both readers skip an add without a path: the files look untracked.
    lost = 1 if parts else UNREADABLE
    by_spark = {"path": lost, "partitionValues": 11}
    assert _spark_rows(spark, tmp_path) == by_spark.get(field, UNREADABLE if parts else 11)
    assert _rust_files(tmp_path) == (lost if field == "path" else UNREADABLE)


@pytest.mark.parametrize("field", ["configuration", "partitionColumns", "format"])
def test_a_v2_checkpoint_whose_metadata_lacks_a_field_is_no_anchor(
    spark: SparkSession, tmp_path: Path, field: str
) -> None:
    table, top = _v2_log(tmp_path, parts=1)
    _edit_lines(top, "metaData", lambda metadata: metadata.pop(field))

    names, found = planned(tmp_path)

    assert (names, found.anchor_version, found.stop_reason) == (set(), None, "anchor_invalid")
    assert f"metaData.{field} is missing" in found.rejected[0]
    for name in commits(*range(10)):
        (table.log / name).unlink()
    assert _rust_files(tmp_path) == UNREADABLE
