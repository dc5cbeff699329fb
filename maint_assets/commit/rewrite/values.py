"""The values of a rewrite's commit: its bins, its parameters and its result."""

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
    """Live files of a table, and the new files that hold the same rows.

    ``inputs`` are the add actions of the log, paths verbatim. ``outputs`` have statistics, but
    no ``baseRowId`` or ``defaultRowCommitVersion`` yet, which the commit assigns. There are no
    outputs if deletion vectors had deleted all rows of the inputs.
    """

    bin: str
    inputs: tuple[Add, ...]
    outputs: tuple[Add, ...]


@dataclass(frozen=True, slots=True)
class RewriteRequest:
    """The parameters of one commit.

    ``txn_id`` is unique to the batch and identifies its commit, also to a later run.
    ``deletion_timestamp_ms`` is when the rewrite began. ``row_ids_kept`` is True if the outputs
    have the materialised row id and row commit version columns of row tracking.
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
    """The result of a batch: ``version`` is None if all bins were dropped.

    ``metrics`` are the operation metrics of the commit. Inputs of ``kept`` bins are the add
    actions that were live when the commit was made.
    """

    version: int | None
    kept: tuple[RewrittenBin, ...]
    dropped: tuple[DroppedBin, ...]
    metrics: Mapping[str, str]
