"""What lies under the root, entry by entry."""

from pathlib import Path

import pytest

from maint_assets.storage import read
from maint_assets.vacuum.listing import Walk, _batched, _tree_rows


def walk_of(path: Path) -> Walk:
    return Walk(table=str(path), partition_columns=[], iceberg=False)


@pytest.mark.parametrize(("limit", "rows"), [(3, 4), (4, 4), (9, 4), (1, 2)])
def test_a_limited_listing_shows_by_its_length_that_it_gave_up(
    tmp_path: Path, limit: int, rows: int
) -> None:
    for name in "abcd":
        (tmp_path / name).touch()

    found = list(_tree_rows(walk_of(tmp_path), limit)([None]))  # type: ignore[list-item]

    assert sum(batch.num_rows for batch in found) == rows


def test_an_entry_that_vanished_does_not_hide_that_a_listing_gave_up(tmp_path: Path) -> None:
    for name in "abcd":
        (tmp_path / name).touch()
    walk = walk_of(tmp_path)
    entries = [("", entry) for entry in read.directory(walk.location, "")]
    (tmp_path / entries[0][1].name).unlink()

    found = list(_batched(walk, entries, limit=2))

    assert sum(batch.num_rows for batch in found) == 3
