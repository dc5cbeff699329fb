"""The stages of each chain: dependencies, what they compute, their checks and display."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from maint_assets.assets import checks
from maint_assets.assets.display.compaction import (
    ALL_REWRITTEN,
    SAME_ROWS,
    bins_line,
    planned_picture,
    rewritten_line,
    sizes_picture,
    skipping_picture,
)
from maint_assets.assets.display.log_cleanup import (
    CHECKPOINTS_SOUND,
    LOG_READABLE,
    LOGS_GONE,
    deleted_line,
    expired_line,
)
from maint_assets.assets.display.vacuum import (
    deletion_line,
    diff_line,
    listing_line,
    snapshot_line,
    valid_files_line,
)
from maint_assets.assets.progress import tasks_of
from maint_assets.assets.stage_store import StageResult
from maint_assets.assets.stages.compaction import compaction_bins_stage, rewritten_files_stage
from maint_assets.assets.stages.log_cleanup import (
    deleted_logs_stage,
    expired_logs_stage,
    log_deletion_progress,
)
from maint_assets.assets.stages.vacuum import (
    diff_stage,
    listing_stage,
    snapshot_stage,
    valid_files_stage,
)
from maint_assets.assets.stages.vacuum_deletion import deletion_progress, deletion_stage
from maint_assets.compaction.engines.arrow import REWRITTEN_SCHEMA
from maint_assets.compaction.planning.schema import COMPACTION_SCHEMA
from maint_assets.log_cleanup.deletion import DELETED_LOGS_SCHEMA
from maint_assets.log_cleanup.expired_logs import EXPIRED_SCHEMA
from maint_assets.snapshot.schemas import SNAPSHOT_SCHEMA
from maint_assets.vacuum.deletion import DELETION_SCHEMA
from maint_assets.vacuum.diff import DIFF_SCHEMA
from maint_assets.vacuum.listing import LISTING_SCHEMA
from maint_assets.vacuum.valid_files import VALID_FILES_SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import types as T

    from maint_assets.assets.approval import Approval
    from maint_assets.assets.progress import Share
    from maint_assets.assets.stage_run import StageRun
    from maint_assets.config import TableSettings


Branch = Literal["vacuum", "compaction", "log_cleanup"]


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a chain: a planning stage has ``compute``, an executing one ``execute``."""

    name: str
    deps: tuple[str, ...]
    description: str
    schema: T.StructType
    line: Callable[[Any], str]
    compute: Callable[[StageRun], StageResult] | None = None
    checks: tuple[checks.Check, ...] = ()
    progress: Callable[[StageRun], Share | None] = tasks_of
    execute: Callable[[StageRun, Approval], StageResult] | None = None
    branch: Branch = "vacuum"
    pictures: Mapping[str, Callable[[Any], str | None]] = field(default_factory=dict)
    previewed: tuple[str, ...] = ()

    @property
    def preview_schema(self) -> T.StructType:
        """The columns of the preview: those in ``previewed``, in that order, or all."""
        if not self.previewed:
            return self.schema
        return type(self.schema)([self.schema[name] for name in self.previewed])

    def approval(self, table: TableSettings) -> str:
        """How plans of this branch are approved for a table: ``manual`` or ``auto``."""
        return {
            "vacuum": table.vacuum.approval,
            "compaction": table.compaction.approval,
            "log_cleanup": table.log_cleanup.approval,
        }[self.branch]


_SNAPSHOT = Stage(
    "snapshot", (), "The newest version: live files, tombstones, commits of the log.",
    SNAPSHOT_SCHEMA, snapshot_line, snapshot_stage, (checks.CHECKSUM,),
)  # fmt: skip

VACUUM_STAGES: Mapping[str, Stage] = {
    stage.name: stage
    for stage in (
        _SNAPSHOT,
        Stage(
            "valid_files", ("snapshot",), "Paths that a retained version needs, and why.",
            VALID_FILES_SCHEMA, valid_files_line, valid_files_stage,
        ),
        Stage(
            "listing", ("snapshot", "valid_files"), "Files and directories under the table root.",
            LISTING_SCHEMA, listing_line, listing_stage,
        ),
        Stage(
            "diff", ("snapshot", "valid_files", "listing"),
            "The plan: files and directories to delete, and the commits that removed them.",
            DIFF_SCHEMA, diff_line, diff_stage,
            (checks.NONE_MISSING, checks.NONE_LOST, checks.NOTHING_VALID),
        ),
        Stage(
            "deletion", ("diff",), "The execution of the plan: the outcome of each path.",
            DELETION_SCHEMA, deletion_line, None,
            (checks.ACTIVE_THERE, checks.ALL_DONE, checks.END_THERE),
            deletion_progress, deletion_stage,
        ),
    )
}  # fmt: skip
"""The vacuum chain in its order."""

COMPACTION_STAGES: Mapping[str, Stage] = {
    stage.name: stage
    for stage in (
        _SNAPSHOT,
        Stage(
            "compaction_bins", ("snapshot",),
            "The plan: live files to rewrite together, and why.",
            COMPACTION_SCHEMA, bins_line, compaction_bins_stage, branch="compaction",
            pictures={"picture": planned_picture},
            previewed=("partition", "path", "size", "rows", "deleted", "reason", "bin"),
        ),
        Stage(
            "rewritten_files", ("compaction_bins",),
            "The execution of the plan: files before and after, and the commits.",
            REWRITTEN_SCHEMA, rewritten_line, execute=rewritten_files_stage,
            checks=(SAME_ROWS, ALL_REWRITTEN), branch="compaction",
            pictures={"picture": sizes_picture, "skipping": skipping_picture},
            previewed=("role", "path", "size", "rows", "state", "reason", "verified", "version"),
        ),
    )
}  # fmt: skip
"""The compaction chain in its order."""

LOG_CLEANUP_STAGES: Mapping[str, Stage] = {
    stage.name: stage
    for stage in (
        _SNAPSHOT,
        Stage(
            "expired_logs", ("snapshot",),
            "The plan: log files that no retained version needs.",
            EXPIRED_SCHEMA, expired_line, expired_logs_stage, (CHECKPOINTS_SOUND,),
            branch="log_cleanup",
            previewed=("kind", "version", "size", "reason", "path"),
        ),
        Stage(
            "deleted_logs", ("expired_logs",),
            "The execution of the plan: the outcome of each file of the log.",
            DELETED_LOGS_SCHEMA, deleted_line, None, (LOG_READABLE, LOGS_GONE),
            log_deletion_progress, deleted_logs_stage, branch="log_cleanup",
            previewed=("kind", "version", "size", "outcome", "path", "error"),
        ),
    )
}  # fmt: skip
"""The log cleanup chain in its order."""

CHAINS: Mapping[Branch, Mapping[str, Stage]] = {
    "vacuum": VACUUM_STAGES,
    "compaction": COMPACTION_STAGES,
    "log_cleanup": LOG_CLEANUP_STAGES,
}

STAGES: Mapping[str, Stage] = {**VACUUM_STAGES, **COMPACTION_STAGES, **LOG_CLEANUP_STAGES}
"""All stages by name."""
