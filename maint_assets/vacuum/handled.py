"""The handled version of a table: no file removed in it or before is left.

VACUUM LITE starts after it. It holds for one log only: when a backup of the log was restored, the
same version numbers may be other commits.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgspec

from maint_assets.errors import MaintError
from maint_assets.snapshot.commits import commit_mark, has_commit

if TYPE_CHECKING:
    from maint_assets.snapshot.head import TableHead
    from maint_assets.storage.location import Location
    from maint_assets.vacuum.plan import VacuumPlan


class Mark(msgspec.Struct, frozen=True):
    """A commit by its version and the digest of its bytes."""

    version: int
    digest: str


class Handled(msgspec.Struct, frozen=True):
    """The handled version of a table, and two commits that identify its log.

    These are the handled commit and the newest commit of that run: a log cleanup deletes the newest
    one later.
    """

    table_id: str
    version: int
    commits: list[Mark] = []


def handled_by(plan: VacuumPlan, location: Location) -> Handled | None:
    """The handled version after a plan was executed in full; None if the plan has none."""
    version = plan.handled_version
    if version is None:
        return None
    commits = [Mark(plan.version, plan.commit_mark)]
    with contextlib.suppress(MaintError):  # a log cleanup deleted it: the newest one is enough
        commits.append(Mark(version, commit_mark(location, version)))
    return Handled(plan.table_id, version, commits)


def handled_version(known: Handled | None, head: TableHead) -> int:
    """The handled version that applies to the table of ``head``.

    -1 when none is known, and when the log is another one: another table id, an older head, a known
    commit with another content, or both known commits gone.
    """
    if known is None or known.table_id != head.metadata.id or known.version > head.version:
        return -1
    same = [has_commit(head.location, each.version, each.digest) for each in known.commits]
    return known.version if True in same and False not in same else -1
