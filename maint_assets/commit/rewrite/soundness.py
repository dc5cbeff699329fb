"""Validate a batch of rewritten bins before its commit.

The engines verify rows as they write. These rules check what the commit would say, so that an
error of an engine or of the planning never reaches the log.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING

from maint_assets.commit.rewrite.row_ids import RowTracking
from maint_assets.delta.conflicts import file_name
from maint_assets.delta.schema import TableSchema
from maint_assets.errors import CommitError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from maint_assets.commit.rewrite.values import RewriteRequest, RewrittenBin
    from maint_assets.snapshot.head import TableHead


def refuse_unsound(head: TableHead, bins: Sequence[RewrittenBin], request: RewriteRequest) -> None:
    """Raise CommitError with the first fault of the batch, if it has any."""
    if RowTracking.of(head) is RowTracking.ENABLED and not request.row_ids_kept:
        what = "row tracking is enabled, but the rewritten files do not keep the row ids"
        raise CommitError(head.table, what, "rewrite the files with their row ids")
    faults = chain(
        _repeated(head, bins),
        _misplaced(head, bins),
        (f"bin {each.bin}: {found}" for each in bins for rule in RULES for found in rule(each)),
    )
    if (first := next(faults, None)) is not None:
        raise CommitError(head.table, first, "report this as a bug; nothing was committed")


def _repeated(head: TableHead, bins: Sequence[RewrittenBin]) -> Iterator[str]:
    """Files that the batch names more than once, as an input or an output."""
    files = (file for each in bins for file in (*each.inputs, *each.outputs))
    counted = Counter(file_name(file.path, head.root) for file in files)
    yield from (f"{path} is in the batch more than once" for path, n in counted.items() if n > 1)


def _misplaced(head: TableHead, bins: Sequence[RewrittenBin]) -> Iterator[str]:
    """New files without exactly one value (null included) per partition column.

    Keys of ``partitionValues`` are physical column names (PROTOCOL, "Column Mapping").
    """
    mapped = head.properties.column_mapping_mode != "none"
    schema = TableSchema.of(head.metadata, mapped=mapped, table=head.table)
    columns = {field.physical_name for field in schema.partitions}
    for file in (file for each in bins for file in each.outputs):
        if file.partition_values.keys() != columns:
            yield f"{file.path} has other partition columns than {sorted(columns)}"


def _without_inputs(each: RewrittenBin) -> Iterator[str]:
    if not each.inputs:
        yield "it has no inputs"


def _not_new(each: RewrittenBin) -> Iterator[str]:
    for file in each.outputs:
        if (file.deletion_vector, file.base_row_id, file.default_row_commit_version) != (None,) * 3:
            yield f"{file.path} has a deletion vector or row ids already"


def _empty(each: RewrittenBin) -> Iterator[str]:
    for file in each.outputs:
        if file.size <= 0 or not file.num_records:
            yield f"{file.path} has no bytes, no rows or no numRecords"


def _other_rows(each: RewrittenBin) -> Iterator[str]:
    """Different numbers of live input rows and output rows.

    If some inputs have no ``numRecords``, only fewer output rows than known input rows are a fault.
    """
    before = [file.live_records for file in each.inputs]
    after = sum(file.num_records or 0 for file in each.outputs)
    known = sum(rows for rows in before if rows is not None)
    if (None not in before and known != after) or known > after:
        yield f"its inputs have {known} rows, its outputs {after}"


RULES: tuple[Callable[[RewrittenBin], Iterator[str]], ...] = (
    _without_inputs,
    _not_new,
    _empty,
    _other_rows,
)
"""The rules for one bin; each function yields the faults it finds."""
