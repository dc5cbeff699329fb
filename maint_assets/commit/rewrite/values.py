"""The values of a rewrite's commit: what is to be committed, on which terms, what came of it."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from maint_assets.delta.actions import Add


@dataclass(frozen=True, slots=True)
class RewrittenBin:
    """Files of a table and the new ones that hold the same rows.

    ``inputs`` are the add actions of the log, path verbatim. ``outputs`` have statistics, and
    neither row ids nor versions yet; there are none where all rows of the inputs were deleted.
    """

    bin: str
    inputs: tuple[Add, ...]
    outputs: tuple[Add, ...]


@dataclass(frozen=True, slots=True)
class RewriteRequest:
    """The terms of one commit.

    ``txn_id`` is unique to the batch: by it a commit is known as ours, also on a later run.
    ``deletion_timestamp_ms`` is when the rewrite began. ``row_ids_kept`` says that the outputs
    hold the row ids and commit versions of a table with row tracking in their columns.
    """

    operation: Literal["OPTIMIZE", "REORG"]
    parameters: Mapping[str, Any]
    txn_id: str
    deletion_timestamp_ms: int
    now_ms: Callable[[], int]
    row_ids_kept: bool = False
    attempts: int = 100
    sleep: Callable[[float], None] = time.sleep
    random: Callable[[], float] = random.random


@dataclass(frozen=True, slots=True)
class DroppedBin:
    """A bin that was not committed, and why; its new files may be removed."""

    bin: str
    reason: str


@dataclass(frozen=True, slots=True)
class Committed:
    """What became of a batch: ``version`` is None where no bin was left to commit.

    ``metrics`` are the operation metrics of the commit. Inputs of ``kept`` bins are as the log
    had them in the end.
    """

    version: int | None
    kept: tuple[RewrittenBin, ...]
    dropped: tuple[DroppedBin, ...]
    metrics: Mapping[str, str]
