"""Stores that answer a conditional put misleadingly (409, 503, lost responses)."""

from collections.abc import Collection
from typing import Any

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, GenericError

from maint_assets.storage import object_writes, write


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


class FaultyDelete:
    """obstore's delete on a store that locks some keys, and is busy for the first ``busy`` times.

    The errors are those that obstore raises.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, locked: Collection[str] = (), busy: int = 0
    ) -> None:
        self.delete, self.locked, self.busy, self.requests = obstore.delete, locked, busy, 0
        monkeypatch.setattr(object_writes.obstore, "delete", self._delete)

    def _delete(self, store: Any, paths: str | list[str]) -> None:
        self.requests += 1
        if self.busy:
            self.busy -= 1
            raise GenericError("Generic S3 error: status code: 503: <Code>SlowDown</Code>")
        keys = [paths] if isinstance(paths, str) else paths
        held = [key for key in keys if key in self.locked]
        self.delete(store, [key for key in keys if key not in self.locked])
        if held:
            raise GenericError(
                f"Generic S3 error: DeleteObjects request failed for key {held[0]}: protected by "
                "object lock. (code: AccessDenied)\n\nDebug source:\nGeneric { store }"
            )
