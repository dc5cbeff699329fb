"""Curves: the values that Delta gives (measured with its jar, O4.5), and what makes a curve one."""

from itertools import pairwise

import numpy as np
import pytest

from maint_assets.compaction.curve import Keys, curve_keys, hilbert_keys, z_order_keys


def points(*some: tuple[int, ...]) -> list[Keys]:
    return [np.array(column, np.uint64) for column in zip(*some, strict=True)]


@pytest.mark.parametrize(
    ("point", "bits", "key"),
    [
        ((1, 2), 32, 0x06),
        ((5, 9), 32, 0x63),
        ((500, 500), 32, 0x3FF30),
        ((1, 2, 3), 21, 0x1D),
        ((2**32 - 1, 0), 32, 0xAAAAAAAAAAAAAAAA),
    ],
)
def test_z_order_is_deltas(point: tuple[int, ...], bits: int, key: int) -> None:
    assert z_order_keys(points(point), bits).tolist() == [key]


@pytest.mark.parametrize(
    ("point", "key"),
    [
        ((1, 0), 1),
        ((1, 1), 2),
        ((0, 1), 3),
        ((5, 9), 120),
        ((999, 0), 1048255),
        ((0, 999), 349205),
        ((500, 500), 174624),
        ((1, 2, 3), 32),
        ((500, 10, 999), 177896341),
        ((1, 2, 3, 4), 928),
        ((999, 999, 999, 999), 725461664972),
    ],
)
def test_the_hilbert_curve_is_deltas(point: tuple[int, ...], key: int) -> None:
    assert hilbert_keys(points(point), 10).tolist() == [key]


@pytest.mark.parametrize(("columns", "bits"), [(2, 5), (3, 4), (4, 3), (5, 2), (9, 1)])
def test_the_hilbert_curve_visits_each_point_once_in_unit_steps(columns: int, bits: int) -> None:
    every = np.array(list(np.ndindex(*[1 << bits] * columns)), np.int64)
    keys = hilbert_keys([column.astype(np.uint64) for column in every.T], bits)

    assert sorted(keys.tolist()) == list(range(1 << bits * columns))
    in_order = every[np.argsort(keys)]
    assert all(int(np.abs(one - other).sum()) == 1 for one, other in pairwise(in_order))


@pytest.mark.parametrize("curve", ["z-order", "hilbert"])
def test_the_curve_of_one_column_is_its_order(curve: str) -> None:
    ranks = points((3,), (1,), (1000,), (0,))

    assert curve_keys(curve, ranks, 10).tolist() == [3, 1, 1000, 0]  # pyright: ignore[reportArgumentType]


def test_more_columns_than_the_hilbert_tables_bear_are_interleaved() -> None:
    ranks = [np.array([1], np.uint64)] * 10

    assert curve_keys("hilbert", ranks, 4).tolist() == z_order_keys(ranks, 4).tolist()
