"""Soundness of checkpoints: whether one may be the anchor that a log begins with.

A checkpoint is opened, and its content is compared with the replay of the commits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from maint_assets.delta.features import writer_feature_names
from maint_assets.delta.schema import TableSchema
from maint_assets.errors import MaintError
from maint_assets.log_cleanup.checkpoints.compared_rows import COMMITS, Reading
from maint_assets.log_cleanup.checkpoints.comparing import comparison_results, open_all
from maint_assets.log_cleanup.checkpoints.comparison import Comparison, Difference
from maint_assets.log_cleanup.checkpoints.hashes import Table
from maint_assets.snapshot.head import table_head
from maint_assets.snapshot.schemas import LogUnit

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from maint_assets.log_cleanup.checkpoints.anchor import Opened
    from maint_assets.log_cleanup.checkpoints.comparing import Cluster
    from maint_assets.log_cleanup.checkpoints.comparison import Differences
    from maint_assets.log_cleanup.log_directory import LogDirectory
    from maint_assets.snapshot.log import Checkpoint
    from maint_assets.storage.location import Location


class Soundness(msgspec.Struct, frozen=True):
    """The fault that rules out a checkpoint as anchor, or a note if its content is not proven."""

    fault: str | None = None
    note: str | None = None


def soundness_of_each(
    log: LogDirectory, checkpoints: Collection[Checkpoint], *, cluster: Cluster | None = None
) -> Mapping[Checkpoint, Soundness]:
    """The soundness of complete checkpoints of a log.

    Each is opened and compared with one replay of the commits from 0 on, not with the checkpoint
    before it: an error in a checkpoint is passed on to later ones. Where a commit is missing or
    cannot be read, replay continues from the next checkpoint that can be opened; its own content
    cannot be proven, and a note says so. Files are read on the executors of ``cluster``; without
    one in this process, which then holds all file actions.
    """
    known = _Known(log, cluster)
    known.open(checkpoints)
    # Reading may reveal a broken commit or start: then the starts change, and it is done again.
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
    """Where replay starts: at a checkpoint taken as true (for the reason ``why``), or at 0."""

    checkpoint: Checkpoint | None = None
    why: str = ""

    @property
    def version(self) -> int:
        """The version of the checkpoint; -1 without one."""
        return -1 if self.checkpoint is None else self.checkpoint.version


_Starts = Mapping["Checkpoint", _Start]


@dataclass(slots=True)
class _Known:
    """Knowledge so far: opened checkpoints, faults of others, commits that cannot be read."""

    log: LogDirectory
    cluster: Cluster | None
    opened: dict[Checkpoint, list[LogUnit]] = field(default_factory=dict)
    faults: dict[Checkpoint, str] = field(default_factory=dict)
    broken: dict[int, str] = field(default_factory=dict)

    def open(self, some: Collection[Checkpoint]) -> None:
        """Open checkpoints and keep their files or faults."""
        found: Iterable[Opened] = open_all(self.log.location, some, self.cluster)
        for checkpoint, each in zip(some, found, strict=True):
            if each.fault is None:
                self.opened[checkpoint] = each.units
            else:
                self.faults[checkpoint] = each.fault

    def starts(self, wanted: Collection[Checkpoint]) -> _Starts:
        """The start for each wanted checkpoint that opens, and for the starts themselves."""
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
        """Compare each checkpoint with its start and the commits after it."""
        number = {each: index for index, each in enumerate(starts)}
        comparisons = [
            Comparison(
                number[each],
                each.version,
                None if start.checkpoint is None else number[start.checkpoint],
                start.version,
            )
            for each, start in starts.items()
        ]
        # Sidecars, which come after the checkpoint's own files, hold file actions only.
        own = [
            Reading(unit, of=number[each], others=index < len(each.entries))
            for each in starts
            for index, unit in enumerate(self.opened[each])
        ]
        commits = [Reading(unit) for unit in self._commits(starts)]
        table = _table(self.log.location)
        return comparison_results(table, [*commits, *own], comparisons, cluster=self.cluster)

    def learn(self, starts: _Starts, found: Differences) -> bool:
        """Keep the faults that a comparison found; True if its result holds all the same.

        It does not if a commit could not be read, or if a start turned out to be unsound.
        """
        order = list(starts)
        faults = {order[each.of]: each.found for each in found.broken if each.of != COMMITS}
        for each, made in zip(order, found.of_each, strict=True):
            if fault := _contradiction(each, made):
                faults.setdefault(each, fault)
        commits = {each.version: each.found for each in found.broken if each.of == COMMITS}
        self.faults |= faults
        self.broken |= commits
        return not commits and faults.keys().isdisjoint(each.checkpoint for each in starts.values())

    def _opens(self, checkpoint: Checkpoint) -> bool:
        if checkpoint not in self.opened and checkpoint not in self.faults:
            self.open([checkpoint])
        return checkpoint not in self.faults

    def _lost(self, first: int, last: int) -> str | None:
        """Why the commits ``first`` to ``last`` cannot be replayed; None if they can."""
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


def _contradiction(checkpoint: Checkpoint, found: Difference) -> str | None:
    """The fault of a checkpoint that contradicts itself, else None."""
    version = checkpoint.version
    if found.twice:
        return f"checkpoint {version} holds {found.twice} of its {found.found} live files twice"
    if found.removed:
        return f"checkpoint {version} holds {found.removed} of its live files also as removed"
    return None


def _verdict(checkpoint: Checkpoint, start: _Start, found: Difference) -> Soundness:
    """The soundness of a checkpoint after its comparison."""
    what, base = f"the content of checkpoint {checkpoint.version} was", start.checkpoint
    if base == checkpoint:
        text = f"not compared with the commits ({start.why}): it was only read and counted"
        return Soundness(note=f"{what} {text}")
    wrong = _difference(found, written_ms=max(each.modified_ms for each in checkpoint.entries))
    if wrong:
        made = "the commits" if base is None else f"checkpoint {base.version} and the commits"
        text = f"checkpoint {checkpoint.version} differs from {made} up to it: {wrong}"
        return Soundness(fault=text)
    if base is None:
        return Soundness()
    text = f"compared from checkpoint {base.version} on, which cannot be checked ({start.why})"
    return Soundness(note=f"{what} {text}")


def _difference(found: Difference, *, written_ms: int) -> str | None:
    """The difference as a text for the user; None where there is none."""
    if found.found != found.made:
        return f"{found.found} live files, not {found.made}"
    if found.others:
        return "other live files, or other partition values, vectors, sizes, times or row ids"
    for what, count in (("numbers of rows", found.rows), ("bounds", found.bounds)):
        if count:
            return f"other {what} in the statistics of {count} live files"
    # Writers drop transaction identifiers that have expired by the time they write.
    kept_ms = found.expires_ms
    has_expired = kept_ms is not None and found.updated_ms <= written_ms - kept_ms
    left_out = None if has_expired else found.left_out
    first = min((each for each in (found.action, left_out) if each is not None), default=None)
    return None if first is None else f"another {first}"


def _table(location: Location) -> Table:
    """The table at its newest version; without types if that version cannot be read."""
    try:
        head = table_head(location)
        mapped = head.properties.column_mapping_mode != "none"
        schema = TableSchema.of(head.metadata, mapped=mapped, table=head.table)
    except MaintError:
        return Table(location, {})
    kinds = {each.physical_name: each.type for each in schema.partitions}
    return Table(location, kinds, row_ids="rowTracking" in writer_feature_names(head.protocol))
