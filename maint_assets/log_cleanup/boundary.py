"""The anchor of a log cleanup: the checkpoint that the kept log begins with.

It follows PROTOCOL.md, "Metadata Cleanup", and in addition requires the checkpoint to be sound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from maint_assets.log_cleanup.checkpoints.new_anchor import anchor_refusal
from maint_assets.log_cleanup.checkpoints.soundness import soundness_of_each
from maint_assets.log_cleanup.commit_times import CommitTimes
from maint_assets.log_cleanup.protection import is_protected
from maint_assets.snapshot.log import LOG
from maint_assets.storage import read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from maint_assets.log_cleanup.checkpoints.comparing import Cluster
    from maint_assets.log_cleanup.checkpoints.soundness import Soundness
    from maint_assets.log_cleanup.log_directory import LogDirectory
    from maint_assets.log_cleanup.plan import Terms
    from maint_assets.snapshot.log import Checkpoint
    from maint_assets.storage.location import Location

_AT_ONCE = 4
"""Versions whose checkpoints are compared in one replay of the commits. Each checkpoint is read
whole, so not more of them."""

Proven = Mapping["Checkpoint", "Soundness"]

_Twins = list["Checkpoint"]
"""The checkpoints of one version, the preferred format first."""

NOTHING_PROVEN: Proven = MappingProxyType({})


@dataclass(frozen=True)
class Boundary:
    """The anchor's version, or a stop reason (a key of STOP_REASONS).

    ``cutoff`` is the newest commit at or before the cutoff. ``creates``: the anchor is yet to be
    written. ``rejected`` and ``notes`` are sentences for the user.
    """

    anchor: int | None
    stop_reason: str | None = None
    cutoff: int | None = None
    creates: bool = False
    rejected: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def boundary(
    log: LogDirectory, times: CommitTimes, terms: Terms, *, proven: Proven = NOTHING_PROVEN
) -> Boundary:
    """The boundary of a log by PROTOCOL.md, with an anchor that was opened and compared.

    Checkpoints that are not in ``proven``, the result of ``proven_anchors``, are compared in this
    process.
    """
    cutoff = times.newest_until(terms.cutoff_ms)
    if cutoff is None:
        return Boundary(None, "no_expired_commit")
    bound = _bound(cutoff, terms)
    anchor, rejected, notes = _sound(log, bound, proven)
    creates = anchor is None and terms.creates_anchor
    if creates and (why := anchor_refusal(log, bound)) is not None:
        creates, notes = False, [f"no checkpoint of version {bound} can be written: {why}"]
    first = bound if creates else anchor
    if first is None:
        reason = "anchor_invalid" if rejected else "no_checkpoint_before_cutoff"
        return Boundary(None, reason, cutoff, rejected=rejected, notes=notes)
    newest = int(log.commit_versions[-1])
    if not log.has_commits(first, newest):
        return Boundary(None, "gap", cutoff, rejected=rejected)
    if is_protected(log, anchor=first, before=terms.protection_before):
        return Boundary(None, "checkpoint_protection", cutoff, rejected=rejected)
    notes += _notes(log.location, first)
    return Boundary(first, None, cutoff, creates, rejected, notes)


def proven_anchors(log: LogDirectory, terms: Terms, cluster: Cluster) -> Proven:
    """The soundness of the checkpoints that ``boundary`` may take, compared on executors."""
    found: dict[Checkpoint, Soundness] = {}
    cutoff = CommitTimes(log, terms.in_commit).newest_until(terms.cutoff_ms)
    for group in () if cutoff is None else _candidates(log, _bound(cutoff, terms)):
        found |= soundness_of_each(log, _all(group), cluster=cluster)
        if _sound_version(group, found) is not None:
            break
    return found


def _bound(cutoff: int, terms: Terms) -> int:
    """The newest version with which the log may begin."""
    return cutoff if terms.min_keep_version is None else min(cutoff, terms.min_keep_version)


def _candidates(log: LogDirectory, bound: int) -> Iterator[list[_Twins]]:
    """The checkpoints up to a version, newest first, in groups that are compared together."""
    older = [each for each in log.checkpoints if each.version <= bound]
    versions = [[*twins] for _, twins in groupby(older, key=lambda each: each.version)]
    for first in range(0, len(versions), _AT_ONCE):
        yield versions[first : first + _AT_ONCE]


def _all(group: list[_Twins]) -> list[Checkpoint]:
    return [each for twins in group for each in twins]


def _sound_version(group: list[_Twins], found: Proven) -> _Twins | None:
    """The checkpoints of the newest version of which all are sound.

    All, because readers take different ones, and none tries another where it cannot read its own.
    """
    is_sound = ((twins, all(found[each].fault is None for each in twins)) for twins in group)
    return next((twins for twins, sound in is_sound if sound), None)


def _sound(
    log: LogDirectory, bound: int, proven: Proven
) -> tuple[int | None, list[str], list[str]]:
    """The newest version whose checkpoints are sound, the faults of unsound ones, and notes.

    Faults of older checkpoints of the same group are included: the same replay compares them.
    """
    rejected: list[str] = []
    for group in _candidates(log, bound):
        unproven = [each for each in _all(group) if each not in proven]
        found = {**proven, **(soundness_of_each(log, unproven) if unproven else {})}
        rejected += [fault for each in _all(group) if (fault := found[each].fault) is not None]
        sound = _sound_version(group, found)
        if sound is not None:
            notes = dict.fromkeys(note for each in sound if (note := found[each].note))
            return sound[0].version, rejected, [*notes]
    return None, rejected, []


def _notes(location: Location, anchor: int) -> list[str]:
    """A note if Delta's own VACUUM LITE will refuse the shorter log."""
    try:
        body = read.content(location, f"{LOG}/_last_vacuum_info")
        progress = msgspec.json.decode(body, type=dict[str, object])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    handled = progress.get("latestCommitVersionOutsideOfRetentionWindow")
    if not isinstance(handled, int) or handled + 1 >= anchor:
        return []
    return [
        f"Delta's VACUUM LITE has handled versions up to {handled}: after this cleanup it needs a "
        "full VACUUM first"
    ]
