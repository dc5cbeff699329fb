"""Open files in a known order, the next ones already on their way: a store answers slowly."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from concurrent.futures import Future

THREADS = 32
"""Requests of a process that are on their way ahead, at most."""

FILES, BYTES = 8, 64 * 1024 * 1024
"""How many data files, and bytes of files, are on their way at most."""

Key = TypeVar("Key")
Opened = TypeVar("Opened")


class _Coming(NamedTuple, Generic[Opened]):
    file: Future[Opened]
    size: int


class Ahead(Generic[Key, Opened]):
    """Opens files by ``open_``; those in ``expect`` before they are asked for.

    At most ``files`` of them, and BYTES, are held until they are asked for.
    """

    def __init__(self, open_: Callable[[Key], Opened], *, files: int = FILES) -> None:
        self._open, self._files = open_, files
        self._waiting: deque[tuple[Key, int]] = deque()
        self._coming: dict[Key, _Coming[Opened]] = {}

    def expect(self, files: Iterable[tuple[Key, int]]) -> None:
        """The files that are asked for next, with their sizes in bytes, in this order."""
        self._waiting, self._coming = deque(files), {}

    def take(self, key: Key) -> Opened:
        """The open file. Raises the error of opening it."""
        coming = self._coming.pop(key, None)
        while coming is None and self._waiting and self._waiting.popleft()[0] != key:
            pass
        self._send()
        return self._open(key) if coming is None else coming.file.result()

    def _send(self) -> None:
        held = sum(each.size for each in self._coming.values())
        while self._waiting and len(self._coming) < self._files:
            key, size = self._waiting[0]
            held += size
            if held > BYTES and self._coming:
                return
            self._waiting.popleft()
            self._coming[key] = _Coming(_threads().submit(self._open, key), size)


@lru_cache(maxsize=1)
def _threads() -> ThreadPoolExecutor:
    """The threads of this process, which mostly wait."""
    return ThreadPoolExecutor(THREADS, thread_name_prefix="ahead")
