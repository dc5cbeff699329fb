"""Positions of rows: by ranges of a sample, for every type, including nulls and ties."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from maint_assets.compaction.ordering.order import Ordering
from maint_assets.compaction.ordering.positions import Positions, mixed, splits


def order(*columns: str) -> Ordering:
    paths = tuple((name,) for name in columns)
    return Ordering(paths, paths, clustering=False)


def in_order(rows: pa.Table, *columns: str) -> list[dict[str, Any]]:
    """The rows in order of their positions, with all of them as the sample."""
    (batch,) = rows.combine_chunks().to_batches()
    positions = Positions.of(rows, order(*columns))
    ties = mixed(1, np.arange(rows.num_rows))
    return rows.take(np.argsort(positions.of_rows(batch, ties))).to_pylist()


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int8(), [-3, 0, 5, 127]),
        (pa.int64(), [-(2**63), -1, 0, 2**63 - 1]),
        (pa.float32(), [-1.5, 0.0, 2.5, float("nan")]),
        (pa.float64(), [float("-inf"), 1.0, float("inf"), float("nan")]),
        (pa.string(), ["", "a" * 40 + "b", "a" * 40 + "c", "é", "😀"]),
        (pa.date32(), [date(1, 1, 1), date(1969, 1, 1), date(2020, 1, 1)]),
        (
            pa.timestamp("us", "UTC"),
            [datetime(1900, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)],
        ),
        (pa.timestamp("us"), [datetime(1900, 1, 1), datetime(2020, 1, 1)]),  # noqa: DTZ001
        (pa.decimal128(38, 10), [Decimal("-1E20"), Decimal("0.1"), Decimal("1E20")]),
        (pa.decimal128(5, 2), [Decimal("-1.25"), Decimal("-1.24"), Decimal("1.5")]),
    ],
    ids=str,
)
def test_one_column_gives_its_order_with_nulls_first(kind: pa.DataType, values: list[Any]) -> None:
    shuffled = pa.table({"a": pa.array([values[-1], None, *values[:-1]], kind)})

    found = [row["a"] for row in in_order(shuffled, "a")]

    assert repr(found) == repr([None, *pa.array(values, kind).to_pylist()])


def test_columns_of_few_and_of_many_values_weigh_the_same() -> None:
    rng = np.random.default_rng(1)
    rows = pa.table({"few": rng.integers(0, 4, 4096), "many": rng.permutation(4096)})

    found = in_order(rows, "few", "many")

    quarter = found[:1024]
    assert {row["few"] for row in quarter} == {0, 1}
    assert max(row["many"] for row in quarter) < 2200


@pytest.mark.parametrize("columns", [24, 25, 48, 64, 65, 100])
def test_the_first_columns_of_many_give_the_order_and_ties_are_spread(columns: int) -> None:
    names = [f"c{at}" for at in range(columns)]
    values = np.repeat([1, 0], 500)
    rows = pa.table(dict.fromkeys(names, values))
    positions = Positions.of(rows, order(*names))

    found = positions.of_rows(rows.to_batches()[0], mixed(1, np.arange(1000)))

    assert found[500:].max() < found[:500].min()
    assert len(set(found.tolist())) > 900


def test_struct_fields_order_rows() -> None:
    rows = pa.table({"s": [{"a": 3}, None, {"a": None}, {"a": 1}]})
    ordering = Ordering((("s", "a"),), (("s", "a"),), clustering=False)
    positions = Positions.of(rows, ordering)

    found = positions.of_rows(rows.to_batches()[0], np.zeros(4, np.uint64))

    assert found[1] == found[2] < found[3] < found[0]


def test_ties_are_spread_always_in_the_same_way() -> None:
    rows = pa.table({"a": [7] * 10_000})
    positions = Positions.of(rows, order("a"))
    (batch,) = rows.combine_chunks().to_batches()

    found = positions.of_rows(batch, mixed(5, np.arange(10_000)))

    assert np.array_equal(found, positions.of_rows(batch, mixed(5, np.arange(10_000))))
    files = np.searchsorted(splits(found, 4), found, side="right")
    assert all(2400 < count < 2600 for count in np.bincount(files).tolist())


def test_no_rows_and_no_values_have_an_order_too() -> None:
    empty = pa.table({"a": pa.array([], pa.int64())})
    nulls = pa.table({"a": pa.array([None, None], pa.int64())})

    assert splits(np.zeros(0, np.uint64), 3).tolist() == [0, 0]
    for sample in (empty, nulls):
        found = Positions.of(sample, order("a"))
        assert len(found.of_rows(nulls.to_batches()[0], np.zeros(2, np.uint64))) == 2


def test_ranges_of_a_skewed_sample_hold_about_as_many_rows() -> None:
    rng = np.random.default_rng(1)
    rows = pa.table({"a": (rng.pareto(1, 20_000) * 1000).astype(np.int64)})
    (batch,) = rows.combine_chunks().to_batches()
    positions = Positions.of(rows.slice(0, 10_000), order("a"))
    sample = positions.of_rows(batch.slice(0, 10_000), mixed(1, np.arange(10_000)))

    files = np.searchsorted(
        splits(sample, 8), positions.of_rows(batch, mixed(2, np.arange(20_000))), side="right"
    )

    counts = np.bincount(files, minlength=8)
    assert counts.min() > 2_000 and counts.max() < 3_000
