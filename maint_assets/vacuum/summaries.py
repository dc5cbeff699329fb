"""Summaries of the stages of the vacuum chain, for the UI and for later stages."""

from __future__ import annotations

from dataclasses import dataclass

from maint_assets.vacuum.plan import VacuumPlan


@dataclass(frozen=True, slots=True)
class ValidFilesSummary:
    """Counts of the paths that must stay, by reason; bytes of data files as the log gives them.

    ``snapshot_run`` is the run that made the snapshot.
    """

    snapshot_run: str
    paths: int
    bytes: int
    by_reason: dict[str, int]


@dataclass(frozen=True, slots=True)
class ListingSummary:
    """Counts of the entries under the table root; bytes of visible files.

    ``hidden`` entries are never candidates. ``nested_tables`` are roots of other Delta tables below
    this one, not entered. ``outside`` counts the paths of an inventory that are not below the root.
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
        """The directories listed, the root included, as Delta counts them."""
        return self.directories - self.nested_tables + 1


@dataclass(frozen=True, slots=True)
class DiffSummary:
    """The plan, and its paths and bytes by kind.

    ``time_travel_ends_before`` is the first version of which the plan deletes no file, as far as
    the log records; None when the plan deletes no removed file.
    """

    plan: VacuumPlan
    by_kind: dict[str, int]
    bytes_by_kind: dict[str, int]
    largest_bytes: int
    time_travel_ends_before: int | None


@dataclass(frozen=True, slots=True)
class DeletionSummary:
    """Counts of the outcomes of a deletion; bytes of the deleted files.

    ``ledger`` is the dataset with one row per path. ``active_missing`` counts the active files
    missing from the storage afterwards, None where an error or interrupt ended that check;
    ``active_missing_before`` counts those missing when the plan was made. ``start_version`` and
    ``end_version`` are the VACUUM START and END commits, None if not written. ``end_error`` says
    why END could not be.
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
    end_error: str | None = None
