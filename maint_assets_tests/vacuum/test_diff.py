"""The planned rows against a simple model in sets; in one task and in buckets of paths."""

import tempfile
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maint_assets.datasets.columns import arrow_schema
from maint_assets.datasets.parts import PartSlice, Target
from maint_assets.delta.names import hadoop_checksum
from maint_assets.delta.paths import parents
from maint_assets.snapshot.schemas import SNAPSHOT_ARROW
from maint_assets.vacuum.diff import FACT_SCHEMA, HELD, MISSING, path_facts, planned_rows
from maint_assets.vacuum.listing import LISTING_SCHEMA
from maint_assets.vacuum.valid_files import VALID_FILES_SCHEMA

Sources = dict[str, tuple[pa.Schema, list[dict[str, Any]]]]

CUTOFF_MS = 100

DIRECTORIES = ("a", "a/b", "a/b/c", "d", "_p=1")
FILES = ("x", "y", *(f"{directory}/{name}" for directory in DIRECTORIES for name in "xy"))

ages = st.sampled_from([CUTOFF_MS - 1, CUTOFF_MS, CUTOFF_MS + 1])
entries = st.fixed_dictionaries({}, optional={p: st.tuples(ages, st.booleans()) for p in FILES})
checksums = st.fixed_dictionaries(
    {}, optional={p: st.tuples(ages, st.sampled_from([8, 12, 9])) for p in FILES}
)
directories = st.fixed_dictionaries({}, optional=dict.fromkeys(DIRECTORIES, ages))
valid = st.dictionaries(st.sampled_from(FILES), st.sampled_from(["active", "tombstone"]))
removed = st.dictionaries(st.sampled_from(FILES), st.sampled_from([None, 3, 7]))


def listed(
    files: dict[str, tuple[int, bool]], beside: dict[str, tuple[int, int]], found: dict[str, int]
) -> list[dict[str, Any]]:
    rows = [(path, 5, ms, False, hidden) for path, (ms, hidden) in files.items()]
    rows += [(hadoop_checksum(p), size, ms, False, False) for p, (ms, size) in beside.items()]
    rows += [(path, 0, ms, True, False) for path, ms in found.items()]
    return [
        {
            "path": path,
            "parent": path.rpartition("/")[0],
            "size": size,
            "modified_ms": ms,
            "is_dir": is_dir,
            "hidden": hidden,
            "nested_table": False,
        }
        for path, size, ms, is_dir, hidden in rows
    ]


def tombstones(versions: dict[str, int | None]) -> list[dict[str, Any]]:
    """Two tombstones of each removed file: the other is of an older commit."""
    return [
        {"action": "remove", "path": path, "inside": True, "deletion_ms": 9, "version": version}
        for path, newest in versions.items()
        for version in (1, newest)
    ]


def plan(sources: Sources, buckets: int) -> set[tuple[Any, ...]]:
    with tempfile.TemporaryDirectory() as made:
        read = [
            PartSlice(part.path, source, 0, part.rows)
            for source, (schema, rows) in sources.items()
            for part in Target(str(Path(made, source)), schema, {})
            .written(pa.Table.from_pylist(rows, schema).to_batches())
            .parts
        ]
        every = pa.Table.from_batches(
            path_facts(read, cutoff_ms=CUTOFF_MS), arrow_schema(FACT_SCHEMA)
        )
    bucket = [zlib.crc32(path.encode()) % buckets for path in every["path"].to_pylist()]
    return {
        (row["path"], row["kind"], row["removed_in_version"])
        for number in range(buckets)
        for batch in planned_rows(
            every.filter(pa.array([each == number for each in bucket], pa.bool_())).to_batches(),
            are_missing=lambda paths: pa.repeat(pa.scalar(value=True), len(paths)),
        )
        for row in batch.to_pylist()
    }


def model(
    files: dict[str, tuple[int, bool]],
    beside: dict[str, tuple[int, int]],
    found: dict[str, int],
    kept: dict[str, str],
    versions: dict[str, int | None],
) -> set[tuple[Any, ...]]:
    """The same plan in sets, file by file."""
    stays = {path for path, (ms, hidden) in files.items() if hidden or ms >= CUTOFF_MS}
    fresh = {path for path, ms in found.items() if ms >= CUTOFF_MS}
    goes = set(files) - stays - set(kept)
    sums = {path for path, (ms, size) in beside.items() if ms < CUTOFF_MS and size != 9}
    keeping = (*stays, *kept, *fresh, *(set(beside) - sums))
    needed = fresh | {above for path in keeping for above in parents(path)}
    unneeded = {path for path in sums if path in goes or path not in {*files, *kept}}
    gone = {
        (path, "removed", versions[path] or 1) if path in versions else (path, "orphan", None)
        for path in goes
    }
    emptied = {(path, "directory", None) for path in set(found) - needed}
    missing = {
        (path, MISSING, None)
        for path, reason in kept.items()
        if reason == "active" and path not in files and path not in found
    }
    held = {
        (path, HELD, version or 0)
        for path, newest in versions.items()
        for version in (1, newest)
        if path in stays
    }
    summed = {(hadoop_checksum(path), "checksum", None) for path in unneeded}
    return gone | emptied | missing | held | summed


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    files=entries,
    beside=checksums,
    found=directories,
    kept=valid,
    versions=removed,
    buckets=st.integers(1, 4),
)
def test_diff_is_what_a_plain_model_says(
    files: dict[str, tuple[int, bool]],
    beside: dict[str, tuple[int, int]],
    found: dict[str, int],
    kept: dict[str, str],
    versions: dict[str, int | None],
    buckets: int,
) -> None:
    reasons = [{"path": path, "reason": reason} for path, reason in kept.items()]
    sources = {
        "snapshot": (SNAPSHOT_ARROW, tombstones(versions)),
        "valid_files": (arrow_schema(VALID_FILES_SCHEMA), reasons),
        "listing": (arrow_schema(LISTING_SCHEMA), listed(files, beside, found)),
    }

    assert plan(sources, buckets) == model(files, beside, found, kept, versions)
