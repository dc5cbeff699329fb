"""The notations of ``maintenance.yaml``: durations such as ``7 days``, sizes such as ``256MB``."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

_UNIT_MS = {
    "millisecond": 1,
    "second": 1000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}
_UNIT_BYTES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", re.IGNORECASE)
_DURATION = re.compile(r"\s*(-?\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)


def duration(text: object) -> timedelta:
    """The length of time of ``7 days``, ``168 hours`` or ``1 day 12 hours``, exactly as given.

    Raises ValueError for anything else; a negative length is for the caller to refuse.
    """
    if isinstance(text, timedelta):
        return text
    rest, total = str(text), 0.0
    if not rest.strip():
        raise ValueError("a duration reads like '7 days' or '168 hours', not empty")
    while rest:
        match = _DURATION.match(rest)
        unit = match[2].lower().removesuffix("s") if match else ""
        if match is None or unit not in _UNIT_MS:
            raise ValueError(f"a duration reads like '7 days' or '168 hours', not '{text}'")
        total += float(match[1]) * _UNIT_MS[unit]
        rest = rest[match.end() :]
    try:
        return timedelta(milliseconds=total)
    except OverflowError:
        raise ValueError(f"the duration '{text}' is too long") from None


def size(text: object) -> int:
    """The bytes of ``256MB``, ``1 GB`` or ``1073741824``; KB, MB, GB, TB are powers of 1024.

    Raises ValueError for anything else.
    """
    match = _SIZE.fullmatch(str(text))
    if match is None or isinstance(text, bool):
        raise ValueError(f"a size reads like '256MB' or '1 GB', not '{text}'")
    try:
        return int(float(match[1]) * _UNIT_BYTES[match[2].lower()])
    except OverflowError:
        raise ValueError(f"the size '{str(text)[:20]}...' is too large") from None


Duration = Annotated[
    timedelta,
    BeforeValidator(duration),
    WithJsonSchema({"type": "string", "examples": ["7 days", "168 hours"]}),
]


Size = Annotated[
    int,
    BeforeValidator(size),
    Field(gt=0),
    WithJsonSchema({"type": ["string", "integer"], "examples": ["256MB", "1 GB"]}),
]


def _not_negative(length: timedelta) -> timedelta:
    if length < timedelta(0):
        raise ValueError("an age can't be less than 0 hours")
    return length


Age = Annotated[Duration, AfterValidator(_not_negative)]


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("a location has no NUL character")
    return text


Place = Annotated[str, AfterValidator(_without_nul)]


RowExtent = Annotated[
    Literal["off", "sampled", "full"],
    # YAML 1.1 reads a plain `off` as false.
    BeforeValidator(lambda value: "off" if value is False else value),
]
