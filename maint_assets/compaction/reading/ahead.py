"""Open files in a known order, the next ones already on their way: a store answers slowly."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from concurrent.futures import Future

    from maint_assets.delta.actions import Add

FILES, BYTES = 8, 64 * 1024 * 1024
"""How many files, and bytes of files by the log, are on their way at most."""

Opened = TypeVar("Opened")


class Ahead(Generic[Opened]):
    """Opens the files of adds by ``open_``; those in ``expect`` before they are asked for."""

    def __init__(self, open_: Callable[[Add], Opened]) -> None:
        self._open = open_
        self._waiting: deque[Add] = deque()
        self._coming: dict[str, tuple[Future[Opened], int]] = {}

    def expect(self, adds: Iterable[Add]) -> None:
        """The files that are asked for next, in this order, the first one to be asked for first."""
        self._waiting, self._coming = deque(adds), {}

    def take(self, add: Add) -> Opened:
        """The file of an add. Raises the error of opening it."""
        coming = self._coming.pop(add.path, None)
        while coming is None and self._waiting and self._waiting.popleft().path != add.path:
            pass
        self._send()
        return self._open(add) if coming is None else coming[0].result()

    def _send(self) -> None:
        size = sum(each for _, each in self._coming.values())
        while self._waiting and len(self._coming) < FILES:
            add = self._waiting[0]
            size += add.size
            if size > BYTES and self._coming:
                return
            self._waiting.popleft()
            self._coming[add.path] = _threads().submit(self._open, add), add.size


@lru_cache(maxsize=1)
def _threads() -> ThreadPoolExecutor:
    """The threads of this process, which mostly wait."""
    return ThreadPoolExecutor(FILES, thread_name_prefix="ahead")
