"""Commit times by file mtime, and durations as text."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
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


_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_FIRST_MS = -62_135_596_800_000
_LAST_MS = 253_402_300_799_999

LEAST_MS = 100_000_000_000
"""Timestamps below this (in 1973) are not in ms: some writers use 0, or seconds."""


def monotonic(times: Sequence[tuple[int, int]]) -> dict[int, int]:
    """Make commit times strictly increasing, as Delta does: ms by version.

    ``times`` are pairs of version and file mtime in ms, in any order. The first keeps its time.
    """
    adjusted: dict[int, int] = {}
    last: int | None = None
    for version, time_ms in sorted(times):
        last = time_ms if last is None else max(time_ms, last + 1)
        adjusted[version] = last
    return adjusted


def utc(time_ms: int) -> datetime:
    """A time in UTC; one before year 1 or after 9999 becomes the first or last of these."""
    shown_ms = min(max(time_ms, _FIRST_MS), _LAST_MS)
    return _EPOCH + timedelta(milliseconds=shown_ms)


def duration_text(length_ms: int) -> str:
    """A duration as text: ``7 days``, ``1 day 12 hours``; at most two units."""
    parts: list[str] = []
    rest = length_ms
    for unit, unit_ms in _UNITS:
        count, rest = divmod(rest, unit_ms)
        if count:
            parts.append(f"{count:,} {unit}" + ("s" if count > 1 else ""))
    return " ".join(parts[:2]) or "0 hours"
