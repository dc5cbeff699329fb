"""Sizes, times and counts formatted for people."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_STEP = 1000
_LAST_MS = 253_402_300_800_000
"""The end of the year 9999."""
_UNITS = ("B", "KB", "MB", "GB", "TB", "PB")


def human_bytes(size: float) -> str:
    """A size for people: ``14.5 KB``."""
    unit = 0
    while size >= _STEP and unit < len(_UNITS) - 1:
        size, unit = size / _STEP, unit + 1
    return f"{size:.0f} {_UNITS[unit]}" if unit == 0 else f"{size:.1f} {_UNITS[unit]}"


def human_time(time_ms: int | None) -> str:
    """A time in UTC, or a dash."""
    if time_ms is None:
        return "-"
    if not 0 <= time_ms < _LAST_MS:
        return f"{time_ms} ms"
    return datetime.fromtimestamp(time_ms / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


def human_count(number: int, noun: str) -> str:
    """``1 file``, ``1,200 files``, ``2 directories``."""
    plural = noun[:-1] + "ies" if noun.endswith("y") else noun + "s"
    return f"{number:,} {noun if number == 1 else plural}"


def human_rest(counts: Mapping[str, int]) -> str:
    """``, 2 missing, 1 failed``: the counts that are not 0."""
    return "".join(f", {count:,} {what}" for what, count in counts.items() if count)
