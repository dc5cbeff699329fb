"""Stores that answer a conditional put misleadingly (object_stores.md 3.1)."""

from typing import Any

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, GenericError

from maint_assets.storage import write


class FaultyStore:
    """obstore's put on a store that fails ``times`` times, in one way."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, times: int = 1) -> None:
        self.put, self.left, self.puts = obstore.put, times, 0
        monkeypatch.setattr(write.obstore, "put", self._put)

    def _put(self, store: Any, path: str, body: bytes, **how: Any) -> Any:
        self.puts += 1
        if not self.left:
            return self.put(store, path, body, **how)
        self.left -= 1
        return self.fault(store, path, body, **how)

    def fault(self, store: Any, path: str, body: bytes, **how: Any) -> Any:
        raise NotImplementedError


class LostAnswer(FaultyStore):
    """The store creates the file; its client retries and finds that it exists."""

    def fault(self, store: Any, path: str, body: bytes, **how: Any) -> Any:
        self.put(store, path, body, **how)
        return self.put(store, path, body, **how)


class LostConnection(FaultyStore):
    """The store creates the file, but the response is lost."""

    def fault(self, store: Any, path: str, body: bytes, **how: Any) -> Any:
        self.put(store, path, body, **how)
        raise GenericError("connection reset")


class Conflict(FaultyStore):
    """The store answers 409 and creates no file."""

    def fault(self, store: Any, path: str, body: bytes, **how: Any) -> Any:
        raise AlreadyExistsError("409 ConditionalRequestConflict")


class Refusal(FaultyStore):
    """The store answers 503 and creates no file."""

    def fault(self, store: Any, path: str, body: bytes, **how: Any) -> Any:
        raise GenericError("503 slow down")
