"""Where the kept log begins: the anchor by PROTOCOL's "Metadata Cleanup", or why nothing goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from maint_assets.log_cleanup.commit_times import CommitTimes
from maint_assets.log_cleanup.new_anchor import refused_anchor
from maint_assets.log_cleanup.protection import is_protected
from maint_assets.log_cleanup.soundness import soundness_of_each
from maint_assets.snapshot.log import LOG
from maint_assets.storage import read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from maint_assets.log_cleanup.comparing import Cluster
    from maint_assets.log_cleanup.log_directory import LogDirectory
    from maint_assets.log_cleanup.plan import Terms
    from maint_assets.log_cleanup.soundness import Soundness
    from maint_assets.snapshot.log import Checkpoint
    from maint_assets.storage.location import Location

_AT_ONCE = 4
"""How many checkpoints one replay of the commits compares: each is read whole."""

Proven = Mapping["Checkpoint", "Soundness"]

NOTHING_PROVEN: Proven = MappingProxyType({})


@dataclass(frozen=True)
class Boundary:
    """Where the kept log begins, or why nothing goes."""

    anchor: int | None
    stop_reason: str | None = None
    cutoff: int | None = None
    creates: bool = False
    rejected: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def boundary(
    log: LogDirectory, times: CommitTimes, terms: Terms, *, proven: Proven = NOTHING_PROVEN
) -> Boundary:
    """The anchor by PROTOCOL, opened before anything is planned on it.

    ``proven`` is what ``proven_anchors`` found; other checkpoints are compared in this process.
    """
    cutoff = times.newest_until(terms.cutoff_ms)
    if cutoff is None:
        return Boundary(None, "no_expired_commit")
    bound = _bound(cutoff, terms)
    anchor, rejected, notes = _sound(log, bound, proven)
    creates = anchor is None and terms.creates_anchor
    if creates and (why := refused_anchor(log, bound)) is not None:
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
    """The soundness of the checkpoints that ``boundary`` looks at, compared on executors."""
    found: dict[Checkpoint, Soundness] = {}
    cutoff = CommitTimes(log, terms.in_commit).newest_until(terms.cutoff_ms)
    for some in () if cutoff is None else _candidates(log, _bound(cutoff, terms)):
        found |= soundness_of_each(log, some, cluster=cluster)
        if any(found[each].fault is None for each in some):
            break
    return found


def _bound(cutoff: int, terms: Terms) -> int:
    """The newest version that the log may begin with."""
    return cutoff if terms.min_keep_version is None else min(cutoff, terms.min_keep_version)


def _candidates(log: LogDirectory, bound: int) -> Iterator[list[Checkpoint]]:
    """The checkpoints up to a version, newest first, as many together as are compared at once."""
    older = [each for each in log.checkpoints if each.version <= bound]
    for first in range(0, len(older), _AT_ONCE):
        yield older[first : first + _AT_ONCE]


def _sound(
    log: LogDirectory, bound: int, proven: Proven
) -> tuple[int | None, list[str], list[str]]:
    """The version of the newest sound checkpoint, what is wrong with others, notes.

    Some older ones are looked at, too: the same replay meets them, and a person should know.
    """
    rejected: list[str] = []
    for some in _candidates(log, bound):
        unproven = [each for each in some if each not in proven]
        found = {**proven, **(soundness_of_each(log, unproven) if unproven else {})}
        rejected += [fault for each in some if (fault := found[each].fault) is not None]
        sound = next((each for each in some if found[each].fault is None), None)
        if sound is not None:
            note = found[sound].note
            return sound.version, rejected, [note] if note else []
    return None, rejected, []


def _notes(location: Location, anchor: int) -> list[str]:
    """What a VACUUM LITE by Delta will say of the shorter log."""
    try:
        body = read.content(location, f"{LOG}/_last_vacuum_info")
        told = msgspec.json.decode(body, type=dict[str, object])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    handled = told.get("latestCommitVersionOutsideOfRetentionWindow")
    if not isinstance(handled, int) or handled + 1 >= anchor:
        return []
    return [f"Delta's VACUUM LITE has come to version {handled}: it needs a full VACUUM first"]
