"""Where the kept log begins: the anchor by PROTOCOL's "Metadata Cleanup", or why nothing goes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from maint_assets.log_cleanup.new_anchor import refused_anchor
from maint_assets.log_cleanup.protection import is_protected
from maint_assets.log_cleanup.soundness import soundness_of_each
from maint_assets.snapshot.log import LOG
from maint_assets.storage import read

if TYPE_CHECKING:
    from maint_assets.log_cleanup.commit_times import CommitTimes
    from maint_assets.log_cleanup.log_directory import LogDirectory
    from maint_assets.log_cleanup.plan import Terms
    from maint_assets.snapshot.log import Checkpoint
    from maint_assets.storage.location import Location

_AT_ONCE = 4
"""How many checkpoints one replay of the commits compares: each is read whole."""


@dataclass(frozen=True)
class Boundary:
    """Where the kept log begins, or why nothing goes."""

    anchor: int | None
    stop_reason: str | None = None
    cutoff: int | None = None
    creates: bool = False
    rejected: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def boundary(log: LogDirectory, times: CommitTimes, terms: Terms) -> Boundary:
    """The anchor by PROTOCOL, opened before anything is planned on it."""
    cutoff = times.newest_until(terms.cutoff_ms)
    if cutoff is None:
        return Boundary(None, "no_expired_commit")
    bound = min(cutoff, cutoff if terms.min_keep_version is None else terms.min_keep_version)
    older = [each for each in log.checkpoints if each.version <= bound]
    anchor, rejected, notes = _sound(log, older)
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


def _sound(
    log: LogDirectory, candidates: list[Checkpoint]
) -> tuple[int | None, list[str], list[str]]:
    """The version of the newest sound checkpoint, what is wrong with others, notes.

    Some older ones are looked at, too: the same replay meets them, and a person should know.
    """
    rejected: list[str] = []
    for first in range(0, len(candidates), _AT_ONCE):
        some = candidates[first : first + _AT_ONCE]
        found = soundness_of_each(log, some)
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
