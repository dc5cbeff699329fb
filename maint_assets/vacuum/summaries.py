"""What the stages of the vacuum chain say of their rows."""

from __future__ import annotations

from dataclasses import dataclass

from maint_assets.vacuum.plan import VacuumPlan


@dataclass(frozen=True, slots=True)
class ValidFilesSummary:
    """Paths that must stay, by reason; bytes of data files by the log.

    ``snapshot_run`` is the run whose snapshot it was made from.
    """

    snapshot_run: str
    paths: int
    bytes: int
    by_reason: dict[str, int]


@dataclass(frozen=True, slots=True)
class ListingSummary:
    """What was found under the table root; bytes of visible files.

    ``scanned_directories`` counts the root as well, as Delta does; ``outside`` are paths of an
    inventory that are not below it.
    """

    snapshot_run: str
    files: int
    bytes: int
    directories: int
    hidden: int
    nested_tables: int
    nested_example: str | None
    seconds: float
    files_per_second: float
    mode: str = "full"
    outside: int = 0

    @property
    def scanned_directories(self) -> int:
        """The directories looked into, the root among them."""
        return self.directories - self.nested_tables + 1


@dataclass(frozen=True, slots=True)
class DiffSummary:
    """The plan, by kind. ``time_travel_ends_before`` is the first version whose files all stay, as
    far as the log knows; None when no removed file goes."""

    plan: VacuumPlan
    by_kind: dict[str, int]
    bytes_by_kind: dict[str, int]
    largest_bytes: int
    time_travel_ends_before: int | None


@dataclass(frozen=True, slots=True)
class DeletionSummary:
    """What a deletion did; bytes of the files that are gone.

    ``ledger`` holds a row a path. ``active_missing`` counts active files that are not there
    afterwards, None where an interrupt ended the look; ``active_missing_before`` those that were
    not there when it was planned.
    """

    plan_digest: str
    files: int
    directories: int
    bytes: int
    missing: int
    failed: int
    skipped: int
    active_missing: int | None
    seconds: float
    files_per_second: float
    start_version: int | None
    end_version: int | None
    ledger: str
    approved_by: str | None
    active_missing_before: int = 0
