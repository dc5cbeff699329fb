"""Two checkpoints of one version: readers pick one of them, and do not try the other."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from maint_assets.errors import CommitError, StalePlanError
from maint_assets.log_cleanup.deletion import delete_planned
from maint_assets_tests.log_cleanup.conftest import CleaningOf
from maint_assets_tests.log_cleanup.logs import (
    daily_log,
    locations_of,
    plan_of,
    planned,
    planned_rows,
)
from maint_assets_tests.oracles import delta_spark
from maint_assets_tests.support.builder import TableBuilder
from maint_assets_tests.support.checkpoint_writing import written
from maint_assets_tests.support.edits import edit_rows

OLDER, ANCHOR = 5, 10

FORMS: dict[str, dict[str, Any]] = {
    "classic": {"kind": "classic"},
    "in parts": {"kind": "classic", "parts": 2},
    "V2": {"kind": "v2-parquet", "parts": 0},
}
PATTERNS = {
    "classic": f"{ANCHOR:020d}.checkpoint.parquet",
    "in parts": f"{ANCHOR:020d}.checkpoint.*1.*2.parquet",
    "V2": f"{ANCHOR:020d}.checkpoint.*-*.parquet",
}


def twins(path: Path, *forms: str) -> TableBuilder:
    """A daily log with checkpoints of version ANCHOR in these forms."""

    def both(table: TableBuilder) -> None:
        for form in forms:
            table.checkpoint(**FORMS[form])

    at: dict[int, Callable[[TableBuilder], Any]] = {OLDER: lambda t: t.checkpoint(), ANCHOR: both}
    features = ("v2Checkpoint",) if "V2" in forms else ()
    return daily_log(path, at=at, checksums=False, features=features)


def file_of(table: TableBuilder, form: str) -> Path:
    (found,) = table.log.glob(PATTERNS[form])
    return found


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])


def lose_adds(file: Path) -> None:
    """Empty the adds: the checkpoint can be read, but lacks files."""
    edit_rows(file, lambda row: row.update(add=None))


DAMAGES = {"truncated": truncate, "without its files": lose_adds}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(
    ("forms", "damaged"),
    [
        (("classic", "in parts"), "in parts"),
        (("classic", "in parts"), "classic"),
        (("classic", "V2"), "V2"),
        (("classic", "V2"), "classic"),
        (("in parts", "V2"), "V2"),
    ],
)
def test_a_version_with_an_unsound_checkpoint_is_no_anchor(
    tmp_path: Path, forms: tuple[str, ...], damaged: str, damage: str
) -> None:
    table = twins(tmp_path, *forms)
    DAMAGES[damage](file_of(table, damaged))

    _, found = planned(tmp_path)

    assert found.anchor_version == OLDER
    assert any(str(ANCHOR) in fault for fault in found.rejected)


@pytest.mark.parametrize("forms", [("classic", "in parts"), ("classic", "V2"), ("in parts", "V2")])
def test_a_version_with_sound_checkpoints_is_the_anchor(
    tmp_path: Path, forms: tuple[str, ...]
) -> None:
    twins(tmp_path, *forms)

    _, found = planned(tmp_path)

    assert (found.anchor_version, found.rejected) == (ANCHOR, [])


@pytest.mark.parametrize("damaged", ["classic", "in parts"])
def test_a_checkpoint_that_broke_since_the_plan_stops_the_deletion(
    tmp_path: Path, damaged: str
) -> None:
    table, ledger = twins(tmp_path / "t", "classic", "in parts"), tmp_path / "ledger"
    rows, found = planned_rows(table.path)
    truncate(file_of(table, damaged))
    before = set(table.log.iterdir())
    ledger.mkdir()
    plan = plan_of(table.path, rows.num_rows, anchor=ANCHOR)

    with pytest.raises(StalePlanError, match="cannot begin with checkpoint 10"):
        delete_planned(rows.to_batches(), plan, locations_of(plan, ledger))

    assert found.anchor_version == ANCHOR
    assert set(table.log.iterdir()) == before


@pytest.mark.parametrize(("forms", "preferred"), [(("classic", "in parts"), "in parts"),
                                                  (("classic", "V2"), "V2")])  # fmt: skip
def test_readers_read_what_a_cleanup_leaves(
    spark: SparkSession,
    tmp_path: Path,
    cleaning_of: CleaningOf,
    forms: tuple[str, ...],
    preferred: str,
) -> None:
    """delta-spark falls back to an older version, but not to the sound one of two checkpoints."""
    table = twins(tmp_path / "t", *forms)
    truncate(file_of(table, preferred))
    rows = delta_spark.rows(spark, table.path)

    done = cleaning_of(table.path).clean()

    assert done.done is not None
    assert done.done.earliest_version == OLDER
    assert delta_spark.rows(spark, table.path) == rows
    (table.log / f"{OLDER:020d}.checkpoint.parquet").unlink()
    for version in range(ANCHOR):
        (table.log / f"{version:020d}.json").unlink(missing_ok=True)
    with pytest.raises(Exception, match="Encountered error while reading file"):
        delta_spark.rows(spark, table.path)


@pytest.mark.parametrize("forms", [("in parts",), ("classic", "in parts"), ("V2",)])
def test_no_checkpoint_is_written_beside_a_broken_one_that_readers_prefer(
    spark: SparkSession, tmp_path: Path, forms: tuple[str, ...]
) -> None:
    table = twins(tmp_path / "t", *forms)
    damaged = file_of(table, forms[-1])
    truncate(damaged)
    for version in range(ANCHOR + 1, table.version + 1):
        (table.log / f"{version:020d}.json").unlink()
    before = set(table.log.iterdir())

    with pytest.raises(CommitError, match=rf"{damaged.name} exists already and cannot be read"):
        written(spark, table.path)

    assert set(table.log.iterdir()) == before
