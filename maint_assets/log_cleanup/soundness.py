"""Whether a checkpoint may be the anchor: opened, and compared with what the commits make."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from maint_assets.delta.schema import TableSchema
from maint_assets.errors import CorruptLogError, LogGapError, MaintError
from maint_assets.log_cleanup.anchor import opened
from maint_assets.log_cleanup.replayed import BEGINNING, Replayed, replayed
from maint_assets.snapshot.head import table_head

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from maint_assets.delta.schema import Type
    from maint_assets.log_cleanup.content import Content
    from maint_assets.log_cleanup.log_directory import LogDirectory
    from maint_assets.snapshot.log import Checkpoint
    from maint_assets.storage.location import Location


@dataclass(frozen=True, slots=True)
class Soundness:
    """Why a checkpoint cannot be the anchor; else, why its content is not proven, if so."""

    fault: str | None = None
    note: str | None = None


def soundness(log: LogDirectory, checkpoint: Checkpoint) -> Soundness:
    """Whether a complete checkpoint of a log can be the first thing of it."""
    return soundness_of_each(log, [checkpoint])[checkpoint]


def soundness_of_each(
    log: LogDirectory, checkpoints: Collection[Checkpoint]
) -> Mapping[Checkpoint, Soundness]:
    """Whether complete checkpoints of a log can be the first thing of it.

    Each is opened, and its content compared with what the commits from 0 on make, replayed once:
    a checkpoint that was made of a wrong one is as wrong. Where a commit is missing or cannot be
    read, replay goes on from the next checkpoint that can be opened, whose content nobody knows.
    """
    replay = _Replay(log, _partition_kinds(log.location))
    last = max((each.version for each in checkpoints), default=-1)
    oldest_first = sorted(
        (each for each in log.checkpoints if each.version <= last), key=lambda each: each.version
    )
    found: dict[Checkpoint, Soundness] = {}
    for version, same in groupby(oldest_first, key=lambda each: each.version):
        replay.move_to(version)
        for checkpoint in same:
            if checkpoint in checkpoints:
                found[checkpoint] = replay.met(checkpoint)
            elif replay.state is None:
                replay.met(checkpoint)
    return found


@dataclass(slots=True)
class _Replay:
    """What a version is by the commits after ``base``, None for all; None where nobody knows."""

    log: LogDirectory
    kinds: Mapping[str, Type]
    state: Replayed | None = BEGINNING
    version: int = -1
    base: int | None = None
    why: str = ""

    def move_to(self, version: int) -> None:
        """Replay the commits up to a version."""
        first, self.version = self.version + 1, version
        if self.state is None:
            return
        if not self.log.has_commits(first, version):
            self.state, self.why = None, "commits before it are gone"
            return
        commits = self.log.commits_between(first, version)
        try:
            self.state = replayed(self.state, self.log.location, commits, kinds=self.kinds)
        except (CorruptLogError, LogGapError) as error:
            self.state, self.why = None, error.found

    def met(self, checkpoint: Checkpoint) -> Soundness:
        """Whether a checkpoint of the version is sound; it is the base of others without one."""
        version = checkpoint.version
        try:
            found = opened(self.log.location, checkpoint, self.kinds)
        except (CorruptLogError, LogGapError) as error:
            return Soundness(fault=error.found)
        if self.state is None:
            self.state, self.base = Replayed(found, found.expires), version
            what = f"the content of checkpoint {version} was not compared with that of commits"
            return Soundness(note=f"{what} ({self.why}): it was read and counted")
        wrong = _difference(found, self.state)
        if wrong:
            made = "the commits" if self.base is None else f"checkpoint {self.base} and the commits"
            told = f"checkpoint {version} is not what {made} up to it make: {wrong}"
            return Soundness(fault=told)
        return Soundness(note=self._note(version))

    def _note(self, version: int) -> str | None:
        """What a checkpoint that agrees with the commits is not known to be."""
        if self.base is None:
            return None
        what = f"the content of checkpoint {version} was compared from checkpoint {self.base} on"
        return f"{what}, whose own nobody knows ({self.why})"


def _difference(found: Content, made: Replayed) -> str | None:
    """What is other in a checkpoint; None where it is what the commits make."""
    files = found.files.difference(made.content.files)
    if files:
        return files
    expires = made.expires or found.expires
    others = made.content.others
    for kind, name in sorted(found.others.keys() | others.keys()):
        both = found.others.get((kind, name)), others.get((kind, name))
        # Writers leave out what has expired by the time at which they write.
        if both[0] != both[1] and not (None in both and kind == "txn" and expires):
            return f"another {kind} {name}".rstrip()
    return None


def _partition_kinds(location: Location) -> Mapping[str, Type]:
    """The types of the table's partition columns by physical name; none where it is broken."""
    try:
        head = table_head(location)
        mapped = head.properties.column_mapping_mode != "none"
        schema = TableSchema.of(head.metadata, mapped=mapped, table=head.table)
    except MaintError:
        return {}
    return {each.physical_name: each.type for each in schema.partitions}
