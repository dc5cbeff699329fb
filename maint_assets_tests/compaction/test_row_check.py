"""Rows are compared before the commit: in which bins, and what happens on a difference."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from maint_assets.compaction import row_check
from maint_assets.compaction.engines import arrow, spark_output
from maint_assets.compaction.engines.spark_output import SparkFile, adopt
from maint_assets.compaction.engines.spark_rows import SparkBin
from maint_assets.compaction.row_check import RowCheck
from maint_assets.compaction.verifying import same_rows
from maint_assets.compaction.verifying.row_hash import RowHash
from maint_assets.compaction.writing.target import rewriting
from maint_assets_tests.compaction import faults
from maint_assets_tests.compaction.conftest import Compacting
from maint_assets_tests.support.builder import TableBuilder
from maint_assets_tests.support.rewriting import head_of, live

Inject = Callable[[str], object]


@pytest.fixture
def inject() -> Iterator[Inject]:
    """Inject faults into the writer of this process; they are removed after the test."""
    whole = arrow._output
    yield faults.inject
    arrow._output = whole


def rewritten(path: Path, check: RowCheck) -> list[dict[str, Any]]:
    """The ledger after the table's live files were rewritten into one in this process."""
    adds = [msgspec.json.encode(add).decode() for add in live(path).values()]
    columns = {
        "bin": ["b"] * len(adds),
        "rows": [1] * len(adds),
        "live_bytes": [1] * len(adds),
        "reason": ["small"] * len(adds),
        "add": adds,
    }
    how = replace(rewriting(head_of(path)), row_check=check)
    batches = arrow.rewrite_bins([pa.RecordBatch.from_pydict(columns)], how)
    return [row for batch in batches for row in batch.to_pylist()]


def files(path: Path) -> set[str]:
    return {str(file.relative_to(path)) for file in path.rglob("*.parquet")}


def test_of_sampled_bins_about_one_in_twenty_is_compared_and_always_the_same() -> None:
    names = [f"{number:016x}" for number in range(4_000)]
    taken = [name for name in names if RowCheck("sampled", "plan").takes(name)]

    assert 120 < len(taken) < 280
    assert taken == [name for name in names if RowCheck("sampled", "plan").takes(name)]
    assert taken != [name for name in names if RowCheck("sampled", "other").takes(name)]


def test_the_first_bin_is_always_sampled() -> None:
    untaken = next(name for name in "abcdefgh" if not RowCheck("sampled", "plan").takes(name))

    assert RowCheck("sampled", "plan", untaken).takes(untaken)
    assert not RowCheck("off", "plan", untaken).takes(untaken)
    assert all(RowCheck("full", "plan").takes(name) for name in "abcdefgh")


@pytest.mark.parametrize("fault", [*faults.FAULTS, "truncated"])
def test_a_file_with_other_rows_fails_its_bin_and_is_removed(
    fault: str, tmp_path: Path, inject: Inject
) -> None:
    table = TableBuilder(tmp_path).create().add("a").add("b", rows=3)
    before = files(tmp_path)
    inject(fault)

    found = rewritten(table.path, RowCheck("full"))

    assert [(row["role"], row["state"], row["verified"]) for row in found] == [
        ("input", "failed", False)
    ] * 2
    reason = "cannot be read again" if fault == "truncated" else "holds other rows than its inputs"
    assert reason in found[0]["reason"] and "nothing was committed" in found[0]["reason"]
    assert files(tmp_path) == before


def test_an_unexpected_error_fails_its_bin_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = TableBuilder(tmp_path).create().add("a")
    before = files(tmp_path)

    def broken(*_: Any) -> Any:
        raise TypeError("odd")

    monkeypatch.setattr(arrow, "refuse_other_content", broken)
    monkeypatch.setattr(spark_output, "_output", broken)
    (row,) = rewritten(table.path, RowCheck("full"))
    of_spark = SparkFile(SparkBin("b", list(live(tmp_path).values()), [2]), "")
    adopted = adopt(of_spark, rewriting(head_of(tmp_path))).to_pylist()

    reason = "it failed unexpectedly (TypeError: odd); report this as a bug"
    found = [(each["state"], each["reason"]) for each in (row, *adopted)]
    assert found == [("failed", reason)] * 2
    assert files(tmp_path) == before


@pytest.mark.parametrize(("fault", "most"), [(None, 4), ("changed", 1), ("with_another_column", 1)])
def test_of_a_sampled_bin_the_first_rows_are_compared(
    fault: str | None,
    most: int,
    tmp_path: Path,
    inject: Inject,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(row_check, "SAMPLED_ROWS", most)
    table = TableBuilder(tmp_path).create().add("a").add("b", rows=3)
    if fault is not None:
        inject(fault)

    found = rewritten(table.path, RowCheck("sampled", first="b"))

    expected = ("failed", False) if fault else ("written", True)
    assert {(row["state"], row["verified"]) for row in found} == {expected}


@pytest.mark.parametrize(
    ("limits", "hashed"),
    [((16_384, 1 << 24), [10, 10]), ((3, 1 << 24), [4, 4, 2, 10]), ((16_384, 1), [2] * 5 + [10])],
)
def test_rows_of_small_files_are_hashed_together_up_to_a_bound(
    limits: tuple[int, int],
    hashed: list[int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = TableBuilder(tmp_path).create().add(*"abcde")
    monkeypatch.setattr(same_rows, "_HELD_ROWS", limits[0])
    monkeypatch.setattr(same_rows, "_HELD_BYTES", limits[1])
    found: list[int] = []
    add = RowHash.add

    def counted(self: RowHash, batch: pa.RecordBatch) -> None:
        found.append(batch.num_rows)
        add(self, batch)

    monkeypatch.setattr(RowHash, "add", counted)

    assert {row["state"] for row in rewritten(table.path, RowCheck("full"))} == {"written"}
    assert found == hashed


def test_rows_behind_the_sample_are_not_compared(
    tmp_path: Path, inject: Inject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_check, "SAMPLED_ROWS", 4)
    table = TableBuilder(tmp_path).create().add("a").add("b", rows=3)
    inject("last_changed")

    assert {row["state"] for row in rewritten(table.path, RowCheck("sampled", first="b"))} == {
        "written"
    }


def test_nothing_else_sees_that_rows_have_other_values(tmp_path: Path, inject: Inject) -> None:
    table = TableBuilder(tmp_path).create().add("a").add("b", rows=3)
    inject("swapped")

    found = rewritten(table.path, RowCheck("off"))

    assert [row["state"] for row in found] == ["written"] * 3
    assert not any(row["verified"] for row in found)


def test_equal_rows_are_reported_for_each_file(tmp_path: Path) -> None:
    table = TableBuilder(tmp_path).create(features=["deletionVectors"])
    table.add("a", rows=9).add("b").delete_rows("a", 0, 5)

    found = rewritten(table.path, RowCheck("full"))

    assert [(row["role"], row["state"], row["verified"]) for row in found] == [
        ("input", "written", True),
        ("input", "written", True),
        ("output", "written", True),
    ]


def test_a_bin_of_which_no_row_lives_is_compared_too(
    tmp_path: Path, compacting: Compacting
) -> None:
    table = TableBuilder(tmp_path).create(features=["deletionVectors"])
    table.add("a.parquet").delete_rows("a.parquet", 0, 1)

    done = compacting(tmp_path, verify_rows="full").compact().done

    assert done is not None
    assert (done.bins, done.files_added, done.verified_bins) == (1, 0, 1)


@pytest.mark.parametrize("extent", ["off", "sampled", "full"])
def test_a_run_compares_and_reports_the_requested_extent(
    extent: Any, tmp_path: Path, compacting: Compacting
) -> None:
    """Three bins in separate commits: the sample is the same for all of them."""
    table = TableBuilder(tmp_path).create(partition_columns=["day"])
    for day in "123":
        table.add("a", "b", partition={"day": day})

    report = compacting(tmp_path, verify_rows=extent, max_bytes_per_commit=1).compact()

    assert report.done is not None and report.ledger is not None
    planned = ds.dataset([part.path for part in report.bins.parts()]).to_table()["bin"].to_pylist()
    check = RowCheck(extent, report.planned.plan.digest, planned[0])
    rows = ds.dataset(report.ledger).to_table().to_pylist()
    compared = {row["bin"] for row in rows if row["verified"]}
    assert len(set(planned)) == 3
    assert compared == {name for name in planned if check.takes(name)}
    assert (extent == "off") == (not compared)
    assert report.done.verified_bins == report.json()["verified_bins"] == len(compared)


@pytest.mark.jvm
@pytest.mark.long
def test_a_faulty_writer_on_the_executors_commits_nothing(tmp_path: Path) -> None:
    table = TableBuilder(tmp_path / "t").create(partition_columns=["day"])
    for day in "12":
        table.add("a", "b", partition={"day": day})
    before = files(table.path)
    env = {**os.environ, "PYTHONPATH": faults.program(tmp_path / "faulty", "swapped")}
    command = [sys.executable, "-m", "maint_assets.cli", "optimize", str(table.path)]
    options = ["--execute", "--json", "--verify-rows", "full"]

    done = subprocess.run(
        [*command, *options], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert done.returncode == 1 and "2 of 2 bins failed" in done.stderr
    report = json.loads(done.stdout)
    assert (report["failed_bins"], report["version_after"], report["verified_bins"]) == (2, None, 0)
    assert all("holds other rows than its inputs" in reason for reason in report["not_committed"])
    assert files(table.path) == before
    assert len(list(table.log.glob("*.json"))) == 3
