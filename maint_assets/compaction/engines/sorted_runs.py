"""Rewrite a bin in the order of a space-filling curve, on executors: an external merge sort.

A sample of the bin's rows gives the curve positions at which its new files are cut
(``write_sample``, ``Division``). Each share of the input files is written to scratch as sorted
runs, cut into ranges of positions (``write_runs``). A new file is written from its ranges of all
runs (``write_ordered_file``). No step holds more than one run and a few row groups, whatever the
size of the bin.
"""

from __future__ import annotations

import hashlib
import uuid
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec
import numpy as np
import pyarrow as pa

from maint_assets.compaction.engines.arrow import (
    ledger_row,
    own_bin,
    refuse_other_rows,
    write_data_file,
)
from maint_assets.compaction.ordering.positions import Positions, key_columns, mixed, splits
from maint_assets.compaction.reading.data_files import DataFiles
from maint_assets.compaction.reading.footers import file_hazard
from maint_assets.compaction.verifying.row_hash import RowHash
from maint_assets.compaction.verifying.same_rows import file_hash
from maint_assets.compaction.writing.add_actions import Marks
from maint_assets.datasets.parts import as_storage_error
from maint_assets.delta.actions import Add

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from maint_assets.compaction.ordering.curve import Keys
    from maint_assets.compaction.ordering.order import Ordering
    from maint_assets.compaction.reading.data_files import DataFile
    from maint_assets.compaction.reading.hazards import Hazard
    from maint_assets.compaction.writing.new_file import NewFile
    from maint_assets.compaction.writing.target import Rewriting

SAMPLE_ROWS = 200_000
"""Rows of a bin in the sample, about."""

RUN_BYTES = 128 * 1024 * 1024
"""Bytes in memory of the rows sorted at once, in one run; sorting needs about three times that."""

RANGE_BYTES = 32 * 1024 * 1024
"""Bytes in memory of a range of a new file, about; it is sorted in memory when it is written."""

MOST_RANGES = 4096
"""The most ranges of a bin: each run has a batch per range."""

# Helper columns are the last ones, and are found by that: the table may have one of any name.
_POSITION, _TIE = "position", "tie"
Columns = TypeVar("Columns", pa.Table, pa.RecordBatch)

_PROBED_ROWS = 4096
_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")


class Sample(msgspec.Struct, frozen=True):
    """Sampled rows of a share of a bin's files, in a scratch file with the ordering columns only.

    ``bytes`` is the size in memory of all rows of the share, about.
    """

    path: str
    bytes: int


class Runs(msgspec.Struct, frozen=True):
    """The sorted rows of a share of a bin's files, and the ledger rows of these files.

    A run has one batch per range, ``ranges`` per new file. ``hashed`` is the RowHash of the rows
    that go into verified files: their number, and the sum and exclusive or of their hashes.
    """

    paths: list[str]
    ranges: int
    ledger: list[tuple[Any, ...]]
    hashed: tuple[int, int, int]


class OrderedBin(NamedTuple):
    """A bin whose rows are in runs, and the partition values of its new files."""

    bin: str
    values: dict[str, str | None]
    how: Rewriting


class OrderedFile(msgspec.Struct, frozen=True):
    """The add of a new file, None if it has no rows, and the RowHash of a verified file."""

    add: Add | None
    hashed: tuple[int, int, int] = (0, 0, 0)


@dataclass(frozen=True)
class Division:
    """The curve positions at which a bin is cut: ``ranges`` adjacent ranges per new file."""

    positions: Positions
    splits: Keys
    ranges: int

    @classmethod
    def of(cls, samples: Iterable[Sample], how: Rewriting, *, files: int) -> Division:
        """The division of a bin into ``files`` new files; deterministic in the samples."""
        return _division(tuple(samples), _ordering(how), files)


@lru_cache(maxsize=2)
def _division(samples: tuple[Sample, ...], ordering: Ordering, files: int) -> Division:
    """Compute a division; cached, since a worker may divide several shares of one bin."""
    sample = pa.concat_tables([_table(each.path) for each in samples]).combine_chunks()
    positions = Positions.of(_without_last(sample), ordering)
    batches = sample.to_batches()
    found = [positions.of_rows(_without_last(each), _last(each).to_numpy()) for each in batches]
    every = np.concatenate(found) if found else np.zeros(0, np.uint64)
    in_memory = sum(each.bytes for each in samples)
    ranges = min(max(in_memory // files // RANGE_BYTES, 1), max(MOST_RANGES // files, 1))
    return Division(positions, splits(every, files * ranges), ranges)


def write_sample(inputs: Sequence[Add], how: Rewriting, *, one_of: int, scratch: str) -> Sample:
    """Sample about one of ``one_of`` live rows of each file; deterministic, also on a retry."""
    keys = key_columns(how.files, _ordering(how).columns)
    schema = keys.arrow.append(pa.field(_TIE, pa.uint64()))
    files = DataFiles(how.location, keys)
    width = _Width(DataFiles(files.location, how.files))
    files.expect(inputs)
    path, size = _scratch_file(scratch, "sample"), 0.0
    with as_storage_error(scratch), pa.ipc.new_stream(str(path), schema, options=_LZ4) as writer:
        for file in _readable(files, inputs):
            size += file.live_rows * width.of(file.add)
            for rows in _sampled_rows(file, one_of, schema):
                writer.write_batch(rows)
    return Sample(str(path), int(size))


def _readable(files: DataFiles, inputs: Iterable[Add]) -> Iterator[DataFile]:
    """The files that Arrow may rewrite, opened one at a time."""
    for add in inputs:
        with closing(files.open(add)) as file:
            if file_hazard(file) is None:
                yield file


class _Width:
    """The average size of a row in memory, from the first rows of the first non-empty file."""

    def __init__(self, files: DataFiles) -> None:
        self._files = files
        self._bytes: float | None = None

    def of(self, add: Add) -> float:
        """Bytes per row; 0 if neither this file nor one before it has rows."""
        if self._bytes is None:
            for file in _readable(self._files, [add]):
                for batch in file.rows():
                    some = batch.slice(0, _PROBED_ROWS)
                    self._bytes = some.nbytes / some.num_rows
                    break
        return self._bytes or 0.0


def _sampled_rows(file: DataFile, number: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch, ties in _with_ties(file):
        taken = pa.array(ties % np.uint64(number) == 0)
        rows = [each.filter(taken) for each in (*batch.columns, pa.array(ties))]
        yield pa.RecordBatch.from_arrays(rows, schema=schema)


def write_runs(
    inputs: Sequence[Add], bin_: str, division: Division, *, how: Rewriting, scratch: str
) -> Runs:
    """Write the live rows of files as sorted runs; returns them with the files' ledger rows.

    A file that Arrow cannot rewrite is left out: it becomes a bin of its own, which is left to
    Spark or refused.
    """
    files = DataFiles(how.location, how.files)
    runs, ledger = _RunFiles(bin_, division, how, scratch=scratch), []
    files.expect(inputs)
    for add in inputs:
        with closing(files.open(add)) as file:
            hazard = file_hazard(file)
            if hazard is not None:
                ledger.append(_bin_of_its_own(bin_, file, hazard))
                continue
            refuse_other_rows(file, runs.take(file))
        rows = file.live_rows
        ledger.append(ledger_row(bin_, "input", add, rows=rows, verified=runs.is_checked))
    runs.flush()
    return Runs(runs.paths, division.ranges, ledger, runs.hashed.values)


def _bin_of_its_own(bin_: str, file: DataFile, hazard: Hazard) -> tuple[Any, ...]:
    """The ledger row of a file that Arrow cannot rewrite, as a bin of its own."""
    name = own_bin(bin_, file.add)
    if hazard.engine is None:
        return ledger_row(name, "input", file.add, rows=0, state="refused", reason=hazard.text)
    rows = file.live_rows
    return ledger_row(name, "input", file.add, rows=rows, state="left", engine=hazard.engine)


def write_ordered_file(number: int, runs: Sequence[Runs], of: OrderedBin) -> OrderedFile:
    """Write new file ``number`` of a bin from its ranges of all runs."""
    how, ordering = of.how, _ordering(of.how)
    paths = [path for each in runs for path in each.paths]
    opened = [pa.ipc.open_file(pa.memory_map(path)) for path in paths]
    ranges, schema = runs[0].ranges, _run_schema(how)

    def fill(new_file: NewFile) -> None:
        for at in range(number * ranges, (number + 1) * ranges):
            batches = [run.get_batch(at) for run in opened]
            rows = pa.Table.from_batches(batches, schema).combine_chunks()
            if rows.num_rows:
                order = np.argsort(_last(rows).to_numpy(), kind="stable")
                for batch in _without_last(rows).take(order).to_batches():
                    new_file.append(batch)

    marks = Marks(ordering.tags(cube_id(of.bin)), ordering.provider)
    add = write_data_file(fill, how, values=of.values, marks=marks)
    if add is None or not how.row_check.compares(of.bin, number):
        return OrderedFile(add)
    return OrderedFile(add, file_hash(add, how).values)


def cube_id(bin_: str) -> str:
    """The Z-cube id of a bin's new files: the same for the same bin, also on a later run."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"maint_assets {bin_}"))


class _RunFiles:
    """Buffers rows up to RUN_BYTES, then sorts and writes them as a run."""

    def __init__(self, bin_: str, division: Division, how: Rewriting, *, scratch: str) -> None:
        self.paths: list[str] = []
        self.hashed = RowHash()
        self._division, self._scratch = division, scratch
        self._schema = _run_schema(how)
        files = (len(division.splits) + 1) // division.ranges
        checked = [number for number in range(files) if how.row_check.compares(bin_, number)]
        self._checked = np.array(checked, np.int64)
        self._held: list[pa.RecordBatch] = []
        self._bytes = 0

    @property
    def is_checked(self) -> bool:
        """Whether any new file of the bin is verified."""
        return bool(len(self._checked))

    def take(self, file: DataFile) -> int:
        """Append the live rows of a file; returns their number."""
        found = 0
        for batch, ties in _with_ties(file):
            found += batch.num_rows
            self._append(batch, self._division.positions.of_rows(batch, ties))
        return found

    def _append(self, batch: pa.RecordBatch, positions: Keys) -> None:
        if self.is_checked:
            found = np.searchsorted(self._division.splits, positions, side="right")
            checked = np.isin(found // self._division.ranges, self._checked)
            self.hashed.add(batch.filter(pa.array(checked)))
        columns = [*batch.columns, pa.array(positions)]
        self._held.append(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        self._bytes += batch.nbytes
        if self._bytes >= RUN_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the buffered rows as a run."""
        if not self._held:
            return
        rows = pa.Table.from_batches(self._held).combine_chunks()
        self._held, self._bytes = [], 0
        positions = _last(rows).to_numpy()
        order = np.argsort(positions)
        # A position equal to a split belongs to the range above it, here as in ``_append``.
        inner = np.searchsorted(positions[order], self._division.splits, side="left")
        ends = [0, *inner.tolist(), rows.num_rows]
        (sorted_rows,) = rows.take(order).combine_chunks().to_batches()
        path = _scratch_file(self._scratch, "run")
        with (
            as_storage_error(self._scratch),
            pa.ipc.new_file(str(path), self._schema, options=_LZ4) as writer,
        ):
            for first, end in pairwise(ends):
                writer.write_batch(sorted_rows.slice(first, end - first))
        self.paths.append(str(path))


def _ordering(how: Rewriting) -> Ordering:
    if how.ordering is None:
        raise ValueError("a rewrite without an order")
    return how.ordering


def _run_schema(how: Rewriting) -> pa.Schema:
    return how.files.arrow.append(pa.field(_POSITION, pa.uint64()))


def _with_ties(file: DataFile) -> Iterator[tuple[pa.RecordBatch, Keys]]:
    """The live rows of a file, each with a pseudo-random number from its path and row index.

    It selects the sample and orders rows of equal position, the same way in every attempt.
    """
    seed = int.from_bytes(hashlib.sha256(file.add.path.encode()).digest()[:8], "big")
    at = 0
    for batch in file.rows():
        yield batch, mixed(seed, np.arange(at, at + batch.num_rows))
        at += batch.num_rows


def _last(rows: Columns) -> pa.Array:
    return rows.column(rows.num_columns - 1)


def _without_last(rows: Columns) -> Columns:
    return rows.select(range(rows.num_columns - 1))


def _table(path: str) -> pa.Table:
    with pa.OSFile(path) as file, pa.ipc.open_stream(file) as stream:
        return stream.read_all()


def _scratch_file(scratch: str, kind: str) -> Path:
    with as_storage_error(scratch):
        Path(scratch).mkdir(parents=True, exist_ok=True)
    return Path(scratch) / f"{kind}-{uuid.uuid4()}.arrow"
