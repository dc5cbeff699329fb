"""Values of a deletion: the planned file, and its outcome."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

Outcome = Literal["deleted", "missing", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class Deletion:
    """The outcome of deleting one path, and for ``failed`` and ``skipped`` the reason."""

    outcome: Outcome
    error: str | None = None


class PlannedFile(NamedTuple):
    """A file to delete if its size in bytes and its mtime in ms are still these."""

    path: str
    size: int
    modified_ms: int


DELETED, MISSING = Deletion("deleted"), Deletion("missing")
CHANGED = Deletion("skipped", "changed since it was planned")
MADE_AGAIN = Deletion("skipped", "created again by another process after its deletion")
NOT_OF_LOG = Deletion("skipped", "not a file of the log")
OF_LOG = Deletion("skipped", "a file of a Delta log")
UNNAMED = Deletion("skipped", "requests to the store cannot name its key")
