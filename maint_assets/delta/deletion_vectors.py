"""Which file holds a deletion vector (PROTOCOL, "Deletion Vector Descriptor Schema")."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote
from uuid import UUID

from maint_assets.delta.paths import relative
from maint_assets.errors import CorruptLogError

if TYPE_CHECKING:
    from maint_assets.delta.paths import TableRoot

_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_DIGITS = {char: value for value, char in enumerate(_ALPHABET)}
_UUID_CHARS = 20
_WORD = 4
_REMEDY = "restore the log from a backup or a replica; nothing is changed on a broken log"


def file_path(storage_type: str, path_or_inline_dv: str, root: TableRoot) -> str | None:
    """The vector's file relative to the root (absolute if outside); None for an inline vector."""
    match storage_type:
        case "i":
            return None
        case "u":
            return _literal(_uuid_path(path_or_inline_dv, root), root)
        case "r":
            return _literal(path_or_inline_dv, root)
        case "p":
            return relative(path_or_inline_dv, root)
        case _:
            raise CorruptLogError(
                root.uri, f"deletion vector storage type {storage_type!r} is unknown", _REMEDY
            )


def z85_decoded(text: str) -> bytes:
    """Decode Z85 text. Raises ValueError."""
    if len(text) % 5 or not _DIGITS.keys() >= set(text):
        raise ValueError(f"{text!r} is not Z85")
    groups = (text[at : at + 5] for at in range(0, len(text), 5))
    return b"".join(_number(group).to_bytes(4, "big") for group in groups)


def inline_bitmap(text: str, size: int) -> bytes:
    """Decode an inline vector and cut the padding to ``size`` bytes. Raises ValueError."""
    decoded = z85_decoded(text)
    if not 0 <= len(decoded) - size < _WORD:
        raise ValueError(f"the inline vector has {len(decoded)} bytes, not {size}")
    return decoded[:size]


def _uuid_path(text: str, root: TableRoot) -> str:
    """Path of a ``u`` vector: optional prefix directory, then a file name made of the UUID."""
    prefix, encoded = text[:-_UUID_CHARS], text[-_UUID_CHARS:]
    try:
        name = f"deletion_vector_{UUID(bytes=z85_decoded(encoded))}.bin"
    except ValueError as error:
        raise CorruptLogError(root.uri, f"deletion vector {text!r} has no UUID", _REMEDY) from error
    return f"{prefix}/{name}" if prefix else name


def _literal(path: str, root: TableRoot) -> str:
    """Normalise a path that is not URL-encoded."""
    return relative(quote(path), root)


def _number(group: str) -> int:
    """Decode five Z85 characters to a 32-bit number. Raises ValueError."""
    number = 0
    for char in group:
        number = number * 85 + _DIGITS[char]
    if number >= 2**32:
        raise ValueError(f"{group!r} is not Z85")
    return number
