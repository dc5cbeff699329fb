"""Partition values: canonical form and directory name (PROTOCOL, "Partition Value Serialization").

By the protocol, the empty string is null. delta-spark reads it as an empty string in string
columns, so there the two stay different.
"""

from __future__ import annotations

import re
from decimal import Decimal as Number
from decimal import InvalidOperation
from typing import TYPE_CHECKING
from urllib.parse import quote

from maint_assets.delta.schema import Decimal, Primitive, Type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from maint_assets.delta.schema import Field

NULL_NAME = "__HIVE_DEFAULT_PARTITION__"

_TIMESTAMP = re.compile(
    r"(\d{4,})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?(?P<zone>Z|[+-]\d\d:?\d\d)?",
    re.ASCII,
)
_UTC = {"Z", "+00:00", "-00:00", "+0000"}
_TEXTS = {Primitive("string"), Primitive("binary")}
_INTEGERS = {"byte", "short", "integer", "long"}
# Characters that Spark escapes in the names of partition directories.
_ESCAPED = {*"\"#%'*/:=?\\{[]^\x7f", *map(chr, range(1, 32))}
_URI_SAFE = "/!$&'()*+,;=:@~-._"


def canonical(raw: str | None, kind: Type) -> str | None:
    """Canonical text of a partition value, equal for all spellings of one value.

    Values that do not parse as their type, and timestamps without a zone, are returned unchanged.
    """
    if not raw:
        return raw if kind in _TEXTS else None
    match kind:
        case Decimal(scale=scale):
            return _spelled(lambda text: _exact(text, scale), raw)
        case Primitive(name=name) if name in _INTEGERS:
            return _spelled(lambda text: str(int(text)), raw)
        case Primitive(name=name):
            return _CANONICAL.get(name, str)(raw)
        case _:
            return raw


def canonical_values(
    raw: Mapping[str, str | None], partitions: Iterable[Field]
) -> dict[str, str | None]:
    """Canonical values of a file's partition, in the order of the partition columns."""
    return {
        field.physical_name: canonical(raw.get(field.physical_name), field.type)
        for field in partitions
    }


def directory(values: Mapping[str, str | None], partitions: Iterable[Field]) -> str:
    """The partition directory as Spark names it, with a trailing slash; not URI-encoded."""
    names = (
        f"{_escaped(field.name)}={_escaped(values.get(field.physical_name) or NULL_NAME)}/"
        for field in partitions
    )
    return "".join(names)


def log_path(path: str) -> str:
    """URI-encode a path below the table root, as the log spells it."""
    return quote(path, safe=_URI_SAFE)


def _exact(text: str, scale: int) -> str:
    """A decimal with all digits of its scale; unchanged if it has more."""
    number = Number(text)
    found = f"{number:.{scale}f}"
    return found if Number(found) == number else text


def _spelled(of: Callable[[str], str], raw: str) -> str:
    # Python reads more as a number than other readers: 1_0, digits of other scripts.
    if "_" in raw or not raw.isascii() or raw != raw.strip():
        return raw
    try:
        return of(raw)
    except (ValueError, InvalidOperation):
        return raw


def _timestamp(raw: str) -> str:
    """A UTC timestamp with six fractional digits; unchanged if in another zone or in none."""
    match = _TIMESTAMP.fullmatch(raw)
    if match is None or match["zone"] not in _UTC:
        return raw
    return f"{_local(match)}Z"


def _timestamp_ntz(raw: str) -> str:
    match = _TIMESTAMP.fullmatch(raw)
    if match is None or match["zone"]:
        return raw
    return _local(match).replace("T", " ")


def _local(match: re.Match[str]) -> str:
    year, month, day, hour, minute, second, fraction, _ = match.groups()
    return f"{year}-{month}-{day}T{hour}:{minute}:{second}.{(fraction or '').ljust(6, '0')}"


def _flag(raw: str) -> str:
    return raw.lower() if raw.lower() in {"true", "false"} else raw


def _float(raw: str) -> str:
    """Canonical text of a float; 0.0 and -0.0 stay different."""
    return _spelled(lambda text: repr(float(text)), raw)


_CANONICAL: dict[str, Callable[[str], str]] = {
    "timestamp": _timestamp,
    "timestamp_ntz": _timestamp_ntz,
    "boolean": _flag,
    "float": _float,
    "double": _float,
}


def _escaped(text: str) -> str:
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED else char for char in text)
