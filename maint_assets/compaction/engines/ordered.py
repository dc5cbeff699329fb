"""Rewrite bins in Z-order or clustering order, by Arrow.

A small bin runs in one task. Large bins run as three jobs over all of them: sample, divide into
sorted runs, merge the runs into new files (``sorted_runs``).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import pyarrow as pa

from maint_assets.commit.rewrite.values import RewrittenBin
from maint_assets.compaction.engines.arrow import (
    REWRITTEN_ARROW,
    failure,
    grouped_by_bin,
    ledger_row,
    remove_outputs,
    unwritten_rows,
)
from maint_assets.compaction.engines.sorted_runs import (
    SAMPLE_ROWS,
    Division,
    OrderedBin,
    OrderedFile,
    Runs,
    Sample,
    write_ordered_file,
    write_runs,
    write_sample,
)
from maint_assets.compaction.verifying.row_hash import RowHash
from maint_assets.compaction.verifying.same_rows import refuse_other_hash
from maint_assets.compaction.writing.add_actions import bin_values
from maint_assets.datasets.columns import batch_of
from maint_assets.datasets.parts import PartSlice, slice_batches
from maint_assets.datasets.rows import encode_result, units
from maint_assets.delta.actions import Add
from maint_assets.errors import RewriteError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import SparkSession
    from typing_extensions import Self

    from maint_assets.compaction.planning.tasks import RewriteTask
    from maint_assets.compaction.writing.target import Rewriting

SHARE_BYTES = 64 * 1024 * 1024
"""Bytes that a task of a large bin reads, about; at least one file."""

_STATE, _ADD, _ROWS, _VERIFIED = (
    REWRITTEN_ARROW.get_field_index(name) for name in ("state", "add", "rows", "verified")
)


class _Share(msgspec.Struct, frozen=True):
    """Some input files of a bin, as a slice of the plan's parts."""

    bin: str
    part: PartSlice


class _File(msgspec.Struct, frozen=True):
    """A new file of a bin, by its number in the order."""

    bin: str
    number: int


Row = tuple[Any, ...]
Asked = TypeVar("Asked", _Share, _File)
Made = TypeVar("Made", bound=msgspec.Struct)


class _Outcome(msgspec.Struct, frozen=True):
    """The result of a task for a bin as JSON, or the error."""

    bin: str
    made: msgspec.Raw
    error: str | None = None


@dataclass(frozen=True, slots=True)
class _Size:
    """The rows of a bin by its statistics in the log, and the number of its new files."""

    rows: int
    files: int

    @classmethod
    def of(cls, rows: int, size: int, how: Rewriting) -> Self:
        """The size of a bin of ``size`` live bytes; new files have about the target size."""
        return cls(rows, max(-(-size // how.target_bytes), 1))

    @property
    def one_of(self) -> int:
        """The sampling stride: one row in this many is in the sample."""
        return max(self.rows // SAMPLE_ROWS, 1)


def rewrite_ordered(
    bins: Iterable[pa.RecordBatch], how: Rewriting, *, scratch: str
) -> Iterator[pa.RecordBatch]:
    """Rewrite bins in order within this task; yields REWRITTEN_SCHEMA, one batch per bin.

    ``bins`` are rows of the plan in which the files of a bin are adjacent.
    """
    for files in grouped_by_bin(bins):
        yield _ordered_bin(files, how, scratch)


def rewrite_ordered_by_jobs(
    spark: SparkSession, large: Sequence[RewriteTask], how: Rewriting, *, scratch: str
) -> list[pa.RecordBatch]:
    """Rewrite large bins in order, one bin per task; one batch of REWRITTEN_SCHEMA per bin.

    One job samples all bins, one divides them and one writes them. A bin that fails in one job is
    left out of the next.
    """
    sizes = {each.bin: _Size.of(each.live_rows, each.live_bytes, how) for each in large}
    shares = [share for each in large for share in _shares(each)]
    jobs = _Jobs(spark)

    def sample(share: _Share) -> Sample:
        one_of = sizes[share.bin].one_of
        return write_sample(_adds(share.part), how, one_of=one_of, scratch=scratch)

    samples = jobs.results(shares, sample, Sample)

    def divide(share: _Share) -> Runs:
        division = Division.of(samples[share.bin], how, files=sizes[share.bin].files)
        return write_runs(_adds(share.part), share.bin, division, how=how, scratch=scratch)

    runs = jobs.results(shares, divide, Runs)
    values = {each.bin: bin_values(_adds(each.part), how) for each in large}

    def write(file: _File) -> OrderedFile:
        return write_ordered_file(
            file.number, runs[file.bin], OrderedBin(file.bin, values[file.bin], how)
        )

    files = [_File(name, number) for name, size in sizes.items() for number in range(size.files)]
    written = jobs.results(files, write, OrderedFile)
    found: list[pa.RecordBatch] = []
    for each in large:
        name, reason = each.bin, jobs.failed.get(each.bin)
        try:
            if reason is None:
                found.append(_assembled(name, runs[name], written[name], how=how))
        except RewriteError as error:
            reason = str(error)
        if reason is not None:
            inputs = _adds(each.part)
            found.append(_failed(name, inputs, written[name], how=how, reason=reason))
    return found


def _ordered_bin(files: list[dict[str, Any]], how: Rewriting, scratch: str) -> pa.RecordBatch:
    """Rewrite one bin, all steps in this task."""
    name, inputs = files[0]["bin"], [_add(each["add"]) for each in files]
    rows = sum(each["rows"] or 0 for each in files)
    size = _Size.of(rows, sum(each["live_bytes"] for each in files), how)
    written: list[OrderedFile] = []
    try:
        sample = write_sample(inputs, how, one_of=size.one_of, scratch=scratch)
        division = Division.of([sample], how, files=size.files)
        runs = [write_runs(inputs, name, division, how=how, scratch=scratch)]
        one = OrderedBin(name, bin_values(inputs, how), how)
        for number in range(size.files):
            written.append(write_ordered_file(number, runs, one))
        return _assembled(name, runs, written, how=how)
    except Exception as error:  # noqa: BLE001 - raised, it would end the job, and all other bins
        return _failed(name, inputs, written, how=how, reason=failure(error))


class _Jobs:
    """Jobs over files of bins; a bin for which a task fails is left out of the next job.

    ``failed`` has the first error by bin.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.failed: dict[str, str] = {}

    def results(
        self, of: Sequence[Asked], function: Callable[[Asked], Made], kind: type[Made]
    ) -> dict[str, list[Made]]:
        """Apply ``function`` to each unit in a task of its own; results by bin, in order."""

        def answers(some: list[Asked]) -> Iterator[pa.RecordBatch]:
            for each in some:
                yield encode_result(_outcome(each, function))

        wanted = [[each] for each in of if each.bin not in self.failed]
        found: dict[str, list[Made]] = {each.bin: [] for each in of}
        if not wanted:
            return found
        for answer in units(self._spark, wanted, answers, kind=type(of[0])).values(_Outcome):
            if answer.error is not None:
                self.failed.setdefault(answer.bin, answer.error)
            else:
                found[answer.bin].append(msgspec.json.decode(answer.made, type=kind))
        return found


def _outcome(each: Asked, function: Callable[[Asked], Made]) -> _Outcome:
    try:
        return _Outcome(each.bin, msgspec.Raw(msgspec.json.encode(function(each))))
    except Exception as error:  # noqa: BLE001 - raised, it would end the job, and all other bins
        return _Outcome(each.bin, msgspec.Raw(b"null"), failure(error))


def _assembled(
    name: str, runs: Iterable[Runs], written: Iterable[OrderedFile], *, how: Rewriting
) -> pa.RecordBatch:
    """Rows of REWRITTEN_SCHEMA for a bin whose new files are written.

    Raises RewriteError if number or hash of their rows differs from that of the inputs.
    """
    ledger = [row for each in runs for row in each.ledger]
    inputs = [row for row in ledger if row[_STATE] == "written"]
    outputs = [(each.add, each.add.num_records or 0) for each in written if each.add is not None]
    _refuse_other_rows(name, inputs, outputs, how=how)
    _refuse_other_hashes(name, runs, written, how=how)
    verified = any(row[_VERIFIED] for row in inputs)
    new = [ledger_row(name, "output", add, rows=rows, verified=verified) for add, rows in outputs]
    return batch_of([*ledger, *new], REWRITTEN_ARROW)


def _refuse_other_rows(
    name: str, inputs: Iterable[Row], outputs: Iterable[tuple[Add, int]], *, how: Rewriting
) -> None:
    rows, new_rows = sum(row[_ROWS] for row in inputs), sum(count for _, count in outputs)
    if rows != new_rows:
        found = f"the new files of bin {name} have {new_rows} rows, its inputs {rows} live rows"
        raise RewriteError(how.table, found, "nothing was committed; report this as a bug")


def _refuse_other_hashes(
    name: str, runs: Iterable[Runs], written: Iterable[OrderedFile], *, how: Rewriting
) -> None:
    expected, found = RowHash(), RowHash()
    for each in runs:
        expected.merge(each.hashed)
    for each in written:
        found.merge(each.hashed)
    refuse_other_hash(how.table, f"bin {name}", found=found, expected=expected)


def _failed(
    name: str, inputs: list[Add], written: Iterable[OrderedFile], *, how: Rewriting, reason: str
) -> pa.RecordBatch:
    """Remove the new files of a bin that failed; its inputs with the reason."""
    outputs = tuple(each.add for each in written if each.add is not None)
    remove_outputs(how.location, [RewrittenBin(name, (), outputs)])
    return unwritten_rows(name, inputs, state="failed", reason=reason)


def _shares(group: RewriteTask) -> list[_Share]:
    """Divide the files of a large bin evenly by number, for about SHARE_BYTES per share."""
    part = group.part
    wanted = min(max(-(-group.bytes // SHARE_BYTES), 1), part.rows)
    cuts = [part.first + part.rows * at // wanted for at in range(wanted + 1)]
    return [
        _Share(group.bin, PartSlice(part.path, "", first, end - first))
        for first, end in pairwise(cuts)
    ]


def _adds(part: PartSlice) -> list[Add]:
    return [
        _add(text) for batch in slice_batches(part, ["add"]) for text in batch["add"].to_pylist()
    ]


def _add(text: str) -> Add:
    return msgspec.json.decode(text, type=Add)
