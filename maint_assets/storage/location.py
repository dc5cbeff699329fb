"""The location of a table or workspace: parsed from a user's URI, opened as a store."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from maint_assets.errors import UnsupportedLocationError

if TYPE_CHECKING:
    from typing_extensions import Self

    from maint_assets.config import StorageSettings

_S3 = {"s3", "s3a", "s3n"}
_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*):")


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """How an object store is reached. What is None comes from the environment of each process.

    Holds no secret: ``access_key_id``, ``secret_access_key`` and ``session_token`` are names of
    environment variables, which each process reads when it opens the store.
    """

    endpoint: str | None = None
    region: str | None = None
    path_style: bool | None = None
    requester_pays: bool = False
    encryption: str | None = None
    kms_key_id: str | None = None
    anonymous: bool = False
    access_key_id: str | None = None
    secret_access_key: str | None = None
    session_token: str | None = None

    @classmethod
    def of(cls, settings: StorageSettings) -> Self:
        """The options of a table in the config."""
        names = settings.credentials
        return cls(
            endpoint=settings.endpoint,
            region=settings.region,
            path_style=settings.path_style,
            requester_pays=settings.requester_pays,
            encryption=settings.encryption,
            kms_key_id=settings.kms_key_id,
            anonymous=names.anonymous,
            access_key_id=names.access_key_id,
            secret_access_key=names.secret_access_key,
            session_token=names.session_token,
        )


@dataclass(frozen=True, slots=True)
class Location:
    """A directory, by its canonical URI: an absolute local path, or ``s3://bucket/prefix``.

    Make it with ``of`` from what a person or a config gives; with the constructor only from the
    ``uri`` of another one. Symlinks of the given path are resolved once, by ``of``. ``options`` say
    how its store is reached.
    """

    uri: str
    options: StoreOptions = StoreOptions()

    @classmethod
    def of(cls, uri: str, settings: StorageSettings | None = None) -> Self:
        """Parse ``/path``, ``relative/path``, ``file:/path``, ``file:///path`` or ``s3://b/path``.

        ``settings`` say how its store is reached. Raises UnsupportedLocationError.
        """
        match = _SCHEME.match(uri)
        if match is None:
            plain = uri
        elif match[1].lower() in _S3:
            options = StoreOptions() if settings is None else StoreOptions.of(settings)
            return cls(_bucket_uri(uri, uri[len(match[0]) :]), options)
        elif match[1].lower() == "file":
            plain = unquote(_without_authority(uri[len(match[0]) :]))
        else:
            raise UnsupportedLocationError(
                uri,
                f"tables on {match[1]}: are not maintained yet",
                "give a local path or file: URI",
            )
        if not plain:
            raise UnsupportedLocationError(uri, "the location is empty", "give a path")
        path = str(Path(plain).expanduser().resolve())
        shown = path.encode("utf-8", "backslashreplace").decode()
        if shown != path:
            raise UnsupportedLocationError(shown, "the path is not UTF-8", "rename the directory")
        return cls(path)

    @property
    def is_local(self) -> bool:
        """Whether it is on the local file system."""
        return self.uri.startswith("/")

    @property
    def path(self) -> str:
        """The absolute local path. Raises UnsupportedLocationError on a store."""
        self.refuse_store()
        return self.uri

    @property
    def time_slack_ms(self) -> int:
        """How much later than it seems a file may have been written: stores cut times to seconds.

        A file is only taken to be as old as it must be.
        """
        return 0 if self.is_local else 1_000

    def refuse_store(self) -> None:
        """Raise UnsupportedLocationError on a store, before what works on local disks only."""
        if not self.is_local:
            found = "it is on an object store, where only a local directory works"
            raise UnsupportedLocationError(self.uri, found, "give a local path")

    def below(self, *parts: str) -> Location:
        """The location of a subdirectory."""
        if not self.is_local:
            return Location("/".join([self.uri, *parts]), self.options)
        return Location(str(Path(self.path, *parts)))

    def file(self, relative: str) -> Path:
        """The local path of a file below this directory."""
        return Path(self.path, relative)


def _bucket_uri(uri: str, rest: str) -> str:
    """``s3://bucket/prefix`` in one spelling: without empty components and a slash at the end.

    Nothing is decoded, as in Spark: ``%20`` is three characters, ``#`` and ``?`` are names.
    """
    authority = rest.lstrip("/").partition("/")[0]
    if "@" in authority or ":" in authority:  # may hold a secret: it is not repeated
        raise UnsupportedLocationError(
            "s3://...",
            "the location names a user, a key or a port",
            "give s3://bucket/prefix, and the rest by storage.credentials and storage.endpoint",
        )
    bucket, *names = (name for name in rest.split("/") if name)
    if not rest.startswith("//") or rest.startswith("///") or not names:
        raise UnsupportedLocationError(
            uri, "it does not name a bucket and a prefix", "give s3://bucket/prefix"
        )
    if not {".", ".."}.isdisjoint(names) or any(ord(each) < ord(" ") for each in rest):
        raise UnsupportedLocationError(
            uri, "no object can have a name with . or .. or a control character", "correct it"
        )
    return "s3://" + "/".join([bucket, *names])


def _without_authority(rest: str) -> str:
    if not rest.startswith("//"):
        return rest
    authority, slash, path = rest[2:].partition("/")
    if authority not in {"", "localhost"}:
        raise UnsupportedLocationError(
            f"file:{rest}", f"file: URI names the host {authority}", "give file:///path"
        )
    return slash + path
