"""What the stages of the vacuum chain say of their rows: aggregates of one pass, typed results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from maint_assets.vacuum.diff import KINDS
from maint_assets.vacuum.plan import VacuumPlan
from maint_assets.vacuum.valid_files import REASONS

if TYPE_CHECKING:
    from pyspark.sql import Column


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


def valid_files_metrics() -> dict[str, Column]:
    """The aggregates over the rows of ``valid_files``."""
    by_reason = {f"reason_{name}": _count(F.col("reason") == name) for name in REASONS}
    return {"bytes": _sum(F.col("size")), **by_reason}


def listing_metrics() -> dict[str, Column]:
    """The aggregates over the rows of ``listing``."""
    file = ~F.col("is_dir") & ~F.col("hidden")
    nested = F.col("nested_table")
    return {
        "files": _count(file),
        "bytes": _sum(F.when(file, F.col("size"))),
        "directories": _count(F.col("is_dir") & (~F.col("hidden") | nested)),
        "hidden": _count(F.col("hidden") & ~nested),
        "nested_tables": _count(nested),
        "nested_example": F.min(F.when(nested, F.col("path"))),
    }


def diff_metrics() -> dict[str, Column]:
    """The aggregates over the rows of ``diff``."""
    metrics = {
        "bytes": _sum(F.col("size")),
        "largest_bytes": F.coalesce(F.max("size"), F.lit(0)),
        "time_travel_ends_before": F.max("removed_in_version"),
    }
    for name in KINDS:
        metrics[f"kind_{name}"] = _count(F.col("kind") == name)
        metrics[f"bytes_{name}"] = _sum(F.when(F.col("kind") == name, F.col("size")))
    return metrics


def missing_metrics(is_missing: Column) -> dict[str, Column]:
    """The aggregates over judged paths that tell of active files that were not found."""
    return {
        "missing_files": _count(F.coalesce(is_missing, F.lit(False))),
        "missing_example": F.min(F.when(is_missing, F.col("path"))),
    }


def _count(condition: Column) -> Column:
    return _sum(F.when(condition, 1))


def _sum(values: Column) -> Column:
    return F.coalesce(F.sum(values), F.lit(0))
