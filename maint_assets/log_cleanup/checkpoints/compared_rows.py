"""Read the actions of commits and checkpoints as rows of numbers, for the comparison of both.

Hashes instead of texts keep a row at a few dozen bytes, so that large logs can be exchanged.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from maint_assets.datasets.columns import batch_of
from maint_assets.datasets.parts import text_hashes
from maint_assets.delta.actions import DomainMetadata, Metadata, Protocol, Txn, parse_action
from maint_assets.delta.names import LogFile
from maint_assets.errors import CorruptLogError, LogGapError
from maint_assets.log_cleanup.checkpoints.content import other_action, transaction_retention_ms
from maint_assets.log_cleanup.checkpoints.hashes import (
    NUMBERS,
    Hashes,
    Table,
    file_hashes,
    key_hashes,
    statistics,
    value_hash,
)
from maint_assets.snapshot.commits import commit_lines
from maint_assets.snapshot.control_actions import non_file_rows, to_action
from maint_assets.snapshot.file_actions import actions_of
from maint_assets.snapshot.log import LogEntry
from maint_assets.snapshot.log_units import log_errors
from maint_assets.snapshot.schemas import LogUnit
from maint_assets.snapshot.whole.actions import canonical_keys, full_actions_of
from maint_assets.snapshot.whole.parsed_stats import PARSED, lacks_json_stats
from maint_assets.storage import read

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from maint_assets.delta.actions import Action
    from maint_assets.log_cleanup.checkpoints.hashes import Spelled
    from maint_assets.storage.location import Location

    Numbers = npt.NDArray[np.int64]

COMMITS = -1
"""The value of ``of`` for actions of commits."""

NEVER = -1
"""The time of the last update of a transaction identifier that has none."""

FILE, OTHER, EXPIRES, BROKEN = range(4)
"""The kinds of rows: a file action, another action, metadata that lets transaction identifiers
expire (``value``: after how many ms), or a log file that cannot be read (``name``: the reason)."""

COMPARED_ARROW = pa.schema([
    ("place", pa.int64()),
    ("key", pa.int64()),
    ("value", pa.int64()),
    ("rows", pa.int64()),
    ("bounds", pa.int64()),
    ("ord", pa.int64()),
    ("of", pa.int64()),
    ("kind", pa.int8()),
    ("name", pa.string()),
])
"""A row per action.

``place``, ``key``, ``value``: hashes of the decoded path, the replay key and the content (0: a
remove). ``rows``, ``bounds``: see ``hashes.statistics``; ``rows`` of a transaction identifier: the
time of its last update in ms. ``ord``: version * 2, + 1 unless the
action removes a file. ``of``: number of the checkpoint that holds it, or COMMITS. ``name``: of an
action that is not of a file. All rows of one key have the same ``place``.
"""

_BATCH_ROWS = 16_384
_OF_A_REMOVE = (None, *(None for _ in NUMBERS))
"""Statistics and numbers, which are not compared."""
_OTHERS: dict[str, Any] = {
    "txn": Txn,
    "domainMetadata": DomainMetadata,
    "metaData": Metadata,
    "protocol": Protocol,
}


class Reading(msgspec.Struct, frozen=True):
    """A log file to read: of the checkpoint with number ``of``, or of COMMITS.

    ``others``: whether to read the actions that are not of files; of commits they always are.
    """

    unit: LogUnit
    of: int = COMMITS
    others: bool = False


def compared_rows(table: Table, some: Iterable[Reading]) -> Iterator[pa.RecordBatch]:
    """The actions of log files as batches of COMPARED_ARROW.

    A file that cannot be read gives a BROKEN row, perhaps after rows of some of its actions.
    """
    commits, every = _Commits(table), list(some)
    in_turn = read.in_turn(table.location, [each.unit for each in every])
    for each, unit in zip(every, in_turn, strict=True):
        try:
            if each.of == COMMITS:
                yield from commits.read(unit)
            else:
                yield from _checkpoint_rows(table, each)
        except (CorruptLogError, LogGapError) as error:
            mark = (0, 0, 0, 0, 0, unit.version, each.of, BROKEN, error.found)
            yield batch_of([mark], COMPARED_ARROW)
    yield from commits.rest()


@dataclass(slots=True)
class _Commits:
    """Collects the actions of many small commits into few batches."""

    table: Table
    files: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])
    others: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])

    def read(self, unit: LogUnit) -> Iterator[pa.RecordBatch]:
        """Read one commit; yield a batch whenever enough rows are collected."""
        location, name = self.table.location, unit.path.rpartition("/")[2]
        with log_errors(location, unit):
            for line in commit_lines(location, unit.path):
                self._append(parse_action(line, table=location.uri, file=name), unit.version)
                if len(self.files) + len(self.others) >= _BATCH_ROWS:
                    yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """The rows collected since the last batch."""
        files, others = self.files, self.others
        self.files, self.others = [], []
        if others:
            yield batch_of(others, COMPARED_ARROW)
        if files:
            paths, vectors, order, values, stats, *numbers = zip(*files, strict=True)
            keys = canonical_keys(pa.array(paths, pa.string()))
            actions = _Actions(keys, pa.array(vectors, pa.string()), np.array(order, np.int64))
            rows_and_bounds = statistics(stats, of_commit=True)
            adds = _Adds([pa.array(e, pa.int64()) for e in numbers], values, *rows_and_bounds)
            yield _file_rows(self.table, actions, adds)

    def _append(self, action: Action, version: int) -> None:
        add, remove = action.add, action.remove
        if add is not None:
            of, vector = add.deletion_vector, ("", None, None)
            if of is not None:
                vector = of.unique_id, of.size_in_bytes, of.cardinality
            values = tuple(add.partition_values.items())
            numbers = add.size, add.modification_time, *vector[1:]
            row_ids = add.base_row_id, add.default_row_commit_version
            key = add.path, vector[0], version * 2 + 1
            self.files.append((*key, values, add.stats, *numbers, *row_ids))
        if remove is not None:
            vector = "" if remove.deletion_vector is None else remove.deletion_vector.unique_id
            self.files.append((remove.path, vector, version * 2, (), *_OF_A_REMOVE))
        for value in (action.txn, action.domainMetadata, action.metaData, action.protocol):
            if value is not None:
                self.others += _other_rows(value, version, COMMITS)


@dataclass(frozen=True, slots=True)
class _Actions:
    """File actions: canonical paths, deletion vector ids, and order (odd for an add)."""

    keys: pa.Array
    vectors: pa.Array
    order: Numbers
    of: int = COMMITS


@dataclass(frozen=True, slots=True)
class _Adds:
    """Numbers (see ``file_hashes``), partition values and statistics of adds; any for removes."""

    numbers: list[pa.Array]
    values: Iterable[Spelled]
    rows: Hashes
    bounds: Hashes


def _checkpoint_rows(table: Table, each: Reading) -> Iterator[pa.RecordBatch]:
    location = table.location
    if each.others:
        yield from _others_of_checkpoint(location, each)
    are_texts = _has_texts(location, each.unit)
    only_adds = msgspec.structs.replace(each.unit, removes=False)
    for batch in full_actions_of(location, [only_adds]):
        adds = batch["add"]
        stats = pc.struct_field(adds, "stats").to_pylist()
        rows_and_bounds = statistics(stats, of_commit=False, are_texts=are_texts)
        values = map(tuple, pc.struct_field(adds, "partitionValues").to_pylist())
        numbers = [pc.struct_field(adds, list(name)) for name in NUMBERS]
        rows = _Adds(numbers, values, *rows_and_bounds)
        yield _file_rows(table, _actions(batch, each.of), rows)
    # Of removes only the keys are compared: without the columns that adds need.
    only_removes = msgspec.structs.replace(each.unit, adds=False)
    for batch in actions_of(location, [only_removes]):
        files = batch.filter(pc.equal(batch["what"], "file"))
        yield _file_rows(table, _actions(files, each.of), None)


def _actions(batch: pa.RecordBatch, of: int) -> _Actions:
    return _Actions(batch["log_key"], batch["dv_id"], batch["ord"].to_numpy(), of)


def _file_rows(table: Table, actions: _Actions, adds: _Adds | None) -> pa.RecordBatch:
    places, keys = key_hashes(table, actions.keys, actions.vectors)
    value = rows = bounds = np.zeros(places.size, np.uint64)
    if adds is not None:
        contents = file_hashes(table, keys, numbers=adds.numbers, values=adds.values)
        value = np.where((actions.order & 1).astype(np.bool_), contents, np.uint64(0))
        rows, bounds = adds.rows, adds.bounds
    numbers = [pa.array(each.view(np.int64)) for each in (places, keys, value, rows, bounds)]
    marks = (pa.scalar(actions.of, pa.int64()), pa.scalar(FILE, pa.int8()))
    repeated = [pa.repeat(mark, places.size) for mark in marks]
    nameless = pa.nulls(places.size, pa.string())
    arrays = [*numbers, pa.array(actions.order), *repeated, nameless]
    return pa.RecordBatch.from_arrays(arrays, schema=COMPARED_ARROW)


def _others_of_checkpoint(location: Location, each: Reading) -> Iterator[pa.RecordBatch]:
    name = each.unit.path.rpartition("/")[2]
    file = LogFile.parse(name)
    assert file is not None, "a checkpoint has the name of one"
    entry, found = LogEntry(file, each.unit.size, 0), list[tuple[Any, ...]]()
    for row in non_file_rows(location, entry, tuple(_OTHERS)):
        for kind, wanted in _OTHERS.items():
            if row.get(kind):
                value = to_action(row[kind], wanted, table=location.uri, file=name)
                found += _other_rows(value, each.unit.version, each.of)
        if len(found) >= _BATCH_ROWS:
            yield batch_of(found, COMPARED_ARROW)
            found = []
    yield batch_of(found, COMPARED_ARROW)


def _other_rows(value: Any, version: int, of: int) -> Iterator[tuple[Any, ...]]:
    """Rows of an action that is not of a file; a removed domain has the value 0."""
    (kind, name), content = other_action(value)
    text = f"{kind} {name}".rstrip()
    key = _signed(int(text_hashes(pa.array([text]))[0]))
    hashed = 0 if content is None else _signed(value_hash(content))
    updated_ms = NEVER if not isinstance(value, Txn) else value.last_updated or NEVER
    yield (key, key, hashed, updated_ms, 0, version * 2 + 1, of, OTHER, text)
    if isinstance(value, Metadata) and (kept_ms := transaction_retention_ms(value)) is not None:
        yield (0, 0, kept_ms, 0, 0, version * 2 + 1, of, EXPIRES, None)


def _signed(number: int) -> int:
    # Hashes are unsigned, but Spark's and the schema's integers are not.
    return number - (1 << 64) if number >> 63 else number


def _has_texts(location: Location, unit: LogUnit) -> bool:
    """Whether the statistics of a checkpoint file are the texts of the commits.

    Where only ``stats_parsed`` is present the text is printed again, with its timestamps truncated.
    """
    if not unit.path.endswith(".parquet"):
        return True
    with log_errors(location, unit), read.parquet(location, unit.path) as file:
        schema = file.schema_arrow
        if "add" not in schema.names or not pa.types.is_struct(schema.field("add").type):
            return True
        names = {field.name for field in schema.field("add").type}
        return PARSED not in names or not lacks_json_stats(file)
