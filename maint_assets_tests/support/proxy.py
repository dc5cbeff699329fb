"""A proxy before an S3 server that counts requests and delays them."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

_HEAD_END = b"\r\n\r\n"
_BODY = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CHUNK = 64 * 1024


class Proxy:
    """Passes HTTP/1.1 requests on; ``requests`` counts them by kind, ``delay_s`` delays each."""

    def __init__(self, target: tuple[str, int], delay_s: float = 0.0) -> None:
        self.requests: Counter[str] = Counter()
        self.targets: list[str] = []
        self.delay_s = delay_s
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def endpoint(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        """Accept no more connections."""
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client, socket.create_connection(self._target) as server:
            threading.Thread(target=_copy, args=(server, client), daemon=True).start()
            while request := _request(client):
                head, body = request
                self.requests[_kind(head)] += 1
                self.targets.append(head.split(b"\r\n", 1)[0].decode())
                time.sleep(self.delay_s)
                server.sendall(head + body)
                for chunk in _rest(client, head, len(body)):
                    server.sendall(chunk)


def _request(client: socket.socket) -> tuple[bytes, bytes] | None:
    """The head of the next request, and what came of its body with it; None at the end."""
    held = b""
    while _HEAD_END not in held:
        more = client.recv(_CHUNK)
        if not more:
            return None
        held += more
    head, _, body = held.partition(_HEAD_END)
    return head + _HEAD_END, body


def _rest(client: socket.socket, head: bytes, known: int) -> Iterator[bytes]:
    found = _BODY.search(head)
    left = int(found[1]) - known if found else 0
    while left > 0:
        chunk = client.recv(min(left, _CHUNK))
        if not chunk:
            return
        left -= len(chunk)
        yield chunk


def _kind(head: bytes) -> str:
    """The S3 operation of a request: LIST, DELETE_MANY, PART, or its HTTP method."""
    method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ", 2)
    query = parse_qs(urlsplit(target).query, keep_blank_values=True)
    if "list-type" in query:
        return "LIST"
    if "delete" in query:
        return "DELETE_MANY"
    return "PART" if "uploadId" in query or "uploads" in query else method


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while chunk := source.recv(_CHUNK):
            target.sendall(chunk)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
