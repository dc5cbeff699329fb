"""The listing of the files under the root, entry by entry."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maint_assets.delta.names import is_hidden
from maint_assets.storage import local, read
from maint_assets.storage.location import Location
from maint_assets.vacuum.listing import _batched, _rows, _Top, _tree_rows
from maint_assets.vacuum.walk import Walk

NAMES = st.sampled_from(["_", ".", "_p=1", "_delta_index", "_change_data", "metadata", "x_", "p"])


def walk_of(path: Path) -> Walk:
    return Walk(location=Location(str(path)), partition_columns=[], iceberg=False)


@pytest.mark.parametrize(("limit", "gave_up"), [(3, True), (4, False), (9, False), (1, True)])
def test_a_limited_listing_shows_by_its_length_that_it_gave_up(
    tmp_path: Path, limit: int, gave_up: bool
) -> None:
    for name in "abcd":
        (tmp_path / name).touch()

    found = list(_tree_rows(walk_of(tmp_path), limit)([_Top("", deep=True)]))

    assert (sum(batch.num_rows for batch in found) > limit) == gave_up


def test_an_entry_that_vanished_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abcd":
        (tmp_path / name).touch()
    taken = local.itertools.islice

    def late(entries: object, count: int) -> list[object]:
        found = list(taken(entries, count))  # type: ignore[call-overload]
        (tmp_path / "c").unlink(missing_ok=True)
        return found

    monkeypatch.setattr(local.itertools, "islice", late)
    walk = walk_of(tmp_path)
    [entries] = read.directory(walk.location, "")

    assert sorted(entries.names) == ["a", "b", "d"]
    [rows] = _batched(walk, [("", entries)])
    assert rows["is_dir"].to_pylist() == [False] * 3


@given(name=st.text(min_size=1) | NAMES, iceberg=st.booleans(), column=st.sampled_from("p_"))
def test_a_row_is_hidden_by_the_rule_of_names(name: str, iceberg: bool, column: str) -> None:
    walk = Walk(location=Location("/"), partition_columns=[column, "_p"], iceberg=iceberg)
    name = name.encode("utf-8", "replace").decode()
    entries = read.Entries([name], [0o100644], [1], [1])

    rows = _rows(walk, [("d/", entries)])

    hidden = is_hidden(name, [column, "_p"], iceberg=iceberg)
    assert rows.to_pylist() == [
        {
            "path": f"d/{name}",
            "parent": "d",
            "size": 1,
            "modified_ms": 1,
            "is_dir": False,
            "hidden": hidden,
            "nested_table": False,
        }
    ]


@pytest.mark.parametrize("modified_ns", [-1_500_001, 0, 10_413_792_000 * 10**9 + 1])
def test_any_time_of_a_file_is_listed_as_a_deletion_will_see_it(
    tmp_path: Path, modified_ns: int
) -> None:
    (tmp_path / "a").touch()
    os.utime(tmp_path / "a", ns=(modified_ns, modified_ns))
    walk = walk_of(tmp_path)

    [rows] = _batched(walk, (("", each) for each in read.directory(walk.location, "")))

    found = read.size_and_mtime(walk.location, "a")
    assert [(row["size"], row["modified_ms"]) for row in rows.to_pylist()] == [found]
