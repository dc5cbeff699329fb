"""Rewrites by hand, for stories about their commit: live files of a table, merged bin by bin."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from maint_assets.commit.rewrite.values import DroppedBin, RewriteRequest, RewrittenBin
from maint_assets.delta.actions import Add, actions
from maint_assets.snapshot.head import TableHead, table_head
from maint_assets.storage.location import Location
from maint_assets_tests.support.builder import TableBuilder


def head_of(path: Path) -> TableHead:
    return table_head(Location.of(str(path)))


def live(path: Path) -> dict[str, Add]:
    """The live files by their path in the log, which must still have all commits."""
    found: dict[str, Add] = {}
    for commit in sorted((path / "_delta_log").glob("*.json")):
        for action in actions(commit.read_bytes(), table=str(path), file=commit.name):
            if action.remove is not None:
                found.pop(action.remove.path, None)
        for action in actions(commit.read_bytes(), table=str(path), file=commit.name):
            if action.add is not None:
                found[action.add.path] = action.add
    return found


def merged(
    path: Path, name: str, *inputs: str, keep_row_ids: tuple[str, str] | None = None
) -> RewrittenBin:
    """A bin whose inputs, given by the end of their paths, are merged into one new file.

    ``keep_row_ids`` are the names of the columns for row ids and commit versions.
    """
    files = [add for key, add in live(path).items() if key.endswith(inputs or "")]
    tables = [_rows(path, add, keep_row_ids) for add in files]
    whole = pa.concat_tables(tables, promote_options="default")
    file = path / f"{name}.parquet"
    pq.write_table(whole, file)
    output = Add(
        path=file.name,
        size=file.stat().st_size,
        partition_values=files[0].partition_values,
        modification_time=int(file.stat().st_mtime * 1000),
        stats=json.dumps({"numRecords": len(whole)}),
    )
    return RewrittenBin(name, tuple(files), (output,))


def _rows(path: Path, add: Add, keep_row_ids: tuple[str, str] | None) -> pa.Table:
    rows = pq.ParquetFile(path / unquote(add.path)).read()
    if keep_row_ids is None:
        return rows
    assert add.base_row_id is not None
    ids = pa.array(range(add.base_row_id, add.base_row_id + len(rows)), pa.int64())
    versions = pa.array([add.default_row_commit_version] * len(rows), pa.int64())
    for column, fresh in zip(keep_row_ids, (ids, versions), strict=True):
        known = rows[column] if column in rows.column_names else pa.nulls(len(rows), pa.int64())
        rows = rows.drop_columns([column] if column in rows.column_names else [])
        rows = rows.append_column(column, pc.coalesce(known, fresh))
    return rows


@dataclass
class Terms:
    """The defaults of a request; the clock is fixed, and pauses are only recorded."""

    operation: Any = "OPTIMIZE"
    txn_id: str = "txn-1"
    now_ms: int = 1_000_000
    row_ids_kept: bool = False
    attempts: int = 5
    pauses: list[float] = field(default_factory=list[float])

    def request(self) -> RewriteRequest:
        return RewriteRequest(
            operation=self.operation,
            parameters={"predicate": "[]", "zOrderBy": "[]", "clusterBy": "[]", "auto": False},
            txn_id=self.txn_id,
            deletion_timestamp_ms=self.now_ms - 1,
            now_ms=lambda: self.now_ms,
            row_ids_kept=self.row_ids_kept,
            attempts=self.attempts,
            sleep=self.pauses.append,
            random=lambda: 0.5,
        )


def lines(path: Path, version: int) -> list[dict[str, Any]]:
    """The actions of a commit as they were written."""
    text = (path / f"_delta_log/{version:020}.json").read_text()
    return [json.loads(line) for line in text.splitlines()]


def of_kind(path: Path, version: int, kind: str) -> list[dict[str, Any]]:
    return [line[kind] for line in lines(path, version) if kind in line]


def backfilled(add: Add, **fields: Any) -> dict[str, Any]:
    """The add action of a live file again, with other fields."""
    return {"add": msgspec.to_builtins(add) | {"dataChange": False} | fields}


def names(bins: Iterable[RewrittenBin | DroppedBin]) -> list[str]:
    return [each.bin for each in bins]


def table_of(path: Path, **options: Any) -> TableBuilder:
    """A table of four files, a to d, added by one version each."""
    return TableBuilder(path).create(**options).add("a").add("b").add("c").add("d")


def two_bins(path: Path) -> tuple[TableHead, list[RewrittenBin]]:
    """The head of that table, and its files merged in two bins."""
    return head_of(path), [merged(path, "ab", "a", "b"), merged(path, "cd", "c", "d")]
