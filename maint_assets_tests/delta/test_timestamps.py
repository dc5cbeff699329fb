"""Commit times: strictly ascending, never earlier than the file's modification time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maint_assets.delta.timestamps import duration_text, monotonic


def test_monotonic_moves_late_commits_behind_the_one_before() -> None:
    found = monotonic(list(enumerate([0, 5, 10, 7, 8, 14])))

    assert list(found.values()) == [0, 5, 10, 11, 12, 14]


@given(st.dictionaries(st.integers(0), st.integers()))
def test_monotonic_ascends_and_never_lowers(times: dict[int, int]) -> None:
    found = monotonic(list(times.items()))

    adjusted = [found[version] for version in sorted(times)]
    assert sorted({*adjusted}) == adjusted
    assert all(found[version] >= time_ms for version, time_ms in times.items())


@pytest.mark.parametrize(
    ("length_ms", "shown"),
    [
        (604_800_000, "7 days"),
        (131_400_000, "1 day 12 hours"),
        (86_400_001, "1 day 1 millisecond"),
        (5_400_000, "1 hour 30 minutes"),
        (0, "0 hours"),
    ],
)
def test_a_length_is_shown_in_two_units_at_most(length_ms: int, shown: str) -> None:
    assert duration_text(length_ms) == shown
