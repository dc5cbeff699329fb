"""Where a path of the log points: decoded once, relative to the table root where inside it.

Nothing here looks at a store: symbolic links are not followed.
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


@dataclass(frozen=True, slots=True)
class TableRoot:
    """The location of a table: ``file:///abs/path`` or ``scheme://authority/path``, no slash last.

    The text is literal, as Spark takes it: ``%20`` in it is three characters of the name.
    """

    uri: str

    @classmethod
    @lru_cache(maxsize=64)
    def of(cls, uri: str) -> TableRoot:
        """The root in normal form; a local one may be given as ``/abs/path``."""
        match = _URI.fullmatch(uri)
        if match is None and not uri.startswith("/"):
            raise UnsupportedLocationError(
                uri, "the location is not absolute", "give /abs/path or scheme://authority/path"
            )
        place = _Place.of(*match.groups()) if match else _Place.of("file", "", uri)
        if not place.authority and place.path == "/":
            raise UnsupportedLocationError(uri, "a storage's root is no table", "give its path")
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
    """The text with its percent-escapes decoded exactly once as UTF-8; malformed ones stay."""
    return _ESCAPES.sub(_unescaped, raw) if "%" in raw else raw


def relative(raw: str, root: TableRoot) -> str:
    """The decoded path of a log path: relative inside the root, absolute outside it.

    Normalised: no empty, ``.`` or ``..`` component is left. An absolute path without a scheme
    belongs to the table's own storage.
    """
    match = _URI.fullmatch(raw)
    if match is None:
        return _located(decoded(raw), root)
    scheme, authority, path = match.groups()
    return _within(_Place.of(scheme, authority, decoded(path)), root)


def relative_name(path: str, root: TableRoot) -> str:
    """``relative`` of a path that is not encoded: a ``%`` in it stands for itself."""
    return relative(path.replace("%", "%25"), root)


def spellings(raw: str, root: TableRoot) -> tuple[str, ...]:
    """The relative paths to protect for a log path: decoded, and as it stands; none if outside.

    Writers that do not encode leave a literal ``%`` in the log, so the superset is the safe one.
    """
    found = [relative(raw, root)]
    if "%" in raw:
        match = _URI.fullmatch(raw)
        found.append(_within(_Place.of(*match.groups()), root) if match else _located(raw, root))
    return tuple(path for path in dict.fromkeys(found) if path and not is_outside(path))


def is_outside(path: str) -> bool:
    """Whether a result of ``relative`` is outside the table.

    A relative result never holds an empty component, so ``a:/x`` inside is told from a URI.
    """
    return path.startswith("/") or "://" in path


def parents(path: str) -> tuple[str, ...]:
    """The ancestor directories of a relative path, deepest first, without the root."""
    if is_outside(path):
        return ()
    names = path.split("/")
    return tuple("/".join(names[:depth]) for depth in range(len(names) - 1, 0, -1))


def canonical_key(raw: str) -> str:
    """The key of replay: the log path with the hex digits of its escapes in upper case.

    An absolute local path has one key in all its forms, ``/x``, ``file:/x`` and ``file:///x``, as
    in Delta; it is another one than that of the same file as a relative path.
    """
    local = _LOCAL.match(raw)
    if local is not None:
        raw = f"file:/{raw[local.end() :]}"
    return _ESCAPE.sub(lambda match: match[0].upper(), raw) if "%" in raw else raw


class _Store(NamedTuple):
    """A storage however it is spelled; ``account`` is empty where only the settings know it."""

    kind: str
    container: str
    account: str = ""

    def is_same(self, other: _Store) -> bool:
        """Whether both may be one: an account that is not told may be any."""
        accounts = {self.account, other.account}
        return self[:2] == other[:2] and ("" in accounts or len(accounts) == 1)


class _Place(NamedTuple):
    """An absolute path: lower-case scheme, authority (empty for local files), normalised path.

    A web address in Azure, which has the container in its path, is told as ``abfss`` is.
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
        """What the path is in; of an Azure host only the account counts, which is its own."""
        authority = self.authority.lower()
        if self.scheme not in _AZURE:
            return _Store(_ALIASES.get(self.scheme, self.scheme), authority)
        container, _, host = authority.partition("@")
        return _Store("azure", container, host.partition(".")[0].removesuffix(_REPLICA))


@lru_cache(maxsize=64)
def _place(uri: str) -> _Place:
    """The parts of a root in normal form."""
    match = _URI.fullmatch(uri)
    if match is None:
        raise UnsupportedLocationError(uri, "the root is not a URI", "make it with TableRoot.of")
    return _Place.of(*match.groups())


def _located(path: str, root: TableRoot) -> str:
    """A path without a scheme, already decoded."""
    base = _place(root.uri)
    if not path.startswith("/"):
        joined = _normalised(f"{base.path}/{path}")
        return _within(base._replace(path=joined), root)
    inside = _below(_normalised(path), base.path)
    return _normalised(path) if inside is None else inside


def _within(place: _Place, root: TableRoot) -> str:
    """The path relative to the root, or the whole URI when it is elsewhere."""
    base = _place(root.uri)
    inside = _below(place.path, base.path) if base.store().is_same(place.store()) else None
    return str(place) if inside is None else inside


def _below(path: str, base: str) -> str | None:
    """The rest of an absolute path below a directory, or None; empty for the directory itself."""
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
