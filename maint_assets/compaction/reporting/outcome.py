"""The outcome of a compaction, accumulated batch by batch in bounded memory."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import msgspec

from maint_assets.delta.actions import Add
from maint_assets.delta.partitions import canonical_values

if TYPE_CHECKING:
    import pyarrow as pa

    from maint_assets.compaction.ordering.order import Ordering
    from maint_assets.delta.schema import Field

MOST_EXAMPLES = 1_000
"""At most this many new files are kept, to sample values from."""

_Key = frozenset[tuple[str, "str | None"]]


class OrderCounts:
    """Counts of Z-ordered or clustered input files: ``[files, bytes]``, of a Z-cube or not.

    ``cubes`` are the ids of rewritten cubes, ``new_cubes`` those of cubes that were made,
    ``examples`` the first MOST_EXAMPLES new files.
    """

    def __init__(self) -> None:
        self.of_cubes, self.others = [0, 0], [0, 0]
        self.cubes, self.new_cubes = set[str](), set[str]()
        self.examples: list[Add] = []

    @property
    def merged(self) -> list[int]:
        """``[files, bytes]`` of all rewritten files."""
        return [one + other for one, other in zip(self.of_cubes, self.others, strict=True)]

    def take(self, inputs: list[Add], outputs: list[Add], ordering: Ordering) -> None:
        """Count the files of a committed bin, if it made a new cube.

        A bin that was only compacted or purged has no cube afterwards, or keeps its old one.
        """
        made = {(add.tags or {}).get(ordering.cube_tag) for add in outputs}
        if None in made or made & {(add.tags or {}).get(ordering.cube_tag) for add in inputs}:
            return
        self.new_cubes.update(cube or "" for cube in made)
        self.examples += outputs[: MOST_EXAMPLES - len(self.examples)]
        for add in inputs:
            tags = add.tags or {}
            is_ordered = tags.get(ordering.columns_tag) == ordering.columns_text
            counts = self.of_cubes if is_ordered else self.others
            counts[0], counts[1] = counts[0] + 1, counts[1] + add.size
            if is_ordered:
                self.cubes.add(tags.get(ordering.cube_tag) or "")


class Outcome:
    """Counts of bins by state, of committed bins by engine, and of reasons for the others.

    ``verified`` counts bins whose rows were compared, ``versions`` are the committed versions,
    ``commits`` their ``txnId``.
    ``partitions`` counts changed partitions once each: the plan keeps the files of a partition
    together, so only the partitions of the last batch have to be remembered.
    """

    def __init__(
        self, partitions: tuple[Field, ...] = (), ordering: Ordering | None = None
    ) -> None:
        self.bins, self.reasons = Counter[str](), Counter[str]()
        self.engines = Counter[str]()
        self.versions: list[int] = []
        self.commits: dict[int, str] = {}
        self.verified = self.partitions = 0
        self.order = OrderCounts()
        self._fields, self._ordering = partitions, ordering
        self._counted: set[_Key] = set()

    def take(self, batch: pa.RecordBatch) -> None:
        """Count the bins of a batch (REWRITTEN_SCHEMA), where all files of a bin have one state."""
        columns = ["bin", "role", "state", "engine", "reason", "version", "verified", "add"]
        rows = batch.select(columns).to_pylist()
        bins = {row["bin"]: row for row in rows}.values()
        for row in bins:
            self.bins[row["state"]] += 1
            self.verified += row["verified"]
            if row["state"] == "committed":
                self.engines[row["engine"]] += 1
            if row["reason"] is not None:
                self.reasons[row["reason"]] += 1
            if row["version"] is not None and row["version"] not in self.versions:
                self.versions.append(row["version"])
        self._take_ordered([row for row in rows if row["state"] == "committed"])
        here = [(self._partition(row["add"]), row["state"] == "committed") for row in bins]
        changed = {partition for partition, committed in here if committed}
        self.partitions += len(changed - self._counted)
        self._counted = (self._counted | changed) & {partition for partition, _ in here}

    def _take_ordered(self, rows: list[dict[str, Any]]) -> None:
        """Count the files of committed bins, bin by bin, if the compaction orders rows."""
        if self._ordering is None:
            return
        bins: dict[str, dict[str, list[Add]]] = defaultdict(lambda: {"input": [], "output": []})
        for row in rows:
            bins[row["bin"]][row["role"]].append(msgspec.json.decode(row["add"], type=Add))
        for files in bins.values():
            self.order.take(files["input"], files["output"], self._ordering)

    def _partition(self, add: str) -> _Key:
        """The partition of a file as typed values, since one value may have several spellings."""
        values = msgspec.json.decode(add, type=Add).partition_values
        return frozenset(canonical_values(values, self._fields).items())
