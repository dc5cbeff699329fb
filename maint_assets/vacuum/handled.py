"""How far the log of a table is handled: up to there nothing that a commit removed is left.

VACUUM LITE begins after it. What was handled holds for one log only: where a backup of the log was
put back, the versions are others now.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgspec

from maint_assets.errors import MaintError
from maint_assets.snapshot.commits import commit_mark, is_commit

if TYPE_CHECKING:
    from maint_assets.snapshot.head import TableHead
    from maint_assets.storage.location import Location
    from maint_assets.vacuum.plan import VacuumPlan


class Mark(msgspec.Struct, frozen=True):
    """A commit by its version and the digest of its bytes."""

    version: int
    digest: str


class Handled(msgspec.Struct, frozen=True):
    """The version up to which a table is handled, and commits by which its log is known again.

    Those are the handled one, and the newest one of that run, which a log cleanup takes later.
    """

    table_id: str
    version: int
    commits: list[Mark] = []


def handled(plan: VacuumPlan, location: Location) -> Handled | None:
    """What a plan that was executed whole has handled; None where the plan cannot tell."""
    version = plan.handled_version
    if version is None:
        return None
    commits = [Mark(plan.version, plan.commit_mark)]
    with contextlib.suppress(MaintError):  # cleaned up meanwhile: the newest one is enough
        commits.append(Mark(version, commit_mark(location, version)))
    return Handled(plan.table_id, version, commits)


def handled_version(known: Handled | None, head: TableHead) -> int:
    """The version up to which the table is handled; -1 for none, or when its log is another one."""
    if known is None or known.table_id != head.metadata.id or known.version > head.version:
        return -1
    told = [is_commit(head.location, each.version, each.digest) for each in known.commits]
    return known.version if True in told and False not in told else -1
