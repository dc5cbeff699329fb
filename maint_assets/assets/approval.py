"""Approval of a plan: by a person through its digest, or by the run that planned it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from maint_assets.assets.numbers import human_time
from maint_assets.errors import StalePlanError

if TYPE_CHECKING:
    from pyspark.sql import types as T

    from maint_assets.assets.stage_run import StageRun
    from maint_assets.compaction.plan import CompactionPlan
    from maint_assets.log_cleanup.plan import LogCleanupPlan
    from maint_assets.vacuum.plan import VacuumPlan


@dataclass(frozen=True, slots=True)
class Approval:
    """The digest of the approved plan and who approved it; None for an automatic execution.

    ``unattended``: whoever launched it by the digest asked nobody, as a command without a terminal.
    """

    plan: str | None = None
    by: str | None = None
    unattended: bool = False

    @property
    def is_attended(self) -> bool:
        """Whether a person has seen the plan."""
        return self.plan is not None and not self.unattended

    def refuse_other(self, run: StageRun, planned: str, digest: str, *, table: str) -> None:
        """Raise StalePlanError if the current plan is not the approved one, or was executed.

        Also if the table was elsewhere when it was planned (``uri`` has changed in the config). A
        plan whose execution failed or was interrupted may be executed again.
        """
        if table != run.location.uri:
            found = (
                f"plan {digest} is of {table}, and table {run.table.name} has another location now"
            )
            raise StalePlanError(run.table.uri, found, "plan again")
        if self.plan is None:
            if not run.is_of_this_run(planned):
                raise StalePlanError(
                    run.table.uri,
                    "an automatic execution takes only the plan of its own run",
                    "launch the whole chain",
                )
        elif self.plan.strip() != digest:
            raise StalePlanError(
                run.table.uri,
                f"the approved plan is {self.plan.strip()}, the current one {digest}",
                f"look at the current {planned} and approve that one",
            )
        done = run.executed_since(planned, digest)
        if done is not None:
            raise StalePlanError(
                run.table.uri,
                f"plan {digest} was executed by run {done.run_id} at {human_time(done.time_ms)}",
                "plan again",
            )


def refuse_other_mode(planned: str, asked: str, *, table: str) -> None:
    """Raise StalePlanError if the settings have another mode now, which may delete less."""
    if planned != asked:
        found = f"the plan was made in mode {planned}, and the settings ask for mode {asked} now"
        raise StalePlanError(table, found, "plan again")


def plan_digest(plan: VacuumPlan | CompactionPlan | LogCleanupPlan, rows: str) -> str:
    """Digest of a plan: of all its fields, but the digest itself, and of the digest of its rows."""
    fields = msgspec.json.encode(replace(plan, digest=rows), order="deterministic")
    return hashlib.sha256(fields).hexdigest()[:32]


def refuse_changed_plan(
    run: StageRun,
    planned: str,
    plan: VacuumPlan | CompactionPlan | LogCleanupPlan,
    *,
    schema: T.StructType,
) -> None:
    """Raise StalePlanError if the plan's rows or fields are no longer those of its digest.

    Compares the recorded digests of the parts; tasks compare the files when they read them.
    """
    dataset = run.upstream(planned)
    rows = dataset.digest_of_parts(schema)
    if rows is None or plan_digest(plan, rows) != plan.digest:
        found = f"the rows or fields of plan {plan.digest} are not those it was made of"
        if not dataset.has_columns(schema):
            found = f"plan {plan.digest} was made by another release of maint_assets"
        raise StalePlanError(run.table.uri, found, "plan again")
    dataset.refuse_damaged()
