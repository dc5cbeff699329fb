"""Bins: which files are rewritten together, which are kept, and that planning ends."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, cycle
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maint_assets.compaction.plan import Selection
from maint_assets.compaction.planning.budget import within_budget
from maint_assets.compaction.planning.candidates import Criteria, candidates
from maint_assets.compaction.planning.packing import compaction_bins, packed_bins
from maint_assets.compaction.planning.schema import BINS_MEASURES, COMPACTION_ARROW
from maint_assets.compaction.planning.tasks import RewriteTask, commit_batches
from maint_assets.datasets.parts import PartSlice, evaluate_measures
from maint_assets.delta.actions import Add
from maint_assets.delta.schema import Field, Primitive
from maint_assets.snapshot.whole.schemas import ADD_ARROW, LIVE_ADDS_ARROW
from maint_assets_tests.support.adds import ROOT, add

DAY = Field("day", "day", Primitive("date"), None, {})


def plan_rows(
    adds: list[dict[str, Any]],
    *partitions: Field,
    max_bytes: int | None = None,
    bad: str = "",
    **selection: Any,
) -> pa.Table:
    """The rows of a plan; bins with ``bad`` files promise little."""
    sizes: dict[str, Any] = {"target_bytes": 100, "min_bytes": 50, "max_bytes": max_bytes}
    asked = Selection(**(sizes | selection))
    arrays = [
        pa.array([each["path"] for each in adds], pa.string()),
        pa.array(["" for _ in adds], pa.string()),
        pa.array(adds, ADD_ARROW),
        pa.repeat(pa.scalar(value=False), len(adds)),
    ]
    batch = pa.RecordBatch.from_arrays(arrays, schema=LIVE_ADDS_ARROW)
    found = compaction_bins(candidates([batch], Criteria(ROOT, partitions, asked)), asked)
    if max_bytes is not None:

        def promising(held: Iterable[Add]) -> bool:
            return not {each.path for each in held} & {*bad}

        found = within_budget(found, max_bytes=max_bytes, is_promising=promising)
    return pa.Table.from_batches(found, COMPACTION_ARROW)


def planned(
    adds: list[dict[str, Any]], *partitions: Field, **asked: Any
) -> tuple[dict[str, list[str]], dict[str, str]]:
    """The paths of each bin, and the reason of each path."""
    rows, bins = plan_rows(adds, *partitions, **asked).to_pylist(), dict[str, list[str]]()
    for row in rows:
        if row["bin"] is not None:
            bins.setdefault(row["bin"], []).append(row["path"])
    return bins, {row["path"]: row["reason"] for row in rows}


SIZES = st.lists(st.integers(0, 120), max_size=30)


@given(sizes=SIZES, alone=st.booleans(), target=st.integers(1, 130), whole=st.integers(1, 130))
def test_bins_hold_files_in_order_within_the_target(
    sizes: list[int], alone: bool, target: int, whole: int
) -> None:
    numbers = packed_bins(sizes, target=target, alone=[alone] * len(sizes), whole=whole)

    members: dict[int, list[int]] = {}
    for size, number in zip(sizes, numbers, strict=True):
        members.setdefault(number, []).append(size)
    stay = members.pop(-1, [])
    assert sorted(members) == list(range(len(members)))
    assert not (stay and alone)
    for one in members.values():
        assert len(one) == 1 or sum(one) <= target
        assert len(one) > 1 or alone
        assert len(one) == 1 or max(one) < whole


@given(sizes=SIZES)
def test_planning_settles_when_each_bin_becomes_one_file(sizes: list[int]) -> None:
    for _ in range(30):
        numbers = packed_bins(sizes, target=100, alone=[False] * len(sizes), whole=50)
        sums = Counter[int]()
        for size, number in zip(sizes, numbers, strict=True):
            sums[number] += size
        merged = [total for number, total in sums.items() if number >= 0]
        stay = [size for size, n in zip(sizes, numbers, strict=True) if n < 0]
        if not merged:
            return
        sizes = stay + merged
    raise AssertionError("bins are made for ever")


@given(
    files=st.lists(st.tuples(st.integers(0, 49), st.integers(0, 2)), max_size=60),
    shrinks=st.lists(st.floats(0.01, 1.3), min_size=1, max_size=20),
)
def test_the_third_run_is_empty_however_much_files_shrink(
    files: list[tuple[int, int]], shrinks: list[float]
) -> None:
    ratios = cycle(shrinks)
    for _ in range(2):
        files = rewritten(files, ratios)

    numbers = packed_bins(
        [size for size, _ in files],
        target=100,
        alone=[False] * len(files),
        whole=50,
        rewrites=[rewrites for _, rewrites in files],
    )

    assert set(numbers) <= {-1}


def rewritten(files: list[tuple[int, int]], ratios: Iterator[float]) -> list[tuple[int, int]]:
    """Sizes and numbers of rewrites of the small files after a run; new files come last."""
    sizes, rewrites = [size for size, _ in files], [many for _, many in files]
    alone = [False] * len(files)
    numbers = packed_bins(sizes, target=100, alone=alone, whole=50, rewrites=rewrites)
    stay = [each for each, number in zip(files, numbers, strict=True) if number < 0]
    made: dict[int, list[tuple[int, int]]] = {}
    for each, number in zip(files, numbers, strict=True):
        made.setdefault(number, []).append(each)
    made.pop(-1, None)
    new = [
        (int(sum(size for size, _ in one) * next(ratios)), min(2, 1 + max(n for _, n in one)))
        for one in made.values()
    ]
    return [each for each in stay + new if each[0] < 50]


def test_files_that_are_small_after_two_rewrites_are_merged_with_new_ones() -> None:
    old = [add(name, 20, tags=[("MAINT_ASSETS_REWRITES", "2")]) for name in "abcdef"]

    bins, reasons = planned(old)
    joined, _ = planned([*old, add("new", 30)])
    lone, _ = planned([*old, add("new", 30, tags=[("MAINT_ASSETS_REWRITES", "1")])])

    assert bins == lone == {} and set(reasons.values()) == {"alone"}
    assert list(joined.values()) == [["d", "e", "f", "new"]]


def test_small_files_of_one_partition_value_are_merged() -> None:
    adds = [
        add("a", partitionValues={"day": "2026-01-01"}),
        add("b", partitionValues={"day": "2026-01-02"}),
        add("c", partitionValues={"day": "2026-01-01"}),
        add("d", partitionValues={"day": ""}),
        add("e", partitionValues={"day": None}),
        add("f", size=50, partitionValues={"day": "2026-01-01"}),
    ]

    bins, reasons = planned(adds, DAY)

    assert sorted(bins.values()) == [["a", "c"], ["d", "e"]]
    assert (reasons["b"], reasons["f"], reasons["a"]) == ("alone", "large", "small")


def test_files_with_deleted_rows_or_without_statistics_are_rewritten_alone() -> None:
    adds = [
        add("few", size=90, deleted=0),
        add("some", size=100, rows=100, deleted=5),
        add("many", size=100, rows=100, deleted=6),
        add("unknown", size=90, rows=None, deleted=1),
        add("without_rows", size=90, rows=None),
    ]

    bins, reasons = planned(adds)

    assert sorted(bins.values()) == [["many"], ["unknown"], ["without_rows"]]
    assert (reasons["few"], reasons["some"]) == ("large", "large")
    assert (reasons["many"], reasons["without_rows"]) == ("deleted_rows", "no_stats")


def test_sizes_are_those_of_live_rows() -> None:
    adds = [add("a", size=90, rows=10, deleted=8), add("b", size=40), add("c", size=40)]

    bins, _ = planned(adds)

    assert list(bins.values()) == [["a", "b", "c"]]


@pytest.mark.parametrize("rows", [None, 0, 10])
def test_a_file_takes_room_between_none_and_its_size_whatever_its_vector_deletes(
    rows: int | None,
) -> None:
    adds = [add(name, size=40) for name in "bcd"]
    adds.insert(1, add("a", size=40, rows=rows, deleted=400))

    found = plan_rows(adds)
    bins = found.group_by("bin").aggregate([("live_bytes", "sum")])

    live = dict(zip(*(found[name].to_pylist() for name in ("path", "live_bytes")), strict=True))
    assert live["a"] == (40 if rows is None else 0)
    assert sorted(bins["live_bytes_sum"].to_pylist()) == ([80, 80] if rows is None else [40, 80])


def test_rows_deleted_from_a_file_of_unknown_rows_are_not_counted() -> None:
    found = plan_rows([add("a", deleted=4), add("b", rows=None, deleted=400)])

    measured = evaluate_measures(found, BINS_MEASURES)
    assert (measured["rows"], measured["deleted"]) == (10, 4)


def test_purge_takes_exactly_the_files_with_deleted_rows() -> None:
    adds = [add("small"), add("a", size=90, rows=100, deleted=1), add("b", rows=None, deleted=1)]

    bins, reasons = planned(adds, purge=True)

    assert sorted(chain.from_iterable(bins.values())) == ["a", "b"]
    assert reasons["small"] == "whole"


def test_the_number_of_rows_is_found_wherever_the_statistics_have_it() -> None:
    stats = '{"minValues":{"numRecords":5},"numRecords":100}'
    adds = [add("a", size=90, stats=stats, deleted=5), add("b", size=90, stats="{}")]

    _, reasons = planned(adds)

    assert reasons == {"a": "large", "b": "no_stats"}


def test_a_bin_has_no_more_files_than_a_commit_bears() -> None:
    numbers = packed_bins([0] * 12_000, target=100, alone=[False] * 12_000, whole=50)

    assert Counter(numbers) == {0: 5_000, 1: 5_000, 2: 2_000}


def test_clustered_files_are_purged_alone() -> None:
    clustered = [add(name, clusteringProvider="liquid", deleted=1) for name in "ab"]

    bins, _ = planned([*clustered, add("c", deleted=1)], purge=True)

    assert sorted(bins.values()) == [["a"], ["b"], ["c"]]


def test_files_of_a_clustering_that_is_no_more_are_merged() -> None:
    adds = [add("a", clusteringProvider="liquid"), add("b"), add("c")]

    bins, _ = planned(adds)

    assert list(bins.values()) == [["a", "b", "c"]]


def test_files_keep_the_order_in_which_they_came() -> None:
    adds = [
        add(name, size=30, modificationTime=at)
        for name, at in zip("abcdef", (6, 5, 4, 3, 2, 1), strict=True)
    ]

    bins, _ = planned(adds)

    assert list(bins.values()) == [["f", "e", "d"], ["c", "b", "a"]]


def test_bins_beyond_the_budget_are_postponed_the_oldest_are_not() -> None:
    times = {name: at for at, name in enumerate("defabc", 100)} | dict(
        zip("abc", (1, 2, 3), strict=True)
    )
    adds = [add(name, size=30, modificationTime=at) for name, at in times.items()]

    bins, reasons = planned(adds, max_bytes=100)

    assert list(bins.values()) == [["a", "b", "c"]]
    assert {reasons[name] for name in "def"} == {"postponed"}


def test_bins_hold_no_more_than_the_budget_so_that_each_run_rewrites_some() -> None:
    adds = [add(name, size=30, modificationTime=at) for at, name in enumerate("abcdef")]

    bins, reasons = planned(adds, max_bytes=89)

    assert list(bins.values()) == [["a", "b"]]
    assert {reasons[name] for name in "cdef"} == {"postponed"}


def test_a_budget_counts_the_bytes_of_deleted_rows_too() -> None:
    adds = [
        add(name, size=90, rows=10, deleted=9, modificationTime=at)
        for at, name in enumerate("abcdef")
    ]

    assert list(planned(adds, max_bytes=200)[0].values()) == [["a", "b"]]


def test_a_file_that_exceeds_the_budget_is_rewritten_when_it_is_the_oldest() -> None:
    adds = [add(name, size=30, modificationTime=at) for at, name in ((1, "a"), (3, "b"), (3, "c"))]
    large = add("z", size=90, rows=10, deleted=2, modificationTime=2)

    assert list(planned([*adds, large], max_bytes=80)[0].values()) == [["a", "b"]]
    assert list(planned([*adds[1:], large], max_bytes=80)[0].values()) == [["z"]]
    assert list(planned([*adds[1:], large], max_bytes=80, bad="z")[0].values()) == [["b", "c"]]


@given(
    sizes=st.lists(st.tuples(st.integers(0, 120), st.integers(0, 10)), max_size=30),
    most=st.integers(1, 300),
)
def test_a_budget_is_kept_but_for_a_single_file_and_something_is_always_rewritten(
    sizes: list[tuple[int, int]], most: int
) -> None:
    adds = [
        add(str(at), size, deleted=deleted, modificationTime=at)
        for at, (size, deleted) in enumerate(sizes)
    ]

    rows = plan_rows(adds, max_bytes=most).to_pylist()

    taken = [row["size"] for row in rows if row["bin"] is not None]
    assert taken or not any(row["reason"] == "postponed" for row in rows)
    assert sum(taken) <= most or len(taken) == 1


def test_bins_that_would_be_refused_again_do_not_take_the_place_of_others() -> None:
    adds = [add(name, size=30, modificationTime=at) for at, name in enumerate("abcdefghi")]

    assert list(planned(adds, max_bytes=180, bad="b")[0].values()) == [list("def"), list("ghi")]
    assert list(planned(adds, max_bytes=180, bad="bh")[0].values()) == [list("abc"), list("def")]


def test_a_plan_of_the_same_files_has_the_same_bins() -> None:
    adds = [add(name, size=30) for name in "abcdef"]

    assert planned(adds) == planned(adds[::-1])


@given(sizes=st.lists(st.integers(1, 50), max_size=20), most=st.integers(1, 60))
def test_commits_take_task_groups_in_order_up_to_their_bytes(sizes: list[int], most: int) -> None:
    found = [
        RewriteTask(PartSlice("p", "", at, 1), size, 1, size, 1, str(at), ordered=False)
        for at, size in enumerate(sizes)
    ]

    batches = list(commit_batches(found, max_bytes=most))

    assert [each for batch in batches for each in batch] == found
    assert all(len(b) == 1 or sum(each.bytes for each in b) <= most for b in batches)
