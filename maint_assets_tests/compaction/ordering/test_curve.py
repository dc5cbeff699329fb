"""Curves: the values that Delta computes (measured with its jar), and properties of a curve."""

from itertools import pairwise

import numpy as np
import pytest

from maint_assets.compaction.ordering.curve import Keys, curve_keys, hilbert_keys, z_order_keys


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


def test_of_one_column_the_curve_is_its_order() -> None:
    assert curve_keys(points((3,), (1,), (1000,), (0,)), 10).tolist() == [3, 1, 1000, 0]


def test_more_columns_than_the_hilbert_tables_bear_are_interleaved() -> None:
    ranks = [np.array([1], np.uint64)] * 10

    assert curve_keys(ranks, 4).tolist() == z_order_keys(ranks, 4).tolist()


@pytest.mark.parametrize(("columns", "files"), [(2, 7), (2, 16), (2, 40), (3, 16), (3, 40)])
def test_lookups_read_fewer_files_than_on_deltas_z_curve(columns: int, files: int) -> None:
    rng = np.random.default_rng(1)
    ranks = [rng.integers(0, 1024, 20_000).astype(np.uint64) for _ in range(columns)]

    assert lookups(ranks, curve_keys(ranks, 10), files) < 0.95 * lookups(
        ranks, z_order_keys(ranks, 10), files
    )


def lookups(ranks: list[Keys], keys: Keys, files: int) -> float:
    """The mean number of files that contain a value, if rows are cut along their keys."""
    order, found = np.argsort(keys), []
    for column in ranks:
        parts = np.array_split(column[order], files)
        found += [sum(part.min() <= value <= part.max() for part in parts) for value in range(1024)]
    return float(np.mean(found))
