"""Whether checkpoints may be the anchor: opened, and compared with what the commits make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from maint_assets.delta.schema import TableSchema
from maint_assets.errors import MaintError
from maint_assets.log_cleanup.compared_rows import COMMITS, Reading
from maint_assets.log_cleanup.comparing import compared, opened_each
from maint_assets.log_cleanup.comparison import Comparison, Difference
from maint_assets.log_cleanup.hashes import Table
from maint_assets.snapshot.head import table_head
from maint_assets.snapshot.schemas import LogUnit

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from maint_assets.delta.schema import Type
    from maint_assets.log_cleanup.anchor import Opened
    from maint_assets.log_cleanup.comparing import Cluster
    from maint_assets.log_cleanup.comparison import Differences
    from maint_assets.log_cleanup.log_directory import LogDirectory
    from maint_assets.snapshot.log import Checkpoint
    from maint_assets.storage.location import Location


class Soundness(msgspec.Struct, frozen=True):
    """Why a checkpoint cannot be the anchor; else, why its content is not proven, if so."""

    fault: str | None = None
    note: str | None = None


def soundness(
    log: LogDirectory, checkpoint: Checkpoint, *, cluster: Cluster | None = None
) -> Soundness:
    """Whether a complete checkpoint of a log can be the first thing of it."""
    return soundness_of_each(log, [checkpoint], cluster=cluster)[checkpoint]


def soundness_of_each(
    log: LogDirectory, checkpoints: Collection[Checkpoint], *, cluster: Cluster | None = None
) -> Mapping[Checkpoint, Soundness]:
    """Whether complete checkpoints of a log can be the first thing of it.

    Each is opened, and its content compared with what the commits from 0 on make, replayed once:
    a checkpoint that was made of a wrong one is as wrong. Where a commit is missing or cannot be
    read, replay goes on from the next checkpoint that can be opened, whose content nobody knows.
    Files are read on the executors of ``cluster``; without one here, which holds all file actions.
    """
    known = _Known(log, cluster)
    known.open(checkpoints)
    while True:
        starts = known.starts(checkpoints)
        found = known.compared(starts)
        if known.learn(starts, found):
            break
    made = dict(zip(starts, found.of_each, strict=True))
    return {
        each: Soundness(fault=known.faults[each])
        if each in known.faults
        else _verdict(each, starts[each], made[each])
        for each in checkpoints
    }


@dataclass(frozen=True, slots=True)
class _Start:
    """Where replay starts: at a checkpoint that has to be believed (``why``), or at version 0."""

    checkpoint: Checkpoint | None = None
    why: str = ""

    @property
    def version(self) -> int:
        """The version that is believed; -1 for none."""
        return -1 if self.checkpoint is None else self.checkpoint.version


_Starts = Mapping["Checkpoint", _Start]


@dataclass(slots=True)
class _Known:
    """What is known so far: checkpoints that open, faults of others, commits nobody can read."""

    log: LogDirectory
    cluster: Cluster | None
    opened: dict[Checkpoint, list[LogUnit]] = field(default_factory=dict)
    faults: dict[Checkpoint, str] = field(default_factory=dict)
    broken: dict[int, str] = field(default_factory=dict)

    def open(self, some: Collection[Checkpoint]) -> None:
        """Open checkpoints, all at once."""
        found: Iterable[Opened] = opened_each(self.log.location, some, self.cluster)
        for checkpoint, each in zip(some, found, strict=True):
            if each.fault is None:
                self.opened[checkpoint] = each.units
            else:
                self.faults[checkpoint] = each.fault

    def starts(self, wanted: Collection[Checkpoint]) -> _Starts:
        """From where each wanted checkpoint that opens is compared, and those who are starts."""
        last = max((each.version for each in wanted), default=-1)
        start: _Start | None = _Start()
        found: dict[Checkpoint, _Start] = {}
        version, why = -1, ""
        for each in sorted(self.log.checkpoints, key=lambda each: each.version):
            if each.version > last:
                break
            if start is not None and (lost := self._lost(version + 1, each.version)):
                start, why = None, lost
            version = each.version
            if (each in wanted or start is None) and self._opens(each):
                start = start or _Start(each, why)
                found[each] = start
        return found

    def compared(self, starts: _Starts) -> Differences:
        """Each checkpoint compared with its start and the commits after that."""
        number = {each: at for at, each in enumerate(starts)}
        asked = [
            Comparison(
                number[each],
                each.version,
                None if start.checkpoint is None else number[start.checkpoint],
                start.version,
            )
            for each, start in starts.items()
        ]
        held = [
            Reading(unit, of=number[each], others=at < len(each.entries))
            for each in starts
            for at, unit in enumerate(self.opened[each])
        ]
        commits = [Reading(unit) for unit in self._commits(starts)]
        table = Table(self.log.location, _partition_kinds(self.log.location))
        return compared(table, [*commits, *held], asked, cluster=self.cluster)

    def learn(self, starts: _Starts, found: Differences) -> bool:
        """Whether what was compared holds, now that some files turned out to be unsound."""
        order = list(starts)
        faults = {order[each.of]: each.found for each in found.broken if each.of != COMMITS}
        for each, made in zip(order, found.of_each, strict=True):
            if twofold := _twofold(each, made):
                faults.setdefault(each, twofold)
        commits = {each.version: each.found for each in found.broken if each.of == COMMITS}
        self.faults |= faults
        self.broken |= commits
        return not commits and faults.keys().isdisjoint(each.checkpoint for each in starts.values())

    def _opens(self, checkpoint: Checkpoint) -> bool:
        if checkpoint not in self.opened and checkpoint not in self.faults:
            self.open([checkpoint])
        return checkpoint not in self.faults

    def _lost(self, first: int, last: int) -> str | None:
        """Why nobody knows what the commits from one version to another make."""
        if not self.log.has_commits(first, last):
            return "commits before it are gone"
        broken = min((each for each in self.broken if first <= each <= last), default=None)
        return None if broken is None else self.broken[broken]

    def _commits(self, starts: _Starts) -> Iterator[LogUnit]:
        """The commits after each start, up to the last checkpoint that is compared from it."""
        last: dict[int, int] = {}
        for each, start in starts.items():
            last[start.version] = max(each.version, last.get(start.version, -1))
        for first, end in last.items():
            for entry in self.log.commits_between(first + 1, end):
                yield LogUnit(path=entry.path, version=entry.file.version, size=entry.size)


def _twofold(checkpoint: Checkpoint, found: Difference) -> str | None:
    """The fault of a checkpoint that is other than itself."""
    version = checkpoint.version
    if found.twice:
        return f"checkpoint {version} holds {found.twice} of its {found.found} live files twice"
    if found.removed:
        return f"checkpoint {version} holds {found.removed} of its live files as removed, too"
    return None


def _verdict(checkpoint: Checkpoint, start: _Start, found: Difference) -> Soundness:
    """What a checkpoint is after its comparison from a start on."""
    what, base = f"the content of checkpoint {checkpoint.version} was", start.checkpoint
    if base == checkpoint:
        told = f"not compared with that of commits ({start.why}): it was read and counted"
        return Soundness(note=f"{what} {told}")
    wrong = _difference(found)
    if wrong:
        made = "the commits" if base is None else f"checkpoint {base.version} and the commits"
        told = f"checkpoint {checkpoint.version} is not what {made} up to it make: {wrong}"
        return Soundness(fault=told)
    if base is None:
        return Soundness()
    told = f"compared from checkpoint {base.version} on, whose own nobody knows ({start.why})"
    return Soundness(note=f"{what} {told}")


def _difference(found: Difference) -> str | None:
    """What is other in a checkpoint; None where it is what the commits make."""
    if found.found != found.made:
        return f"{found.found} live files, not {found.made}"
    if found.others:
        return "other live files, or other partition values or sizes of them"
    for what, count in (("numbers of rows", found.rows), ("bounds", found.bounds)):
        if count:
            return f"other {what} in the statistics of {count} live files"
    # Writers leave out what has expired by the time at which they write.
    left_out = None if found.expires else found.left_out
    first = min((each for each in (found.action, left_out) if each is not None), default=None)
    return None if first is None else f"another {first}"


def _partition_kinds(location: Location) -> Mapping[str, Type]:
    """The types of the table's partition columns by physical name; none where it is broken."""
    try:
        head = table_head(location)
        mapped = head.properties.column_mapping_mode != "none"
        schema = TableSchema.of(head.metadata, mapped=mapped, table=head.table)
    except MaintError:
        return {}
    return {each.physical_name: each.type for each in schema.partitions}
