"""A real S3 server (SeaweedFS from PyPI) for tests, and tables on it."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from maint_assets.config import StorageSettings
from maint_assets.storage.location import Location
from maint_assets_tests.support.proxy import Proxy

BUCKET = "bucket"
START_SECONDS, STARTS = 60, 3
_ARGUMENTS = (
    "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3", "-master.volumeSizeLimitMB=64",
    "-volume.max=500", "-master.telemetry=false", "-s3.port.iceberg=0", "-s3.port.lance=0",
)  # fmt: skip
_PORTS = ("master.port", "volume.port", "filer.port", "s3.port")
_KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test-secret"}
NAMED_KEYS = {"TEST_STORE_KEY": "test", "TEST_STORE_SECRET": "test-secret"}
"""The same access key under the names that ``Server.settings`` gives."""


@dataclass(frozen=True)
class Server:
    """A running server, by the environment in which programs find it."""

    environment: dict[str, str]

    @property
    def settings(self) -> StorageSettings:
        """The settings of tables on it; their credentials are NAMED_KEYS."""
        key, secret = (f"${name}" for name in NAMED_KEYS)
        credentials = {"access_key_id": key, "secret_access_key": secret}
        endpoint = self.environment["AWS_ENDPOINT_URL"]
        return StorageSettings.model_validate({
            "endpoint": endpoint,
            "region": "us-east-1",
            "credentials": credentials,
        })

    @property
    def deltalake(self) -> dict[str, str]:
        """The storage options of deltalake for it."""
        return {**self.environment, "AWS_CONDITIONAL_PUT": "etag"}

    @contextlib.contextmanager
    def proxied(self, delay_s: float = 0.0) -> Iterator[Proxy]:
        """A proxy before it."""
        found = urlsplit(self.environment["AWS_ENDPOINT_URL"])
        proxy = Proxy((found.hostname or "", found.port or 0), delay_s)
        try:
            yield proxy
        finally:
            proxy.close()

    def location(self, prefix: str) -> Location:
        """The location of a prefix of the bucket."""
        return Location.of(f"s3://{BUCKET}/{prefix}", self.settings)

    def put(self, *keys: str, body: bytes = b"x") -> None:
        """Store an object of some bytes under each key of the bucket."""
        for key in keys:
            obstore.put(self.store(), key, body)

    def store(self) -> S3Store:
        """Its only bucket."""
        return S3Store(
            BUCKET,
            endpoint=self.environment["AWS_ENDPOINT_URL"],
            region="us-east-1",
            access_key_id=_KEYS["AWS_ACCESS_KEY_ID"],
            secret_access_key=_KEYS["AWS_SECRET_ACCESS_KEY"],
            client_options={"allow_http": True},
        )

    def upload(self, directory: Path, prefix: str) -> str:
        """Copy a table to a prefix of the bucket; its URI."""
        store = self.store()
        for file in directory.rglob("*"):
            if file.is_file():
                obstore.put(store, f"{prefix}/{file.relative_to(directory)}", file.read_bytes())
        return f"s3://{BUCKET}/{prefix}"

    def download(self, prefix: str, directory: Path) -> Path:
        """Copy what lies below a prefix to a directory."""
        for key in self.keys(prefix):
            target = directory / key
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(self.get(f"{prefix}/{key}"))
        return directory

    def get(self, key: str) -> bytes:
        """The content of an object."""
        return bytes(obstore.get(self.store(), key).bytes())

    def keys(self, prefix: str) -> set[str]:
        """The keys below a prefix, relative to it."""
        found = obstore.list(self.store(), f"{prefix}/").collect()
        return {each["path"].removeprefix(f"{prefix}/") for each in found}


@contextlib.contextmanager
def running(directory: Path) -> Iterator[Server]:
    """A server that keeps its data in a directory."""
    for left in reversed(range(STARTS)):
        ports = _free(len(_PORTS))
        process, server = _started(directory, ports)
        try:
            _wait(process, server, directory / "log")
        except RuntimeError:  # another program took one of its ports meanwhile
            process.kill()
            process.wait()
            if not left:
                raise
            continue
        try:
            yield server
        finally:
            process.kill()  # it would wait for its clients for half a minute
            process.wait()
        return


def _started(directory: Path, ports: list[int]) -> tuple[subprocess.Popen[bytes], Server]:
    named = [f"-{name}={port}" for name, port in zip(_PORTS, ports, strict=True)]
    program = Path(sys.executable).with_name("weed")
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [program, "server", f"-dir={directory}", *_ARGUMENTS, *named],
            env=os.environ | _KEYS,
            stdout=log,
            stderr=log,
        )
    endpoint = f"http://127.0.0.1:{ports[-1]}"
    settings = {"AWS_ENDPOINT_URL": endpoint, "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true"}
    return process, Server(_KEYS | settings)


def _wait(process: subprocess.Popen[bytes], server: Server, log: Path) -> None:
    """Wait until the server stores an object, which makes the bucket."""
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            obstore.put(server.store(), "ready", b"yes")
        except BaseError as error:
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(log.read_text(errors="replace")[-2000:]) from error
            time.sleep(0.2)
        else:
            return


def _free(count: int) -> list[int]:
    """Free ports below those of outgoing connections, where also 10,000 more are.

    The server puts its gRPC ports there.
    """
    held = [socket.socket() for _ in range(count)]
    for each in held:
        while True:
            with contextlib.suppress(OSError):
                each.bind(("127.0.0.1", 10_000 + int.from_bytes(os.urandom(2)) % 12_000))
                break
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports
