"""The listing of a table on a store: ranges of keys, cut at quantiles of the paths in the log.

A store has no directories to walk. Ranges of about equal size need no request to find them, and
hold for tables without partitions and with random prefixes.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from maint_assets.datasets.columns import arrow_schema
from maint_assets.datasets.parts import PartSlice, slice_batches
from maint_assets.datasets.rows import task_groups, units
from maint_assets.snapshot.log import LOG
from maint_assets.snapshot.resolved_paths import are_inside, directories_of
from maint_assets.storage import read
from maint_assets.vacuum.listing import LISTING_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from concurrent.futures import Future

    from pyspark.sql import SparkSession

    from maint_assets.datasets.parts import Part
    from maint_assets.datasets.rows import Rows
    from maint_assets.vacuum.walk import Walk

RANGE_FILES, MOST_RANGES = 5_000, 64
"""Files of the log in a range, about, and the most ranges."""

RANGES_AT_ONCE = 8
"""Ranges that a task lists at once: it waits more than it computes."""

SAMPLE_PATHS = 2_000
"""Paths of the log from which the ends of ranges are taken."""

_ARROW = arrow_schema(LISTING_SCHEMA)
_LAST = "\U0010ffff"
"""Sorts behind every name."""

_ODD = r"(^|/)([_.]|[0-9]{20}\.)|/_delta_log/"


class KeyRange(msgspec.Struct, frozen=True):
    """The keys after ``after`` up to ``until``, that one included; of an unordered store all."""

    after: str = ""
    until: str | None = None
    ordered: bool = True


def key_ranges(sample: Sequence[str], files: int) -> list[KeyRange]:
    """Ranges of about equal size by a sample of a log's paths, without those of the log itself."""
    wanted = min(max(files // RANGE_FILES, 1), MOST_RANGES)
    known = sorted(set(sample))
    ends = {known[len(known) * at // wanted] for at in range(1, wanted)} if known else set[str]()
    log = f"{LOG}/", f"{LOG}/{_LAST}"
    outside = sorted(end for end in ends if not log[0] <= end <= log[1])
    cuts: list[str | None] = ["", *sorted([*outside, *log]), None]
    pairs = [(after, until) for after, until in pairwise(cuts) if after != log[0]]
    return [KeyRange(after or "", until) for after, until in pairs]


def sampled_paths(parts: Iterable[Part]) -> list[str]:
    """Some paths of a snapshot's files, from all its parts."""
    every = list(parts)
    found: list[str] = []
    for part in every:
        most = -(-SAMPLE_PATHS // len(every))
        wanted = PartSlice(part.path, "", 0, min(part.rows, most))
        for batch in slice_batches(wanted, ["path"]):
            found += batch["path"].filter(are_inside(batch["path"])).to_pylist()
    return [path for path in found if read.is_named(path)]


def ranged_listing(
    spark: SparkSession,
    walk: Walk,
    ranges: Sequence[KeyRange],
    *,
    tables: Sequence[str] = (),
    parallelism: int,
) -> Rows:
    """All objects below the table root but those of its log: LISTING_SCHEMA.

    There are rows for the roots of other Delta tables, and no other directories. What lies in one
    of ``tables``, which a former listing found, is left out. Objects below hidden directories are
    hidden rows, as are those whose keys cannot be named. Executors raise StorageError, or
    UnorderedListingError where the store lists in no order.
    """
    known = list(tables)

    def rows(some: list[KeyRange]) -> Iterator[pa.RecordBatch]:
        keys = _Keys(walk, known)
        for page in _pages(walk, some):
            yield keys.rows(page)
        is_first = any(not each.after for each in some)
        yield _table_rows([*keys.found, *(known if is_first else [])])

    tasks = min(parallelism, len(ranges))
    return units(spark, task_groups(ranges, tasks, weight=lambda _: 1), rows, kind=KeyRange)


def nested_tables(parts: Iterable[Part]) -> list[str]:
    """The roots of other Delta tables among listed rows."""
    found: set[str] = set()
    for part in parts:
        for batch in slice_batches(
            PartSlice(part.path, "", 0, part.rows), ["path", "nested_table"]
        ):
            found.update(batch["path"].filter(batch["nested_table"]).to_pylist())
    return sorted(found)


def _pages(walk: Walk, ranges: Iterable[KeyRange]) -> Iterator[pa.RecordBatch]:
    """The pages of all ranges as they come, RANGES_AT_ONCE at once."""
    waiting = deque(
        read.objects_between(walk.location, each.after, each.until, ordered=each.ordered)
        for each in ranges
    )
    coming: dict[Future[pa.RecordBatch | None], Iterator[pa.RecordBatch]] = {}
    with ThreadPoolExecutor(RANGES_AT_ONCE) as threads:
        while waiting or coming:
            while waiting and len(coming) < RANGES_AT_ONCE:
                pages = waiting.popleft()
                coming[threads.submit(next, pages, None)] = pages
            future = next(iter(wait(coming, return_when=FIRST_COMPLETED).done))
            pages, page = coming.pop(future), future.result()
            if page is not None:
                waiting.appendleft(pages)
                yield page


class _Keys:
    """Turns listed keys into rows, and collects the roots of other Delta tables."""

    def __init__(self, walk: Walk, tables: Sequence[str]) -> None:
        self.found: set[str] = set()
        self._walk, self._inside = walk, tuple(f"{each}/" for each in tables)
        self._closed = lru_cache(maxsize=65_536)(self._is_closed)

    def rows(self, page: pa.RecordBatch) -> pa.RecordBatch:
        """Listed objects as a batch of LISTING_SCHEMA."""
        if self._inside:
            kept = [not path.startswith(self._inside) for path in page["path"].to_pylist()]
            page = page.filter(pa.array(kept, pa.bool_()))
        path = page["path"]
        odd = pc.match_substring_regex(path, _ODD)
        if self._walk.iceberg:
            odd = pc.or_(odd, pc.match_substring_regex(path, r"(^|/)metadata(/|$)"))
        hides = pa.array([self._hides(each) for each in path.filter(odd).to_pylist()], pa.bool_())
        hidden = pc.replace_with_mask(odd, odd, hides)
        no = pa.repeat(pa.scalar(value=False), len(path))
        hidden = pc.or_(hidden, pc.invert(page["is_named"]))
        size, times = page["size"], page["modified_ms"]
        arrays = [path, directories_of(path), size, times, no, hidden, no]
        return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)

    def _hides(self, path: str) -> bool:
        root, is_below, _ = path.partition(f"/{LOG}/")
        if is_below and not self._closed(root):
            self.found.add(root)
        directory, _, name = path.rpartition("/")
        return self._closed(directory) or self._walk.hides_file(name)

    def _is_closed(self, directory: str) -> bool:
        """Whether a directory, or one above it, is hidden."""
        return any(map(self._walk.hides_directory, directory.split("/"))) if directory else False


def _table_rows(roots: Iterable[str]) -> pa.RecordBatch:
    rows = [
        {
            "path": root,
            "parent": root.rpartition("/")[0],
            "size": 0,
            "modified_ms": read.NEVER_OLD,
            "is_dir": True,
            "hidden": True,
            "nested_table": True,
        }
        for root in sorted(roots)
    ]
    return pa.RecordBatch.from_pylist(rows, _ARROW)
