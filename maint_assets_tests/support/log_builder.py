"""Real tables of tiny commits whose logs hold any files of any age, for stories about cleanup.

    LogBuilder(tmp_path).commits([40, 39, 38]).checkpoint(1).checksum(2).hint()

Version 0 creates the table and is empty; each later version V adds one file with the one row of
id V-1, so version V has the ids below V. By default a version's files are as old as its commit.
"""

import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

from typing_extensions import Self

from maint_assets.delta.names import checksum_name, commit_name
from maint_assets_tests.support import checkpoints
from maint_assets_tests.support.builder import DAY_MS, TableBuilder

Action = dict[str, Any]

IN_COMMIT_TIMESTAMPS = {"delta.enableInCommitTimestamps": "true"}
_NAMES = UUID(int=0)
_ONCE = ('{"protocol"', '{"metaData"')


@dataclass(frozen=True, slots=True)
class _Step:
    """A commit and the state after it, from which its other files can be written at any time."""

    at_ms: int
    text: str
    state: checkpoints.State
    totals: Action


class LogBuilder:
    """A table and its log at ``path``; methods write at once and return the builder.

    Names are relative to ``_delta_log``; ``written`` are those of the last step. Times are mtimes
    in ms. V2 checkpoints need the feature v2Checkpoint; in-commit timestamps need the feature
    inCommitTimestamp as well as the property.
    """

    def __init__(
        self,
        path: Path,
        *,
        now_ms: int | None = None,
        features: Sequence[str] = (),
        configuration: Mapping[str, str] | None = None,
    ) -> None:
        self.table = TableBuilder(path, now_ms=now_ms)
        self.path = path
        self.log = self.table.log
        self.now_ms = self.table.now_ms
        self.written: list[str] = []
        self.sidecars: dict[str, int] = {}
        """The version of the checkpoint that each sidecar (by its file name) was written for."""
        self._features = features
        self._configuration = dict(configuration or {})
        self._steps: list[_Step] = []
        self._newest_checkpoint = -1
        self._in_commit_ms: int | None = None
        self._uuids = 0

    @property
    def version(self) -> int:
        """The newest version; -1 before the first commit."""
        return self.table.version

    def ago_ms(self, days: float) -> int:
        """The time that many days before ``now_ms``."""
        return self.now_ms - int(days * DAY_MS)

    def commit_ms(self, version: int) -> int:
        """The mtime of a commit."""
        return self._steps[version].at_ms

    def commits(self, ages_days: Iterable[float], *, checksums: bool = False) -> Self:
        """One commit of each age, in this order, with or without checksums."""
        for age in ages_days:
            self.commit(at_ms=self.ago_ms(age))
            if checksums:
                self.checksum(self.version)
        return self

    def commit(
        self, *actions: Action, at_ms: int | None = None, in_commit_ms: int | None = None
    ) -> Self:
        """A commit of one new file and these actions, by default a second after the last one."""
        table, at_ms = self.table, self.table.clock_ms if at_ms is None else at_ms
        table.clock_ms = at_ms
        self._stamp(at_ms if in_commit_ms is None else in_commit_ms, actions)
        if self.version < 0:
            table.create(features=self._features, configuration=self._configuration)
        else:
            added = table.added(f"{self.version + 1}.parquet", rows=1)
            table.commit([*actions, added], operation="WRITE")
        name = commit_name(self.version)
        text = (self.log / name).read_text(encoding="utf-8")
        totals = table.totals() | _present(inCommitTimestampOpt=self._in_commit_ms)
        self._steps.append(_Step(at_ms, text, table.state(), totals))
        return self._wrote(name)

    def configure(self, configuration: Mapping[str, str], *, at_ms: int | None = None) -> Self:
        """A commit that also sets table properties."""
        found = self.table.metadata
        changed = found | {"configuration": found["configuration"] | dict(configuration)}
        return self.commit({"metaData": changed}, at_ms=at_ms)

    def enable_in_commit_timestamps(self, *, at_ms: int) -> Self:
        """Enable in-commit timestamps from this commit on."""
        since = {
            "delta.inCommitTimestampEnablementVersion": str(self.version + 1),
            "delta.inCommitTimestampEnablementTimestamp": str(at_ms),
        }
        return self.configure(IN_COMMIT_TIMESTAMPS | since, at_ms=at_ms)

    def checksum(self, version: int, *, at_ms: int | None = None) -> Self:
        """The checksum of a version."""
        text = json.dumps(self._steps[version].totals)
        return self.write(checksum_name(version), text, self._at(version, at_ms))

    def checkpoint(
        self,
        version: int,
        kind: str = "classic",
        *,
        parts: int = 1,
        missing: Collection[int] = (),
        empty: bool = False,
        at_ms: int | None = None,
    ) -> Self:
        """A checkpoint of a version; kinds as in ``TableBuilder.checkpoint``.

        ``parts`` is the number of parts or sidecars; those in ``missing`` (from 1) are deleted.
        ``empty`` makes the files empty, except for sidecars.
        """
        uuids = [self._uuid() for _ in range(parts + 1)]
        state = self._steps[version].state
        files = checkpoints.write(self.log, state, kind, parts=parts, uuids=uuids)
        for number in missing:
            files[number - 1].unlink()
        kept = [file for number, file in enumerate(files, start=1) if number not in missing]
        for file in kept if empty else ():
            if file.parent == self.log:
                file.write_bytes(b"")
        return self._checkpointed(version, kept, at_ms)

    def shared_checkpoint(self, version: int, older: str, *, at_ms: int | None = None) -> Self:
        """A V2 JSON checkpoint with one new sidecar and all those of the checkpoint ``older``."""
        lines = (self.log / older).read_text().splitlines()
        shared = [line for line in lines if line.startswith('{"sidecar"')]
        base = int(older.partition(".")[0])
        state, known = self._steps[version].state, len(self._steps[base].state.files)
        newer = replace(state, files=state.files[known:])
        uuids = [self._uuid(), self._uuid()]
        files = checkpoints.write(self.log, newer, "v2-json", parts=1, uuids=uuids)
        with files[-1].open("a") as top:
            top.writelines(line + "\n" for line in shared)
        return self._checkpointed(version, files, at_ms)

    def compaction(self, start: int, end: int, *, at_ms: int | None = None) -> Self:
        """A log compaction file for a range of commits."""
        lines = [line for step in self._steps[start : end + 1] for line in step.text.splitlines()]
        last = {line[:11] if line.startswith(_ONCE) else line: line for line in lines}
        actions = [line + "\n" for line in last.values() if not line.startswith('{"commitInfo"')]
        name = f"{start:020}.{end:020}.compacted.json"
        return self.write(name, "".join(actions), self._at(end, at_ms))

    def staged(self, version: int, *, at_ms: int | None = None) -> Self:
        """A staged copy of a commit; above the newest version, one that was never ratified."""
        step = self._steps[min(version, self.version)]
        name = f"_staged_commits/{version:020}.{self._uuid()}.json"
        return self.write(name, step.text, step.at_ms if at_ms is None else at_ms)

    def hint(
        self, version: int | None = None, *, parts: int | None = None, at_ms: int | None = None
    ) -> Self:
        """``_last_checkpoint``: for any version, or that of the newest checkpoint, complete or not.

        No other step writes it.
        """
        named = self._newest_checkpoint if version is None else version
        found = {"version": named, "size": -1} | _present(parts=parts)
        return self.write("_last_checkpoint", json.dumps(found), self._at(self.version, at_ms))

    def write(self, name: str, text: str, at_ms: int) -> Self:
        """Write a file with any name and text: a corrupt hint, a temporary file."""
        file = self.log / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        self._touch(file, at_ms)
        return self._wrote(name)

    def touch(self, at_ms: int, *names: str) -> Self:
        """Set the mtime of these files, by default of those that the last step wrote."""
        for name in names or self.written:
            self._touch(self.log / name, at_ms)
        return self

    def drop(self, *names: str) -> Self:
        """Delete these files."""
        for name in names:
            (self.log / name).unlink()
        return self

    def _stamp(self, in_commit_ms: int, actions: Sequence[Action]) -> None:
        """In-commit timestamps, ascending, from the commit on that enables them."""
        found = [action["metaData"]["configuration"] for action in actions if "metaData" in action]
        self._configuration = [self._configuration, *found][-1]
        enabled = self._configuration.items() >= IN_COMMIT_TIMESTAMPS.items()
        following = max(in_commit_ms, (self._in_commit_ms or 0) + 1)
        self._in_commit_ms = following if enabled else None
        self.table.info = _present(inCommitTimestamp=self._in_commit_ms)

    def _checkpointed(self, version: int, files: Iterable[Path], at_ms: int | None) -> Self:
        names = [str(file.relative_to(self.log)) for file in files]
        self._newest_checkpoint = max(self._newest_checkpoint, version)
        self.sidecars |= {file.name: version for file in files if file.parent != self.log}
        return self._wrote(*names).touch(self._at(version, at_ms))

    def _wrote(self, *names: str) -> Self:
        self.written = list(names)
        return self

    def _at(self, version: int, at_ms: int | None) -> int:
        return self._steps[version].at_ms if at_ms is None else at_ms

    def _touch(self, file: Path, at_ms: int) -> None:
        os.utime(file, ns=(at_ms * 1_000_000, at_ms * 1_000_000))

    def _uuid(self) -> str:
        self._uuids += 1
        return str(uuid5(_NAMES, str(self._uuids)))


def _present(**values: object) -> Action:
    return {key: value for key, value in values.items() if value is not None}
