"""What delta-spark's cleanup deletes, in its own way (logs.md 11): for comparison, mode ``spark``.

It judges by the time of files, lets go of all before the newest checkpoint whose predecessor has
expired, and asks neither what that checkpoint holds nor which version the cutoff needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from maint_assets.delta.features import Operation, unsupported
from maint_assets.delta.hint import parse_hint
from maint_assets.delta.names import LogFile, staged_version
from maint_assets.log_cleanup.log_directory import CHECKPOINT_KINDS
from maint_assets.log_cleanup.protection import protocol_of_checksum
from maint_assets.log_cleanup.sidecars import named_sidecars
from maint_assets.snapshot.log import HINT, STAGED
from maint_assets.storage import read

if TYPE_CHECKING:
    from collections.abc import Iterable

    from maint_assets.log_cleanup.log_directory import LogDirectory
    from maint_assets.log_cleanup.plan import Terms

Row = dict[str, Any]


def hinted_version(log: LogDirectory) -> int | None:
    """The version of the checkpoint that the hint names; of the newest one where it is broken.

    None without a hint: then Delta deletes nothing.
    """
    try:
        hint = parse_hint(read.content(log.location, HINT))
    except OSError:
        return None
    if hint is not None:
        return hint.version
    return log.checkpoints[0].version if log.checkpoints else None


def expired_by_files(log: LogDirectory, terms: Terms, *, hinted: int) -> tuple[set[str], bool]:
    """The paths that would go, and whether checkpoint protection keeps them all."""
    rows = log.of("commit", "checksum", *CHECKPOINT_KINDS).sort_by("path").to_pylist()
    going, late = _released(rows, cutoff_ms=terms.cutoff_ms, newest=hinted - 1)
    if not late and _is_forbidden(log, going, before=terms.protection_before):
        return set(), True
    paths = {row["path"] for row in going}
    commits = [row["version"] for row in going if row["kind"] == "commit"]
    staged, is_whole = _staged(log, newest=max(commits, default=-1))
    if is_whole and terms.has_sidecars and any(row["kind"] in CHECKPOINT_KINDS for row in going):
        staged |= _unreferenced(log, going=paths, cutoff_ms=terms.cutoff_ms)
    return paths | staged, False


def _released(rows: list[Row], *, cutoff_ms: int, newest: int) -> tuple[list[Row], bool]:
    """The files that Delta's iterator lets go: a run of files up to each checkpoint, as long as
    the last file of the run has expired; and whether it passed over the first run.

    Delta asks its iterator twice for a first file; each time it goes on to the next checkpoint,
    and the check of the protection asks only once.
    """
    released: list[Row] = []
    late = False
    buffer = [dict(row) for row in rows[:1]]
    parts: dict[tuple[int, int], list[Row]] = {}
    last = buffer[0] if buffer else {}
    for found in rows[1:]:
        row, run = dict(found), None
        if last["version"] < row["version"] and last["modified_ms"] >= row["modified_ms"]:
            row["modified_ms"] = last["modified_ms"] + 1
            buffer.append(row)
        elif row["kind"] in CHECKPOINT_KINDS and row["size"]:
            run = _run(row, parts)
        else:
            buffer.append(row)
        last = row
        if run is None:
            continue
        end = buffer[-1]
        if end["modified_ms"] <= cutoff_ms and end["version"] <= newest:
            released += buffer
        elif released or late:
            break
        else:
            late = True
        buffer = run
    return released, late


def _run(row: Row, parts: dict[tuple[int, int], list[Row]]) -> list[Row] | None:
    """The files of a checkpoint that is whole with this one; None while parts are to come."""
    if row["kind"] != "checkpoint_part":
        return [row]
    file = LogFile.parse(row["path"].rpartition("/")[2])
    assert file is not None, "a part has the name of one"
    there = parts.setdefault((file.version, file.parts), [])
    there.append(row)
    return parts.pop((file.version, file.parts)) if len(there) == file.parts else None


def _is_forbidden(log: LogDirectory, going: Iterable[Row], *, before: int) -> bool:
    """Delta's reading of checkpoint protection: a checkpoint at the boundary is enough for it."""
    if before <= 0 or not going:
        return False
    commits = [row["version"] for row in going if row["kind"] == "commit"]
    below = [version for version in commits if version <= before - 1]
    end = max(below, default=0)
    if end >= before - 1 or any(each.version == end + 1 for each in log.checkpoints):
        return False
    span = range(min(below, default=end + 2), end + 2)
    # Without a single checksum Delta has nothing to judge, and goes on.
    if not any(version in span for version in log.of("checksum")["version"].to_pylist()):
        return False
    for version in span:
        protocol = protocol_of_checksum(log.location, version)
        operation = Operation.CLEAN_LOG if version == end + 1 else Operation.READ
        if protocol is None or unsupported(protocol, operation):
            return True
    return False


def _staged(log: LogDirectory, *, newest: int) -> tuple[set[str], bool]:
    """The staged commits up to a version; a foreign name ends Delta's cleanup with an error."""
    found: set[str] = set()
    entries = [name for some in read.directory(log.location, STAGED) for name in some.names]
    for name in sorted(filter(read.is_utf8, (name for name in entries if name >= f"{0:020d}."))):
        version = staged_version(name)
        if version is None:
            return found, False
        if version > newest:
            break
        found.add(f"{STAGED}/{name}")
    return found, True


def _unreferenced(log: LogDirectory, *, going: set[str], cutoff_ms: int) -> set[str]:
    there = log.of("checkpoint", "v2_checkpoint")["path"].to_pylist()
    if going.issuperset(there):
        return set()
    found = log.checkpoint_files("checkpoint", "v2_checkpoint")
    named = named_sidecars(log.location, (each for each in found if each.path not in going))
    return {
        row["path"]
        for row in log.of("sidecar").to_pylist()
        if row["modified_ms"] < cutoff_ms and row["path"] not in named
    }
