"""The high-water mark of row ids is found wherever the log contains it."""

from pathlib import Path

import pytest

from maint_assets.commit.rewrite.row_ids import row_id_high_water_mark
from maint_assets.errors import CorruptLogError
from maint_assets_tests.support.builder import Action, TableBuilder
from maint_assets_tests.support.rewriting import head_of

FEATURES = ["rowTracking", "domainMetadata", "v2Checkpoint"]


def domain(text: str, *, name: str = "delta.rowTracking", removed: bool = False) -> Action:
    return {"domainMetadata": {"domain": name, "configuration": text, "removed": removed}}


def marked(path: Path, mark: int) -> TableBuilder:
    other = domain('{"rowIdHighWaterMark":99}', name="mine")
    table = TableBuilder(path).create(features=FEATURES)
    return table.commit([domain(f'{{"rowIdHighWaterMark":{mark}}}'), other]).add("a")


def test_table_without_a_mark_has_no_row_id(tmp_path: Path) -> None:
    TableBuilder(tmp_path).create().add("a")

    assert row_id_high_water_mark(head_of(tmp_path)) == -1


@pytest.mark.parametrize("kind", ["none", "classic", "v2-json", "v2-parquet"])
def test_mark_is_read_from_commits_and_checkpoints(tmp_path: Path, kind: str) -> None:
    table = marked(tmp_path, 5)
    if kind != "none":
        table.checkpoint(kind)
        for commit in (table.log / f"{0:020}.json", table.log / f"{1:020}.json"):
            commit.unlink()
    table.add("b")

    assert row_id_high_water_mark(head_of(tmp_path)) == 5


def test_newer_mark_counts_more_than_the_checkpoints(tmp_path: Path) -> None:
    marked(tmp_path, 5).checkpoint().commit([domain('{"rowIdHighWaterMark":8}')])

    assert row_id_high_water_mark(head_of(tmp_path)) == 8


def test_removed_mark_is_none(tmp_path: Path) -> None:
    marked(tmp_path, 5).commit([domain("", removed=True)])

    assert row_id_high_water_mark(head_of(tmp_path)) == -1


def test_mark_that_cannot_be_read_is_not_guessed(tmp_path: Path) -> None:
    marked(tmp_path, 5).commit([domain("{}")])

    with pytest.raises(CorruptLogError, match="without a rowIdHighWaterMark"):
        row_id_high_water_mark(head_of(tmp_path))
