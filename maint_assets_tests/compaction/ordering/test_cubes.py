"""Which files are ordered together: the new ones, and those old ones that are worth it."""

from typing import Any

import pyarrow as pa
import pytest

from maint_assets.compaction.ordering import cubes
from maint_assets.compaction.ordering.order import PROVIDER, Ordering
from maint_assets.compaction.plan import Selection
from maint_assets.compaction.planning.candidates import Criteria, candidates
from maint_assets.compaction.planning.packing import compaction_bins
from maint_assets.delta.schema import Field, Primitive
from maint_assets.snapshot.whole.schemas import ADD_ARROW, LIVE_ADDS_ARROW
from maint_assets_tests.support.adds import ROOT, add

Z_ORDER = Ordering((("A",),), (("a",),), clustering=False)
CLUSTERING = Ordering((("A",),), (("a",),), clustering=True)
DAY = Field("day", "day", Primitive("date"), None, {})


def in_cube(path: str, cube: str, size: int = 10, of: Ordering = Z_ORDER, **more: Any) -> Any:
    tags = list(of.tags(cube).items())
    return add(path, size, tags=tags, clusteringProvider=of.provider, **more)


def planned(
    adds: list[dict[str, Any]], ordering: Ordering = Z_ORDER, *parts: Field, **selection: Any
) -> tuple[list[list[str]], dict[str, str], set[str]]:
    """The paths of each bin, the reason of each path, and the paths in bins that are ordered."""
    asked = Selection(**selection)
    arrays = [
        pa.array([each["path"] for each in adds], pa.string()),
        pa.array(["" for _ in adds], pa.string()),
        pa.array(adds, ADD_ARROW),
        pa.repeat(pa.scalar(value=False), len(adds)),
    ]
    batch = pa.RecordBatch.from_arrays(arrays, schema=LIVE_ADDS_ARROW)
    criteria = Criteria(ROOT, parts, asked, ordering=ordering)
    found = compaction_bins(candidates([batch], criteria), asked, ordering=True)
    rows = [row for some in found for row in some.to_pylist()]
    bins: dict[str, list[str]] = {}
    for row in rows:
        if row["bin"] is not None:
            bins.setdefault(row["bin"], []).append(row["path"])
    ordered = {row["path"] for row in rows if row["ordered"]}
    return sorted(bins.values()), {row["path"]: row["reason"] for row in rows}, ordered


@pytest.mark.parametrize("ordering", [Z_ORDER, CLUSTERING])
def test_what_is_not_ordered_is_ordered_whatever_its_size(ordering: Ordering) -> None:
    bins, reasons, ordered = planned([add("a", 1 << 31), add("b"), add("c")], ordering)

    assert bins == [["a", "b", "c"]] and ordered == {"a", "b", "c"}
    assert set(reasons.values()) == {"unordered"}


def test_one_file_alone_is_ordered_too_but_only_once() -> None:
    assert planned([add("a")])[0] == [["a"]]
    assert planned([in_cube("a", "1")])[:2] == ([], {"a": "ordered"})


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("ordering", [Z_ORDER, CLUSTERING])
def test_a_cube_alone_stays(ordering: Ordering, full: bool) -> None:
    adds = [in_cube(name, "1", of=ordering) for name in "abc"]

    assert planned(adds, ordering, full=full)[:2] == ([], dict.fromkeys("abc", "ordered"))


def test_partitions_are_ordered_apart() -> None:
    adds = [
        add("a", partitionValues=[("day", "2026-01-01")]),
        add("b", partitionValues=[("day", "2026-01-02")]),
        add("c", partitionValues=[("day", "2026-01-01")]),
    ]

    assert planned(adds, Z_ORDER, DAY)[0] == [["a", "c"], ["b"]]


def test_a_cube_joins_in_when_it_is_no_larger_than_what_is_ordered_anyway() -> None:
    adds = [
        *(in_cube(name, "large", 30) for name in "ab"),
        in_cube("c", "small", 10),
        in_cube("d", "middle", 20),
        add("new", 10),
    ]

    bins, reasons, ordered = planned(adds)

    assert bins == [["c", "d", "new"]] and ordered == {"c", "d", "new"}
    assert reasons == {
        "a": "ordered", "b": "ordered", "c": "merged", "d": "merged", "new": "unordered"
    }  # fmt: skip


def test_appends_rewrite_each_row_about_as_often_as_the_table_doubles() -> None:
    sizes: dict[str, int] = {}
    rewritten, appends = 0, 200
    for number in range(appends):
        adds = [in_cube(name, name, size) for name, size in sizes.items()] + [add("new", 10)]
        (bin_,) = planned(adds)[0]
        size = sum(sizes.get(name, 10) for name in bin_)
        rewritten += size
        sizes = {name: old for name, old in sizes.items() if name not in bin_}
        sizes[f"cube-{number}"] = size
    assert sum(sizes.values()) == appends * 10
    assert len(sizes) <= 8
    assert rewritten <= appends * 10 * 5


def test_a_large_table_is_cut_into_cubes_that_are_not_touched_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cubes, "CUBE_BYTES", 100)
    adds = [add(name, 40, modificationTime=at) for at, name in enumerate("abcdef")]

    assert planned(adds)[0] == [["a", "b"], ["c", "d"], ["e", "f"]]
    sealed = [in_cube("a", "1", 60), in_cube("b", "2", 60), add("c", 90)]
    assert planned(sealed)[0] == planned(sealed, full=True)[0] == [["c"]]


def test_a_budget_is_no_smaller_than_a_bin() -> None:
    adds = [add(name, 40, modificationTime=at) for at, name in enumerate("abc")]

    assert planned(adds, max_bytes=50)[0] == [["a"], ["b"], ["c"]]


@pytest.mark.parametrize(
    ("budget", "bins"), [(80, ["ab", "cd"]), (249, ["abcd"]), (250, ["abcde"])]
)
def test_a_budget_counts_the_bytes_of_deleted_rows_too(budget: int, bins: list[str]) -> None:
    adds = [add(name, 40, deleted=5, modificationTime=at) for at, name in enumerate("abcd")]
    adds.append(in_cube("e", "1", 90, deleted=9, modificationTime=5))

    found, _, _ = planned(adds, max_bytes=budget, max_deleted_ratio=1)

    assert ["".join(bin_) for bin_ in found] == bins


def test_full_makes_one_cube_of_all() -> None:
    adds = [in_cube("a", "1", 90), in_cube("b", "2", 10)]

    assert planned(adds)[0] == []
    assert planned(adds, full=True)[0] == [["a", "b"]]


def test_a_z_order_by_other_columns_is_none() -> None:
    other = Ordering((("b",),), (("b",),), clustering=False)

    assert planned([in_cube("a", "1", of=other), in_cube("b", "2", 20)])[0] == [["a"]]


def test_what_is_clustered_otherwise_waits_for_full() -> None:
    other = Ordering((("b",),), (("b",),), clustering=True)
    foreign = add("f", clusteringProvider="another", tags=list(CLUSTERING.tags("1").items()))
    adds = [in_cube("a", "1", of=other), in_cube("b", "2", of=CLUSTERING), foreign]

    bins, reasons, _ = planned(adds, CLUSTERING)
    assert bins == [] and reasons == {"a": "clustered", "b": "ordered", "f": "clustered"}
    assert planned(adds, CLUSTERING, full=True)[0] == [["a", "b", "f"]]


def test_our_tag_alone_does_not_make_a_file_clustered() -> None:
    tags = list(CLUSTERING.tags("1").items())

    assert planned([add("a", tags=tags)], CLUSTERING)[1] == {"a": "unordered"}
    assert planned([add("a", tags=tags, clusteringProvider=PROVIDER)], CLUSTERING)[0] == []


def test_a_file_of_a_cube_with_many_deleted_rows_is_rewritten_alone_in_its_order() -> None:
    adds = [in_cube("a", "1", deleted=5), in_cube("b", "1"), add("c", 20, deleted=5)]

    bins, reasons, ordered = planned(adds)

    assert bins == [["a"], ["b", "c"]] and ordered == {"b", "c"}
    assert reasons == {"a": "deleted_rows", "b": "merged", "c": "unordered"}
