"""What the stages of the vacuum chain say of their rows: aggregates of one pass, typed results."""

from __future__ import annotations

from dataclasses import dataclass

from maint_assets.vacuum.diff import IS_MISSING, KINDS
from maint_assets.vacuum.plan import VacuumPlan
from maint_assets.vacuum.valid_files import REASONS


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

    ``scanned_directories`` counts the root as well, as Delta does.
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


def valid_files_metrics() -> dict[str, str]:
    """The SQL aggregates over the rows of ``valid_files``."""
    by_reason = {f"reason_{name}": f"count_if(reason = '{name}')" for name in REASONS}
    return {"bytes": "coalesce(sum(size), 0)", **by_reason}


def listing_metrics() -> dict[str, str]:
    """The SQL aggregates over the rows of ``listing``."""
    return {
        "files": "count_if(not is_dir and not hidden)",
        "bytes": "coalesce(sum(case when not is_dir and not hidden then size end), 0)",
        "directories": "count_if(is_dir and (nested_table or not hidden))",
        "hidden": "count_if(hidden and not nested_table)",
        "nested_tables": "count_if(nested_table)",
        "nested_example": "min(case when nested_table then path end)",
    }


def diff_metrics() -> dict[str, str]:
    """The SQL aggregates over the rows of ``diff``."""
    metrics = {
        "bytes": "coalesce(sum(size), 0)",
        "largest_bytes": "coalesce(max(size), 0)",
        "time_travel_ends_before": "max(removed_in_version)",
    }
    for name in KINDS:
        metrics[f"kind_{name}"] = f"count_if(kind = '{name}')"
        metrics[f"bytes_{name}"] = f"coalesce(sum(case when kind = '{name}' then size end), 0)"
    return metrics


def missing_metrics() -> dict[str, str]:
    """The SQL aggregates over judged paths that tell of active files that were not found."""
    return {
        "missing_files": f"count_if({IS_MISSING})",
        "missing_example": f"min(case when {IS_MISSING} then path end)",
    }
