"""Parse ``_last_checkpoint`` (PROTOCOL, "Last Checkpoint File"): a hint, never authoritative."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

import msgspec

from maint_assets.delta.actions import Long

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class LastCheckpoint:
    """The hint. ``size`` counts actions (-1 if unknown); ``parts`` is None for a single file.

    ``v2_checkpoint`` is the file name of a V2 checkpoint.
    """

    version: int
    size: int = -1
    parts: int | None = None
    v2_checkpoint: str | None = None
    checksum: str | None = None
    checkpoint_type: str | None = None


def parse_hint(content: bytes) -> LastCheckpoint | None:
    """Parse the hint; None if it is not valid JSON or its checksum does not match."""
    try:
        found = _DECODER.decode(content)
        digest = json_checksum(content.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    if found.checksum not in {None, digest}:
        return None
    return LastCheckpoint(
        version=found.version,
        size=found.size,
        parts=found.parts,
        v2_checkpoint=found.v2_checkpoint and found.v2_checkpoint.path,
        checksum=found.checksum,
        checkpoint_type=found.checkpoint_type,
    )


def json_checksum(text: str) -> str:
    """MD5 of JSON in canonical form without the top-level ``checksum`` (PROTOCOL, "JSON checksum").

    Raises ValueError for invalid JSON and for duplicate keys.
    """
    parsed = json.loads(
        text,
        object_pairs_hook=_unique,
        parse_int=_Literal,
        parse_float=_Literal,
        parse_constant=_refused,
    )
    members = msgspec.convert(parsed, dict[str, Any]).items()
    fields = {key: value for key, value in members if key != "checksum"}
    canonical = ",".join(sorted(_leaves(fields)))
    return hashlib.md5(canonical.encode("ascii"), usedforsecurity=False).hexdigest()


class _Path(msgspec.Struct, frozen=True):
    path: str


class _Fields(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of the JSON object that are read."""

    version: Long
    size: Long = -1
    parts: Long | None = None
    v2_checkpoint: _Path | None = None
    checksum: str | None = None
    checkpoint_type: str | None = None


_DECODER = msgspec.json.Decoder(_Fields)


@dataclass(frozen=True, slots=True)
class _Literal:
    """A number kept as its source text, which the canonical form contains unchanged."""

    text: str


_NAMES: dict[object, str] = {None: "null", True: "true", False: "false"}


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("duplicate keys")
    return fields


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _leaves(value: object, path: tuple[str, ...] = ()) -> Iterator[str]:
    """``path=value`` for each leaf below a value."""
    if isinstance(value, dict):
        for key, child in cast("dict[str, object]", value).items():
            yield from _leaves(child, (*path, _quoted(key)))
    elif isinstance(value, list):
        for at, child in enumerate(cast("list[object]", value)):
            yield from _leaves(child, (*path, str(at)))
    else:
        yield f"{'+'.join(path)}={_scalar(value)}"


def _scalar(value: object) -> str:
    if isinstance(value, _Literal):
        return value.text
    return _quoted(value) if isinstance(value, str) else _NAMES[value]


def _quoted(text: str) -> str:
    return f'"{quote(text, safe="")}"'
