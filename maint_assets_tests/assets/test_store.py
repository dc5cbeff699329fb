"""Where stage outputs lie, what their digest says, and how the event log finds them."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from maint_assets.assets.spark import spark_resource
from maint_assets.assets.store import StageDataset, StageStore
from maint_assets.errors import StageMissingError
from maint_assets.storage.location import Location
from maint_assets.vacuum.summaries import ValidFilesSummary
from maint_assets_tests.builder import TableBuilder
from maint_assets_tests.chain import Chain

SCHEMA = "path string, size bigint"
ROWS = [("a", 1), ("b", None), (None, 2), (None, None)]


@pytest.fixture
def dataset(tmp_path: Path) -> StageDataset:
    return StageDataset(Location.of(str(tmp_path)).below("t", "stage", "run"))


def digest(spark: SparkSession, dataset: StageDataset, rows: list[Any], *, parts: int = 1) -> str:
    frame = spark.createDataFrame(rows, SCHEMA).repartition(parts)
    return dataset.write_rows(frame, {}).digest


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


def test_swapped_values_of_two_columns_change_the_digest(
    spark: SparkSession, dataset: StageDataset
) -> None:
    def of(rows: list[Any]) -> str:
        return dataset.write_rows(spark.createDataFrame(rows, "a string, b string"), {}).digest

    assert len({of([("x", "y")]), of([("y", "x")]), of([("xy", "")]), of([("xy", None)])}) == 4


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
    frame = spark.createDataFrame(ROWS, SCHEMA)

    written = dataset.write_rows(frame, {"bytes": "sum(size)"})

    assert (written.rows, written.metrics["bytes"]) == (4, 3)
    assert dataset.rows(spark, frame.schema).count() == 4


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

    assert dataset.rows(spark, spark.createDataFrame([], SCHEMA).schema).count() == 1
    assert again == digest(spark, dataset, ROWS[:1])


def test_a_stage_that_was_never_run_is_named(tmp_path: Path) -> None:
    store = StageStore(base_uri=str(tmp_path), pyspark=spark_resource({}))
    key = dg.AssetKey(["maintenance", "orders", "diff"])

    with (
        dg.DagsterInstance.ephemeral() as instance,
        pytest.raises(StageMissingError, match="stage diff was never run; run the chain first"),
    ):
        store.latest(instance, key)


@pytest.mark.usefixtures("spark")
def test_the_event_log_finds_the_newest_dataset_in_the_same_and_in_a_later_run(
    tmp_path: Path,
) -> None:
    TableBuilder(tmp_path / "t").create().add("a")
    chain = Chain.of(tmp_path / "t", tmp_path / "out")
    snapshot_key = dg.AssetKey(["maintenance", "t", "snapshot"])

    first = chain.launcher.plan(chain.table, ["snapshot", "valid_files"])
    second = chain.launcher.plan(chain.table, ["snapshot"])
    third = chain.launcher.plan(chain.table, ["valid_files"])

    def made_from(run: Any) -> str:
        dataset = chain.launcher.dataset(chain.table, "valid_files", run)
        return dataset.summary(ValidFilesSummary).snapshot_run

    newest, dataset = chain.launcher.store.latest(chain.launcher.instance, snapshot_key)
    assert (made_from(first), made_from(third)) == (first.run_id, second.run_id)
    assert newest == second.run_id
    assert dataset == chain.launcher.dataset(chain.table, "snapshot", second)
