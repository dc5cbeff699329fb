"""Times: when a commit was made without in-commit timestamps, and lengths as people read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_UNITS = (
    ("day", 86_400_000),
    ("hour", 3_600_000),
    ("minute", 60_000),
    ("second", 1000),
    ("millisecond", 1),
)


LEAST_MS = 100_000_000_000
"""A time below (of 1973) is none in ms: some writers leave it out, or give it in seconds."""


def monotonic(times: Sequence[tuple[int, int]]) -> dict[int, int]:
    """The times in ms by version, from (version, file time): each later than the one before.

    The first of the given versions keeps its time, as in Delta. Any order of the pairs will do.
    """
    adjusted: dict[int, int] = {}
    last: int | None = None
    for version, time_ms in sorted(times):
        last = time_ms if last is None else max(time_ms, last + 1)
        adjusted[version] = last
    return adjusted


def shown_length(length_ms: int) -> str:
    """A length of time as people read it: ``7 days``, ``1 day 12 hours``; two units at most."""
    told: list[str] = []
    rest = length_ms
    for unit, unit_ms in _UNITS:
        count, rest = divmod(rest, unit_ms)
        if count:
            told.append(f"{count:,} {unit}" + ("s" if count > 1 else ""))
    return " ".join(told[:2]) or "0 hours"
