"""Times: when a commit was made without in-commit timestamps, and lengths as people read them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


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
    """A length of time as people read it: ``7 days, 0:00:00``."""
    return str(timedelta(milliseconds=length_ms))
