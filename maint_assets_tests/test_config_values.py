"""Durations as the config writes them."""

from datetime import timedelta

import pytest

from maint_assets.config_values import duration


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7 days", timedelta(days=7)),
        ("168 hours", timedelta(hours=168)),
        ("1 day 12 hours", timedelta(days=1, hours=12)),
        ("0 hours", timedelta(0)),
        ("1.5 hours", timedelta(minutes=90)),
        ("2 weeks", timedelta(days=14)),
        ("  7   DAYS ", timedelta(days=7)),
        ("90minutes", timedelta(minutes=90)),
        ("1 millisecond", timedelta(milliseconds=1)),
        ("-1 hours", timedelta(hours=-1)),
    ],
)
def test_a_duration_is_exactly_as_given(text: str, expected: timedelta) -> None:
    assert duration(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "7",
        "days",
        "seven days",
        "7 dayz",
        "1 month",
        "7 days,",
        "7 days 12",
        "1e3 days",
        "--7 days",
    ],
)
def test_a_duration_without_number_or_known_unit_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a duration reads like"):
        duration(text)


@pytest.mark.parametrize("text", ["99999999999 weeks", "9" * 400 + " days"])
def test_a_duration_beyond_all_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="too long"):
        duration(text)
