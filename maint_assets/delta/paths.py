"""Paths of the log: decoded once, relative to the table root if inside it.

Purely textual: storage is not accessed and symbolic links are not resolved.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote_to_bytes

from maint_assets.errors import UnsupportedLocationError

if TYPE_CHECKING:
    from typing_extensions import Self

_URI = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?=/)(?://(?P<authority>[^/]*)|(?!//))(?P<path>/.*|)",
    re.DOTALL,
)
_LOCAL = re.compile(r"(?:file:)?/+(?!/)")
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")
_ESCAPES = re.compile(r"(?:%[0-9A-Fa-f]{2})+")

_ALIASES = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}
_AZURE = {"abfs", "abfss", "wasb", "wasbs", "az", "azure", "adl"}
_AZURE_HOST = re.compile(r"[^.@]+(\.z[0-9]+)?\.(blob|dfs)\..+", re.IGNORECASE)
_REPLICA = "-secondary"
"""Azure's read-only replica of account ``x`` has the host name ``x-secondary``."""


@dataclass(frozen=True, slots=True)
class TableRoot:
    """A table's location: ``file:///abs/path`` or ``scheme://authority/path``, no trailing slash.

    Not URI-encoded, as in Spark: ``%20`` is three literal characters.
    """

    uri: str

    @classmethod
    @lru_cache(maxsize=64)
    def of(cls, uri: str) -> TableRoot:
        """Parse and normalise a location; local ones may be given as ``/abs/path``."""
        match = _URI.fullmatch(uri)
        if match is None and not uri.startswith("/"):
            raise UnsupportedLocationError(
                uri, "the location is not absolute", "give /abs/path or scheme://authority/path"
            )
        place = _Place.of(*match.groups()) if match else _Place.of("file", "", uri)
        if not place.authority and place.path == "/":
            raise UnsupportedLocationError(
                uri, "the root of a storage cannot be a table", "give the path of a table"
            )
        return cls(str(place).rstrip("/"))

    @property
    def is_local(self) -> bool:
        """Whether the table is on the local file system."""
        return _place(self.uri).scheme == "file"

    @property
    def path(self) -> str:
        """The path below the authority with its leading slash; empty for a whole bucket."""
        return _place(self.uri).path.rstrip("/")


def decoded(raw: str) -> str:
    """Decode percent-escapes once, as UTF-8; malformed ones stay."""
    return _ESCAPES.sub(_unescaped, raw) if "%" in raw else raw


def _as_java(raw: str) -> str:
    """Decode percent-escapes once, as Java does: what is not UTF-8 becomes U+FFFD."""
    return _ESCAPES.sub(lambda match: unquote_to_bytes(match[0]).decode("utf-8", "replace"), raw)


def relative(raw: str, root: TableRoot) -> str:
    """Resolve a log path: decoded, and relative to the root if inside it, else absolute.

    Normalised: no empty, ``.`` or ``..`` component. An absolute path without a scheme is on the
    table's own storage.
    """
    match = _URI.fullmatch(raw)
    if match is None:
        return _located(decoded(raw), root)
    scheme, authority, path = match.groups()
    return _within(_Place.of(scheme, authority, decoded(path)), root)


def relative_name(path: str, root: TableRoot) -> str:
    """``relative`` for a path that is not URI-encoded."""
    return relative(path.replace("%", "%25"), root)


def spellings(raw: str, root: TableRoot) -> tuple[str, ...]:
    """All relative paths that a log path may mean: decoded, and literal; none if outside.

    Some writers do not encode, so a ``%`` in the log may be literal. Protecting both is safe.
    """
    found = [relative(raw, root)]
    if "%" in raw:
        names = dict.fromkeys((raw, _as_java(raw)))
        found += [relative_name(name, root) for name in names]
    return tuple(path for path in dict.fromkeys(found) if path and not is_outside(path))


def is_outside(path: str) -> bool:
    """Whether a result of ``relative`` is outside the table.

    Relative results have no empty component, so ``a:/x`` inside the table differs from a URI.
    """
    return path.startswith("/") or "://" in path


def parents(path: str) -> tuple[str, ...]:
    """The ancestor directories of a relative path, deepest first, without the root."""
    if is_outside(path):
        return ()
    names = path.split("/")
    return tuple("/".join(names[:depth]) for depth in range(len(names) - 1, 0, -1))


def canonical_key(raw: str) -> str:
    """The replay key of a log path: the path with the hex digits of escapes in upper case.

    As in Delta, ``/x``, ``file:/x`` and ``file:///x`` have one key, which differs from that of the
    same file's relative path.
    """
    local = _LOCAL.match(raw)
    if local is not None:
        raw = f"file:/{raw[local.end() :]}"
    return _ESCAPE.sub(lambda match: match[0].upper(), raw) if "%" in raw else raw


class _Store(NamedTuple):
    """A storage account and container; ``account`` is empty if the URI does not name it."""

    kind: str
    container: str
    account: str = ""

    def is_same(self, other: _Store) -> bool:
        """Whether both may be the same storage; an unnamed account matches any."""
        accounts = {self.account, other.account}
        return self[:2] == other[:2] and ("" in accounts or len(accounts) == 1)


class _Place(NamedTuple):
    """An absolute path: lower-case scheme, authority (empty for local files), normalised path.

    Azure ``https`` URLs, which have the container in the path, are converted to the ``abfss`` form.
    """

    scheme: str
    authority: str
    path: str

    @classmethod
    def of(cls, scheme: str, authority: str | None, path: str) -> Self:
        known = "" if (authority or "").lower() == "localhost" else authority or ""
        scheme, path = scheme.lower(), _normalised(path)
        if scheme in {"http", "https"} and _AZURE_HOST.fullmatch(known):
            container, _, path = path[1:].partition("/")
            scheme, known, path = "abfss", f"{container}@{known}", f"/{path}"
        return cls(scheme, known, path)

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"

    def store(self) -> _Store:
        """The storage that the path is in. Of an Azure host only the account name counts."""
        authority = self.authority.lower()
        if self.scheme not in _AZURE:
            return _Store(_ALIASES.get(self.scheme, self.scheme), authority)
        container, _, host = authority.partition("@")
        return _Store("azure", container, host.partition(".")[0].removesuffix(_REPLICA))


@lru_cache(maxsize=64)
def _place(uri: str) -> _Place:
    """Split a normalised root."""
    match = _URI.fullmatch(uri)
    if match is None:
        raise UnsupportedLocationError(uri, "the root is not a URI", "make it with TableRoot.of")
    return _Place.of(*match.groups())


def _located(path: str, root: TableRoot) -> str:
    """Resolve a decoded path without a scheme."""
    base = _place(root.uri)
    if not path.startswith("/"):
        joined = _normalised(f"{base.path}/{path}")
        return _within(base._replace(path=joined), root)
    inside = _below(_normalised(path), base.path)
    return _normalised(path) if inside is None else inside


def _within(place: _Place, root: TableRoot) -> str:
    """The path relative to the root, or the whole URI if it is elsewhere."""
    base = _place(root.uri)
    inside = _below(place.path, base.path) if base.store().is_same(place.store()) else None
    return str(place) if inside is None else inside


def _below(path: str, base: str) -> str | None:
    """The part of an absolute path below ``base``, empty for ``base`` itself; None if not below."""
    if path == base:
        return ""
    prefix = base.rstrip("/") + "/"
    return path[len(prefix) :] if path.startswith(prefix) else None


def _normalised(path: str) -> str:
    return posixpath.normpath("/" + path.lstrip("/"))


def _unescaped(match: re.Match[str]) -> str:
    try:
        return unquote_to_bytes(match[0]).decode("utf-8")
    except UnicodeDecodeError:
        return match[0]
