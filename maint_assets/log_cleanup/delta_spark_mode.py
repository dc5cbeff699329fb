"""Mode ``spark``: the files that the log cleanup of Delta Spark 4.4 would delete, for comparison.

It uses file times, and deletes everything before the newest checkpoint whose predecessor has
expired. It neither opens that checkpoint nor keeps the version that time travel to the cutoff
needs. Oddities of the original are reproduced on purpose.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from maint_assets.delta.features import Operation, unsupported
from maint_assets.delta.hint import parse_hint
from maint_assets.delta.names import LogFile, staged_version
from maint_assets.log_cleanup.checkpoints.sidecars import named_sidecars
from maint_assets.log_cleanup.log_directory import CHECKPOINT_KINDS
from maint_assets.log_cleanup.protection import protocol_of_checksum
from maint_assets.snapshot.log import HINT, STAGED
from maint_assets.storage import read

if TYPE_CHECKING:
    from collections.abc import Iterable

    from maint_assets.log_cleanup.log_directory import LogDirectory
    from maint_assets.log_cleanup.plan import Terms

Row = dict[str, Any]


def hinted_version(log: LogDirectory) -> int | None:
    """The version in ``_last_checkpoint``; that of the newest checkpoint if it cannot be parsed.

    None without that file: then Delta Spark deletes nothing.
    """
    try:
        hint = parse_hint(read.content(log.location, HINT))
    except OSError:
        return None
    if hint is not None:
        return hint.version
    return log.checkpoints[0].version if log.checkpoints else None


def expired_by_files(log: LogDirectory, terms: Terms, *, hinted: int) -> tuple[set[str], bool]:
    """The paths to delete, and whether checkpoint protection forbids to delete any."""
    rows = log.of("commit", "checksum", *CHECKPOINT_KINDS).sort_by("path").to_pylist()
    expired, late = _released(rows, cutoff_ms=terms.cutoff_ms, newest=hinted - 1)
    if not late and _is_forbidden(log, expired, before=terms.protection_before):
        return set(), True
    paths = {row["path"] for row in expired}
    commits = [row["version"] for row in expired if row["kind"] == "commit"]
    staged, is_complete = _staged(log, newest=max(commits, default=-1))
    if (
        is_complete
        and terms.has_sidecars
        and any(row["kind"] in CHECKPOINT_KINDS for row in expired)
    ):
        staged |= _unreferenced(log, expired=paths, cutoff_ms=terms.cutoff_ms)
    return paths | staged, False


def _released(rows: list[Row], *, cutoff_ms: int, newest: int) -> tuple[list[Row], bool]:
    """The files released by Delta's BufferingLogDeletionIterator, and whether the first run of
    files was skipped.

    Files are buffered up to each checkpoint, and such a run is released while its last file has
    expired. Delta asks the iterator twice for a first file, and each time it goes on to the next
    checkpoint; the check of checkpoint protection asks only once.
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
    """The files of a checkpoint that this one completes; None while parts are missing."""
    if row["kind"] != "checkpoint_part":
        return [row]
    file = LogFile.parse(row["path"].rpartition("/")[2])
    assert file is not None, "a part has the name of one"
    found = parts.setdefault((file.version, file.parts), [])
    found.append(row)
    return parts.pop((file.version, file.parts)) if len(found) == file.parts else None


def _is_forbidden(log: LogDirectory, expired: Iterable[Row], *, before: int) -> bool:
    """Delta Spark's check of checkpoint protection: a checkpoint at the boundary satisfies it."""
    if before <= 0 or not expired:
        return False
    commits = [row["version"] for row in expired if row["kind"] == "commit"]
    below = [version for version in commits if version <= before - 1]
    end = max(below, default=0)
    if end >= before - 1 or any(each.version == end + 1 for each in log.checkpoints):
        return False
    span = range(min(below, default=end + 2), end + 2)
    # Without a single checksum Delta Spark skips this check.
    if not any(version in span for version in log.of("checksum")["version"].to_pylist()):
        return False
    for version in span:
        protocol = protocol_of_checksum(log.location, version)
        operation = Operation.CLEAN_LOG if version == end + 1 else Operation.READ
        if protocol is None or unsupported(protocol, operation):
            return True
    return False


def _staged(log: LogDirectory, *, newest: int) -> tuple[set[str], bool]:
    """Staged commits up to a version, and whether the whole directory was read.

    A foreign file name ends Delta's cleanup with an error.
    """
    found: set[str] = set()
    entries = [name for batch in read.directory(log.location, STAGED) for name in batch.names]
    for name in sorted(filter(read.is_utf8, (name for name in entries if name >= f"{0:020d}."))):
        version = staged_version(name)
        if version is None:
            return found, False
        if version > newest:
            break
        found.add(f"{STAGED}/{name}")
    return found, True


def _unreferenced(log: LogDirectory, *, expired: set[str], cutoff_ms: int) -> set[str]:
    """Expired sidecars that no kept checkpoint names; none if no checkpoint is kept."""
    checkpoints = log.of("checkpoint", "v2_checkpoint")["path"].to_pylist()
    if expired.issuperset(checkpoints):
        return set()
    found = log.checkpoint_files("checkpoint", "v2_checkpoint")
    named = named_sidecars(log.location, (each for each in found if each.path not in expired))
    return {
        row["path"]
        for row in log.of("sidecar").to_pylist()
        if row["modified_ms"] < cutoff_ms and row["path"] not in named
    }
