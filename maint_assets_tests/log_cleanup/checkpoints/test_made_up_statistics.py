"""Statistics in a checkpoint that no commit contains are refused: no writer makes any up."""

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from maint_assets.log_cleanup.checkpoints.hashes import contradicting, statistics
from maint_assets.log_cleanup.checkpoints.soundness import Soundness, soundness_of_each
from maint_assets.log_cleanup.log_directory import log_directory
from maint_assets.storage.location import Location
from maint_assets_tests.support.builder import TableBuilder
from maint_assets_tests.support.checkpoint_writing import log, written
from maint_assets_tests.support.edits import edit_rows

FIELDS = {"id": "long", "name": "string", "x": "double", "t": "timestamp"}
WRITTEN: dict[str, Any] = {
    "null": None,
    "empty text": "",
    "no field": "{}",
    "rows only": '{"numRecords":2}',
    "no rows": '{"minValues":{"id":1},"maxValues":{"id":2},"nullCount":{}}',
    "empty bounds": '{"numRecords":2,"minValues":{},"maxValues":{},"nullCount":{}}',
    "bounds of one": '{"numRecords":2,"minValues":{"id":1},"maxValues":{"id":2}}',
    "null bounds": '{"numRecords":2,"minValues":{"id":null},"maxValues":null}',
    "no JSON": '{"numRecords":2,"minValues":{"x":NaN}}',
    "text of null": "null",
    "array": "[]",
}
BY_DELTA = {
    "delta-spark": {},
    "delta-spark, parsed only": {"delta.checkpoint.writeStatsAsJson": "false"},
    "delta-spark, texts only": {"delta.checkpoint.writeStatsAsStruct": "false"},
}

RARER = ["delta-spark, parsed only", "delta-spark, texts only", "delta-rs"]


def soundnesses(path: Path) -> list[Soundness]:
    found = log_directory(Location.of(str(path)))
    return [*soundness_of_each(found, found.checkpoints).values()]


@pytest.mark.oracle
@pytest.mark.parametrize(
    "writer",
    ["delta-spark", "ours", *(pytest.param(each, marks=pytest.mark.long) for each in RARER)],
)
def test_no_writer_of_checkpoints_makes_statistics_up(
    spark: SparkSession, tmp_path: Path, writer: str
):
    for number, stats in enumerate(WRITTEN.values()):
        if writer == "delta-rs" and stats in {"", "[]"}:
            continue
        path = tmp_path / str(number)
        table = TableBuilder(path).create(fields=FIELDS, configuration=BY_DELTA.get(writer, {}))
        table.add("a", stats=stats).add("b", stats=stats)
        if writer == "delta-rs":
            DeltaTable(path).create_checkpoint()
        elif writer == "ours":
            written(spark, path)
        else:
            log(spark, path).checkpoint()

        assert soundnesses(path) == [Soundness()], stats


MADE_UP = {
    "rows": '{"numRecords":2}',
    "bounds": '{"minValues":{"id":1}}',
}


@pytest.mark.parametrize("what", MADE_UP)
@pytest.mark.parametrize("stats", [None, "{}", "null"])
def test_statistics_that_no_commit_contains_are_a_fault(
    tmp_path: Path, what: str, stats: str | None
):
    table = TableBuilder(tmp_path).create().add("a", stats=stats).checkpoint()
    (file,) = table.log.glob("*.checkpoint.parquet")

    def made_up(row: dict[str, Any]) -> None:
        if row["add"]:
            row["add"]["stats"] = MADE_UP[what]

    edit_rows(file, made_up)

    (found,) = soundnesses(tmp_path)
    assert f"other {'numbers of rows' if what == 'rows' else what} in the statistics of 1" in (
        found.fault or ""
    )


@pytest.mark.parametrize(
    ("found", "made", "is_other"),
    [
        (None, '{"minValues":{"id":1}}', False),
        ('{"minValues":{"id":1}}', None, True),
        ('{"minValues":{"id":1}}', "no JSON", False),
        ('{"minValues":{"id":1}}', '{"minValues":{"id":1.0,"x":null}}', False),
        ('{"minValues":{"id":1}}', '{"minValues":{"id":2}}', True),
    ],
)
def test_bounds_contradict_where_both_have_them_or_no_commit_has(
    found: str | None, made: str | None, is_other: bool
):
    of_checkpoint = statistics([found], of_commit=False)[1]
    of_commit = statistics([made], of_commit=True)[1]

    assert contradicting(of_checkpoint, of_commit).tolist() == [is_other]


@pytest.mark.parametrize(("made", "is_other"), [(None, True), ('{"minValues":{"id":2}}', False)])
def test_bounds_that_were_parsed_contradict_only_where_no_commit_has_any(
    made: str | None, is_other: bool
):
    parsed = statistics(['{"minValues":{"id":1}}'], of_commit=False, are_texts=False)[1]

    assert contradicting(parsed, statistics([made], of_commit=True)[1]).tolist() == [is_other]


def test_a_number_of_rows_is_distinguished_from_none_at_all():
    rows, _ = statistics([None, '{"numRecords":0}', '{"numRecords":1}'], of_commit=True)
    found, _ = statistics([json.dumps({"numRecords": at}) for at in range(3)], of_commit=False)

    assert contradicting(found, rows).tolist() == [True, True, True]
