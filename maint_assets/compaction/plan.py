"""The request and the plan of an OPTIMIZE."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from maint_assets.delta.features import Operation, refuse_unsupported
from maint_assets.snapshot.commits import refuse_other_commit
from maint_assets.snapshot.head import table_head
from maint_assets.snapshot.newer_commits import refuse_old, refuse_other_table

if TYPE_CHECKING:
    from maint_assets.snapshot.head import TableHead
    from maint_assets.storage.location import Location

DEFAULT_TARGET_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Selection:
    """Which files are rewritten; sizes in bytes.

    A file is small below ``min_bytes``, and has many deleted rows above ``max_deleted_ratio``.
    ``purge`` takes exactly the files with deleted rows or dropped columns. Rows are ordered by
    ``zorder_by``; ``full`` also rewrites files in another order, or ordered in several runs.
    """

    target_bytes: int = DEFAULT_TARGET_BYTES
    min_bytes: int = DEFAULT_TARGET_BYTES // 2
    max_deleted_ratio: float = 0.05
    purge: bool = False
    max_bytes: int | None = None
    where: str | None = None
    zorder_by: tuple[str, ...] = ()
    full: bool = False

    @property
    def operation(self) -> Literal["OPTIMIZE", "REORG"]:
        """The operation in ``commitInfo`` of its commits."""
        return "REORG" if self.purge else "OPTIMIZE"


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """The plan of ``compaction_bins`` for the executing stage; sizes in bytes.

    ``left_out`` counts live files not in the plan, by reason. ``commit_mark`` tells the commit of a
    version from another commit with the same number.
    """

    table: str
    table_id: str
    version: int
    commit_mark: str
    planned_ms: int
    digest: str
    selection: Selection
    bins: int
    files: int
    bytes: int
    rows: int
    considered_files: int
    left_out: dict[str, int]
    left_out_bytes: dict[str, int]

    @property
    def expected_files(self) -> int:
        """Estimated number of new files; an ordered bin becomes several."""
        return max(self.bins, -(-self.bytes // self.selection.target_bytes))


def ready_head(
    plan: CompactionPlan, location: Location, *, max_age_ms: int, now_ms: int
) -> TableHead:
    """The table at the planned version, if the plan may be executed.

    Raises StalePlanError, UnsupportedFeatureError, UnsupportedLocationError, LogGapError or
    CorruptLogError. Conflicts with newer commits are checked at each commit.
    """
    refuse_old(plan.table, planned_ms=plan.planned_ms, max_age_ms=max_age_ms, now_ms=now_ms)
    newest = table_head(location)
    refuse_other_table(newest, table_id=plan.table_id, version=plan.version)
    refuse_unsupported(newest.protocol, Operation.REWRITE, table=plan.table)
    head = table_head(location, version=plan.version)
    refuse_other_commit(location, plan.version, plan.commit_mark)
    return head
