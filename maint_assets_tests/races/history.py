"""The log of a table after a race, read by hand: what each commit did, and which faults it has."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

Action = dict[str, Any]


@dataclass(frozen=True)
class Commit:
    """One commit, with its actions as written."""

    version: int
    info: Action
    adds: list[Action]
    removes: list[Action]

    @classmethod
    def of(cls, path: Path) -> Commit:
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        infos, adds, removes = (
            [line[kind] for line in lines if kind in line]
            for kind in ("commitInfo", "add", "remove")
        )
        return cls(int(path.stem), infos[0], adds, removes)

    @property
    def is_ours(self) -> bool:
        return self.info.get("engineInfo", "").startswith("maint-assets/")

    @property
    def changes_data(self) -> bool:
        return any(action["dataChange"] for action in (*self.adds, *self.removes))


@dataclass(repr=False)
class History:
    """All commits of a table in order; ``live`` are the last adds by their path.

    ``faults`` are files that were added or removed twice: rows that were doubled or lost.
    """

    table: Path
    commits: list[Commit] = field(default_factory=list[Commit])
    live: dict[str, Action] = field(default_factory=dict[str, Action])
    named: set[str] = field(default_factory=set[str])
    removed_by_us: set[str] = field(default_factory=set[str])
    faults: list[str] = field(default_factory=list[str])

    @classmethod
    def of(cls, table: Path) -> History:
        found = cls(table)
        log = (path for path in (table / "_delta_log").glob("*.json") if path.stem.isdigit())
        for path in sorted(log):
            found.take(Commit.of(path))
        return found

    def take(self, commit: Commit) -> None:
        """Check a commit against the live files, then apply it."""
        if commit.version != len(self.commits):
            self.faults.append(f"{commit.version} follows {len(self.commits) - 1}")
        for remove in commit.removes:
            was = self.live.pop(remove["path"], None)
            if was is None or _vector(was) != _vector(remove):
                self.faults.append(f"{commit.version} removes {remove['path']}, which is not live")
            if commit.is_ours:
                self.removed_by_us.add(remove["path"])
        for add in commit.adds:
            path, was = add["path"], self.live.get(add["path"])
            is_renewed = was is not None and not commit.is_ours and not add["dataChange"]
            if was is not None and (not is_renewed or _vector(was) != _vector(add)):
                self.faults.append(f"{commit.version} adds {path}, which is live")
            if commit.is_ours and path in self.named:
                self.faults.append(f"{commit.version} of ours adds {path} again")
            self.live[path] = add
            self.named.add(path)
        self.commits.append(commit)

    @property
    def ours(self) -> list[Commit]:
        """Our commits that rewrote files."""
        return [commit for commit in self.commits if commit.is_ours and commit.removes]

    @property
    def theirs(self) -> list[Commit]:
        return [commit for commit in self.commits if not commit.is_ours]

    @property
    def files_by_partition(self) -> Counter[str]:
        return Counter(json.dumps(add["partitionValues"]) for add in self.live.values())

    def own_orphans(self) -> list[str]:
        """Data files of ours that no commit names."""
        files = (path for path in self.table.rglob("*.parquet") if "_delta_log" not in path.parts)
        unnamed = (path for path in files if str(path.relative_to(self.table)) not in self.named)
        return [str(path) for path in unnamed if _is_ours(path)]


def _vector(action: Action) -> str:
    return json.dumps(action.get("deletionVector"), sort_keys=True)


def _is_ours(path: Path) -> bool:
    """Whether Arrow wrote a file; False for an unfinished one."""
    try:
        return "parquet-cpp" in pq.read_metadata(path).created_by
    except (OSError, ValueError):  # unfinished, or by Delta's own writers
        return False
