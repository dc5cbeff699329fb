"""Where stage outputs are stored, what their digest covers, and how the event log finds them."""

import gc
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from maint_assets.assets.spark_resource import spark_resource
from maint_assets.assets.stage_store import LEFT_SECONDS, Dataset, StageDataset, StageStore
from maint_assets.datasets.columns import column
from maint_assets.datasets.parts import (
    Measure,
    Part,
    PartSlice,
    evaluate_measures,
    refuse_changed,
    row_sums,
    slice_batches,
)
from maint_assets.datasets.rows import Rows, slices, task_groups
from maint_assets.errors import StageMissingError, StalePlanError
from maint_assets.storage.location import Location
from maint_assets.vacuum.summaries import ValidFilesSummary
from maint_assets_tests.support.builder import TableBuilder
from maint_assets_tests.support.chain import Chain

SCHEMA = T.StructType([
    column("path", "string", nullable=True),
    column("size", "bigint", nullable=True),
])
MEASURES = {
    "bytes": Measure("sum", "size"),
    "b": Measure("count", where=pc.field("path") == "b"),
    "largest": Measure("max", "size"),
    "least": Measure("min", "path"),
}
ROWS = [("a", 1), ("b", None), (None, 2), (None, None)]


@pytest.fixture
def dataset(tmp_path: Path) -> StageDataset:
    return StageDataset(Location.of(str(tmp_path)).below("t", "stage", "run"))


def write(
    spark: SparkSession, dataset: StageDataset, rows: list[Any], *, parts: int = 1
) -> Dataset:
    frame = spark.createDataFrame(rows, SCHEMA).repartition(parts)
    return dataset.write_rows([Rows(frame, iter)], SCHEMA, MEASURES)


def digest(spark: SparkSession, dataset: StageDataset, rows: list[Any], *, parts: int = 1) -> str:
    return write(spark, dataset, rows, parts=parts).digest


def stored(dataset: StageDataset) -> list[dict[str, Any]]:
    return [row for part in dataset.parts() for row in pq.read_table(part.path).to_pylist()]


def test_a_digest_is_free_of_order_and_partitioning(
    spark: SparkSession, dataset: StageDataset
) -> None:
    assert digest(spark, dataset, ROWS) == digest(spark, dataset, ROWS[::-1], parts=3)


@pytest.mark.parametrize(
    "rows",
    [
        [("a", 2), *ROWS[1:]],
        [("A", 1), *ROWS[1:]],
        [("a", None), ("b", 1), *ROWS[2:]],
        [("a", 1), (None, None), ("b", 2), (None, None)],
        ROWS[1:],
        [*ROWS, ROWS[0]],
        [*ROWS, (None, None)],
    ],
    ids=[
        "number",
        "text",
        "null moved",
        "null to the other column",
        "fewer",
        "twice",
        "more nulls",
    ],
)
def test_a_digest_changes_with_any_value(
    spark: SparkSession, dataset: StageDataset, rows: list[Any]
) -> None:
    assert digest(spark, dataset, ROWS) != digest(spark, dataset, rows)


def test_swapped_values_of_two_columns_change_the_digest() -> None:
    def sums(*rows: tuple[str | None, str | None]) -> tuple[int, ...]:
        names = [pa.field("a", pa.string()), pa.field("b", pa.string())]
        columns = [pa.array(values, pa.string()) for values in zip(*rows, strict=True)]
        return tuple(row_sums(pa.table(columns, schema=pa.schema(names))))

    assert len({sums(("x", "y")), sums(("y", "x")), sums(("xy", "")), sums(("xy", None))}) == 4
    assert sums(("a", "b"), ("c", "d")) != sums(("a", "d"), ("c", "b"))


@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    rows=st.lists(
        st.tuples(st.none() | st.text(max_size=3), st.none() | st.integers(-(2**63), 2**63 - 1)),
        max_size=6,
    ),
    seed=st.randoms(),
)
def test_any_rows_in_any_order_have_one_digest(
    spark: SparkSession, dataset: StageDataset, rows: list[Any], seed: Any
) -> None:
    mixed = rows.copy()
    seed.shuffle(mixed)

    assert digest(spark, dataset, rows) == digest(spark, dataset, mixed, parts=2)


def test_rows_are_counted_and_measured_in_the_pass_that_writes_them(
    spark: SparkSession, dataset: StageDataset
) -> None:
    rows = [*ROWS, ("b", 7)]

    written = write(spark, dataset, rows, parts=3)

    assert written.rows == len(stored(dataset)) == 5
    assert written.metrics == {"bytes": 10, "b": 2, "largest": 7, "least": "a"}
    assert [row["size"] for row in dataset.largest()] == [7, 2, 1, None, None]


def test_rows_that_are_not_kept_are_measured_only(
    spark: SparkSession, dataset: StageDataset
) -> None:
    rows = Rows(spark.createDataFrame([("a", 1), ("b", 2)], SCHEMA), iter)

    written = dataset.write_rows([rows], SCHEMA, MEASURES, keep=pc.field("path") == "a")

    assert (written.rows, written.metrics["b"]) == (1, 1)
    assert written.digest == digest(spark, dataset, [("a", 1)])


def test_numbers_of_many_rows_are_of_those_where_they_hold() -> None:
    rows = pa.table({"path": ["a", "b", None] * 100_000, "size": range(300_000)})
    numbers = {
        "every": Measure("count"),
        "b": Measure("count", where=pc.field("path") == "b"),
        "b_bytes": Measure("sum", "size", where=pc.field("path") == "b"),
        "largest_a": Measure("max", "size", where=pc.field("path") == "a"),
        "least_c": Measure("min", "size", where=pc.field("path") == "c"),
    }

    assert evaluate_measures(rows, numbers) == {
        "every": 300_000,
        "b": 100_000,
        "b_bytes": sum(range(1, 300_000, 3)),
        "largest_a": 299_997,
        "least_c": None,
    }


def test_a_worker_does_not_look_at_what_it_imported_when_it_collects_garbage(
    spark: SparkSession,
) -> None:
    def frozen(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        list(batches)
        yield pa.RecordBatch.from_pydict({"objects": [gc.get_freeze_count()]})

    (row,) = spark.range(0, 1, 1, 1).mapInArrow(frozen, "objects bigint").collect()

    assert row["objects"] > 10_000


def test_parts_have_the_sums_of_their_rows_and_all_make_the_digest(
    spark: SparkSession, dataset: StageDataset
) -> None:
    made = write(spark, dataset, ROWS, parts=3)

    for part in dataset.parts():
        assert part.sums == row_sums(pq.read_table(part.path))
        refuse_changed(part, table="t")
    assert dataset.digest_of_parts(SCHEMA) == made.digest


def test_a_part_with_other_rows_is_refused(tmp_path: Path) -> None:
    rows = pa.table({"path": ["a", "b"], "size": [1, 2]})
    path = str(tmp_path / "part")
    for other in (rows.slice(1), rows.set_column(1, "size", pa.array([1, 3]))):
        pq.write_table(other, path)
        with pytest.raises(StalePlanError, match="has changed since it was planned"):
            refuse_changed(Part(path, 2, row_sums(rows)), table="t")
    Path(path).unlink()
    with pytest.raises(StalePlanError, match="cannot be read"):
        refuse_changed(Part(path, 2, row_sums(rows)), table="t")


def test_what_a_failed_attempt_left_is_no_part_of_the_rows(
    spark: SparkSession, dataset: StageDataset
) -> None:
    dataset.rows_location.file("").mkdir(parents=True)
    dataset.rows_location.file("part-left.parquet").write_bytes(b"half a par")

    write(spark, dataset, ROWS)

    assert len(stored(dataset)) == len(ROWS)


@pytest.mark.parametrize("rows", [0, 1, 5, 12, 40])
def test_slices_of_parts_are_all_rows_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr("maint_assets.datasets.rows.TASK_ROWS", 7)
    table = pa.table({"at": list(range(rows))})
    pq.write_table(table, tmp_path / "part", row_group_size=5)

    cut = slices([Part(str(tmp_path / "part"), rows)])

    found = [at for part in cut for batch in slice_batches(part) for at in batch["at"].to_pylist()]
    assert found == list(range(rows))
    assert all(part.rows <= 7 for part in cut)


@given(weights=st.lists(st.integers(0, 100)), tasks=st.integers(1, 9))
def test_task_groups_hold_every_unit_once_and_none_is_empty(weights: list[int], tasks: int) -> None:
    units = [PartSlice(str(at), "", 0, weight) for at, weight in enumerate(weights)]

    packages = task_groups(units, tasks, weight=lambda unit: unit.rows)

    assert sorted(unit.path for package in packages for unit in package) == sorted(
        unit.path for unit in units
    )
    assert all(packages)
    assert len(packages) <= tasks


def test_a_dataset_is_complete_with_its_summary(dataset: StageDataset) -> None:
    summary = ValidFilesSummary("run", 3, 100, {"active": 3})
    before = dataset.is_complete

    dataset.write_summary(summary)

    assert (before, dataset.is_complete) == (False, True)
    assert dataset.summary(ValidFilesSummary) == summary


def test_writing_again_replaces_what_a_failed_try_left(
    spark: SparkSession, dataset: StageDataset
) -> None:
    digest(spark, dataset, ROWS, parts=3)

    again = digest(spark, dataset, ROWS[:1])

    assert len(stored(dataset)) == 1
    assert again == digest(spark, dataset, ROWS[:1])


def test_rows_on_their_way_that_a_kill_left_go_after_a_day(
    tmp_path: Path, dataset: StageDataset
) -> None:
    two_days_ago = tmp_path.stat().st_mtime - 2 * LEFT_SECONDS
    left, running = (tmp_path / "t" / "scratch" / name for name in ("left", "running"))
    for each in (left, running):
        (each / "runs").mkdir(parents=True)
        (each / "runs" / "part").write_bytes(b"rows")
    for path in (left / "runs" / "part", left / "runs", left, running):
        os.utime(path, (two_days_ago, two_days_ago))
    os.utime(running / "runs", (two_days_ago, two_days_ago))

    with dataset.scratch() as made:
        Path(made).mkdir()
        assert {path.name for path in (tmp_path / "t" / "scratch").iterdir()} == {
            "running",
            Path(made).name,
        }

    assert not Path(made).exists() and (running / "runs" / "part").exists()


def test_a_stage_that_was_never_run_is_named(tmp_path: Path) -> None:
    store = StageStore(base_uri=str(tmp_path), pyspark=spark_resource({}))
    key = dg.AssetKey(["maintenance", "orders", "diff"])

    with (
        dg.DagsterInstance.ephemeral() as instance,
        pytest.raises(StageMissingError, match="stage diff was never run; run the chain first"),
    ):
        store.latest(instance, key)


def test_a_materialisation_without_a_dataset_is_not_taken_for_none(tmp_path: Path) -> None:
    store = StageStore(base_uri=str(tmp_path), pyspark=spark_resource({}))
    key = dg.AssetKey(["maintenance", "orders", "diff"])

    with dg.DagsterInstance.ephemeral() as instance:
        instance.report_runless_asset_event(dg.AssetMaterialization(key))
        with pytest.raises(StageMissingError, match="diff was reported by something else"):
            store.latest(instance, key)


@pytest.mark.usefixtures("spark")
def test_the_event_log_finds_the_newest_dataset_in_the_same_and_in_a_later_run(
    tmp_path: Path,
) -> None:
    TableBuilder(tmp_path / "t").create().add("a")
    chain = Chain.of(tmp_path / "t", tmp_path / "out")
    snapshot_key = dg.AssetKey(["maintenance", "t", "snapshot"])

    first = chain.launcher.plan(chain.table, stages=["snapshot", "valid_files"])
    second = chain.launcher.plan(chain.table, stages=["snapshot"])
    third = chain.launcher.plan(chain.table, stages=["valid_files"])

    def made_from(run: Any) -> str:
        dataset = chain.launcher.dataset(chain.table, "valid_files", run)
        return dataset.summary(ValidFilesSummary).snapshot_run

    newest, dataset = chain.launcher.store.latest(chain.launcher.instance, snapshot_key)
    assert (made_from(first), made_from(third)) == (first.run_id, second.run_id)
    assert newest == second.run_id
    assert dataset == chain.launcher.dataset(chain.table, "snapshot", second)


def test_no_launchpad_sets_the_clock() -> None:
    """Retention and the times of commits depend on it."""
    assert set(StageStore.to_fields_dict()) == {"base_uri"}
