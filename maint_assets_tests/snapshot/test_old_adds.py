"""Adds of commits that a checkpoint covers: read only if the checkpoint has no add of the file."""

import json
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from maint_assets.snapshot.file_actions import actions_of
from maint_assets.snapshot.head import table_head
from maint_assets.snapshot.log_units import checkpoint_units, commit_units
from maint_assets.snapshot.schemas import LogUnit
from maint_assets.storage.location import Location
from maint_assets_tests.support.builder import TableBuilder
from maint_assets_tests.support.edits import edit_rows, rewrite


def units(path: Path) -> tuple[list[LogUnit], list[LogUnit]]:
    """The checkpoint of a table, and its commits, all marked as covered by it."""
    head = table_head(Location.of(str(path)))
    commits = [msgspec.structs.replace(unit, covered=True) for unit in commit_units(head)]
    return checkpoint_units(head), commits


def added(path: Path, read: list[LogUnit]) -> list[str]:
    """The paths of all adds that are read, from commits and checkpoint."""
    rows = pa.Table.from_batches(actions_of(Location.of(str(path)), read))
    is_add = pc.and_(pc.equal(rows["what"], "file"), pc.equal(pc.bit_wise_and(rows["ord"], 1), 1))
    return sorted(rows.filter(is_add)["path"].to_pylist())


def test_adds_of_files_that_are_live_in_the_checkpoint_are_read_once(tmp_path: Path) -> None:
    """The adds of its tombstones are read too: the tombstones may be wrong."""
    TableBuilder(tmp_path).create().add("live", "gone").remove("gone").checkpoint()
    checkpoint, commits = units(tmp_path)

    assert added(tmp_path, [*commits, *checkpoint]) == ["gone", "live", "live"]
    assert added(tmp_path, [*checkpoint, *commits]) == ["gone", "live"]


def test_adds_that_a_wrong_checkpoint_lacks_are_read(tmp_path: Path) -> None:
    table = TableBuilder(tmp_path).create().add("live", "lost").checkpoint()
    (file,) = table.log.glob("*.checkpoint.parquet")
    edit_rows(file, lambda row: row["add"] and row["add"].update(path="other"))
    checkpoint, commits = units(tmp_path)

    assert set(added(tmp_path, [*checkpoint, *commits])) == {"live", "lost", "other"}


def test_an_add_with_a_deletion_vector_is_another_file_than_that_without(tmp_path: Path) -> None:
    table = TableBuilder(tmp_path).create().add("live").checkpoint()
    commit = table.log / f"{1:020d}.json"
    lines = [json.loads(line) for line in commit.read_text().splitlines()]
    vector = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4,
              "sizeInBytes": 40, "cardinality": 1}  # fmt: skip
    lines[-1]["add"]["deletionVector"] = vector
    rewrite(commit, "".join(json.dumps(line) + "\n" for line in lines))
    checkpoint, commits = units(tmp_path)

    assert added(tmp_path, [*checkpoint, *commits]) == ["live", "live"]


def test_adds_of_newer_commits_are_always_read(tmp_path: Path) -> None:
    """They may add again what the checkpoint has as removed."""
    TableBuilder(tmp_path).create().add("live", "gone").remove("gone").checkpoint()
    checkpoint, commits = units(tmp_path)
    newer = [msgspec.structs.replace(unit, covered=False) for unit in commits]

    assert added(tmp_path, [*checkpoint, *newer]) == ["gone", "live", "live"]
