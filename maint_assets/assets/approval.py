"""Who lets a plan be executed: a person by its digest, or the run that made it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from maint_assets.errors import StalePlanError

if TYPE_CHECKING:
    from maint_assets.assets.run import StageRun


@dataclass(frozen=True, slots=True)
class Approval:
    """The digest of the approved plan and who approved it; none for an automatic execution."""

    plan: str | None = None
    by: str | None = None

    @property
    def is_attended(self) -> bool:
        """Whether a person has seen the plan."""
        return self.plan is not None

    def refuse_other(self, run: StageRun, planned: str, digest: str) -> None:
        """StalePlanError when the current plan of a stage is not what is approved."""
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
