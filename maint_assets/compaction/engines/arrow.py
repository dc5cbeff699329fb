"""The Arrow engine: rewrite the live rows of each bin into one new file, on executors.

Nothing is committed here: a new file is not part of the table until a commit adds it.
"""

from __future__ import annotations

import hashlib
import logging
from contextlib import closing
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import types as T

from maint_assets.commit.rewrite.values import RewrittenBin
from maint_assets.compaction.reading.data_files import DataFiles
from maint_assets.compaction.reading.footers import file_hazard, hazards_of_footers
from maint_assets.compaction.verifying.same_rows import refuse_other_content
from maint_assets.compaction.writing.add_actions import bin_values, kept_marks, new_path, output_add
from maint_assets.compaction.writing.new_file import NewFile
from maint_assets.datasets.columns import arrow_schema, batch_of, column
from maint_assets.delta.actions import Add
from maint_assets.delta.paths import TableRoot, relative
from maint_assets.errors import MaintError, RewriteError, one_line
from maint_assets.storage import write
from maint_assets.storage.location import Location

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from maint_assets.compaction.reading.data_files import DataFile
    from maint_assets.compaction.reading.hazards import Hazard
    from maint_assets.compaction.writing.add_actions import Marks
    from maint_assets.compaction.writing.target import Rewriting

logger = logging.getLogger(__name__)

REWRITTEN_SCHEMA = T.StructType([
    column("bin", "string", "id of the bin"),
    column("role", "string", "input or output"),
    column("path", "string", "path as in the log"),
    column("size", "bigint", "bytes"),
    column("rows", "bigint", "live rows"),
    column("deleted", "bigint", "rows that a deletion vector marks as deleted"),
    column("state", "string", "committed, dropped, refused or failed"),
    column("engine", "string", "the engine of the bin: arrow or spark"),
    column("reason", "string", "why a bin was not committed", nullable=True),
    column("verified", "boolean", "whether the rows of the bin were compared with the inputs"),
    column("version", "bigint", "version of the commit", nullable=True),
    column("add", "string", "the add action", nullable=True),
])
"""The ledger of a compaction: one row per input and output file of a bin."""

REWRITTEN_ARROW = arrow_schema(REWRITTEN_SCHEMA)


_BUG = "report this as a bug"


class _RefusedError(Exception):
    """Arrow cannot rewrite a bin without changing its rows."""

    def __init__(self, hazard: Hazard) -> None:
        super().__init__(hazard)
        self.hazard = hazard


def rewrite_bins(bins: Iterable[pa.RecordBatch], how: Rewriting) -> Iterator[pa.RecordBatch]:
    """Rewrite bins; yields their inputs and outputs as REWRITTEN_SCHEMA, one batch per bin.

    ``bins`` are rows of the plan in which the files of a bin are adjacent. A bin that fails has
    state ``failed`` and a reason, and the others go on; ``left`` marks a bin for Spark. A file that
    no engine can rewrite is ``refused`` as a bin of its own, and the other files of its bin go on.
    """
    for files in grouped_by_bin(bins):
        yield _rewritten_bin(files, how)


def grouped_by_bin(bins: Iterable[pa.RecordBatch]) -> Iterator[list[dict[str, Any]]]:
    """Group rows of the plan by bin; the files of a bin are adjacent."""
    held: list[dict[str, Any]] = []
    for batch in bins:
        for row in batch.select(["bin", "rows", "live_bytes", "reason", "add"]).to_pylist():
            if held and row["bin"] != held[0]["bin"]:
                yield held
                held = []
            held.append(row)
    if held:
        yield held


def remove_outputs(location: Location, bins: Iterable[RewrittenBin]) -> None:
    """Delete the new files of bins that certainly were not committed.

    What cannot be deleted stays until the next VACUUM: the error that led here counts more.
    """
    root = TableRoot.of(location.uri)
    paths = [relative(add.path, root) for each in bins for add in each.outputs]
    try:
        write.remove_files(location, paths)
    except OSError as error:
        logger.warning("%s: %d new files stay uncommitted: %s", location.uri, len(paths), error)


def failure(error: Exception) -> str:
    """Why a bin failed, as its reason in the ledger."""
    if isinstance(error, MaintError):
        return str(error)
    if isinstance(error, OSError | pa.ArrowException | ValueError):
        return f"its new files cannot be written ({one_line(error)})"
    logger.error("a bin failed unexpectedly", exc_info=error)
    return f"it failed unexpectedly ({type(error).__name__}: {one_line(error)}); {_BUG}"


def _rewritten_bin(files: list[dict[str, Any]], how: Rewriting) -> pa.RecordBatch:
    """Rewrite one bin; an error fails this bin alone."""
    name = files[0]["bin"]
    try:
        return _written_or_left(name, files, how)
    except Exception as error:  # noqa: BLE001 - raised, it would end the job, and all other bins
        return unwritten_rows(name, _adds(files), state="failed", reason=failure(error))


def _written_or_left(name: str, files: list[dict[str, Any]], how: Rewriting) -> pa.RecordBatch:
    """Rewrite one bin; state ``left`` if only Spark can do so without changing its rows."""
    inputs = _adds(files)
    try:
        output, counts = _output(inputs, how)
    except _RefusedError as refused:
        return _without_unfit(name, files, how, hazard=refused.hazard)
    verified = how.row_check.takes(name)
    if verified:
        try:
            refuse_other_content(inputs, output, how)
        except BaseException:
            remove_outputs(how.location, [RewrittenBin(name, (), tuple(filter(None, [output])))])
            raise
    outputs = [] if output is None else [(output, sum(counts))]
    return written_rows(name, zip(inputs, counts, strict=True), outputs, verified=verified)


def _without_unfit(
    name: str, files: list[dict[str, Any]], how: Rewriting, *, hazard: Hazard
) -> pa.RecordBatch:
    """Rewrite or leave a bin that Arrow cannot rewrite as a whole because of ``hazard``.

    Files that no engine can rewrite become refused bins of their own. If those that remain are not
    worth a rewrite, the whole bin is refused.
    """
    inputs = _adds(files)
    found = hazards_of_footers(inputs, location=how.location, target=how.files)
    each = list(zip(files, inputs, found, strict=True))
    unfit = [(add, why) for _, add, (why, _) in each if why is not None and why.engine is None]
    if not unfit and any(why for why, _ in found):
        rows = [
            ledger_row(name, "input", add, rows=count, state="left", engine="spark")
            for _, add, (_, count) in each
        ]
        return batch_of(rows, REWRITTEN_ARROW)
    rest = [file for file, _, (why, _) in each if why is None or why.engine is not None]
    if not unfit or not _is_worth(rest):
        reason = unfit[0][1].text if unfit else hazard.text
        return unwritten_rows(name, inputs, state="refused", reason=reason)
    refused = [
        unwritten_rows(own_bin(name, add), [add], state="refused", reason=why.text)
        for add, why in unfit
    ]
    every = pa.Table.from_batches([_written_or_left(name, rest, how), *refused])
    return every.combine_chunks().to_batches()[0]


def _is_worth(files: list[dict[str, Any]]) -> bool:
    """Whether files are rewritten without the other files of their bin; not a small one alone."""
    return len(files) > 1 or any(file["reason"] != "small" for file in files)


def _adds(files: Iterable[dict[str, Any]]) -> list[Add]:
    return [msgspec.json.decode(file["add"], type=Add) for file in files]


def written_rows(
    name: str,
    inputs: Iterable[tuple[Add, int]],
    outputs: Iterable[tuple[Add, int]],
    *,
    engine: str = "arrow",
    verified: bool = False,
) -> pa.RecordBatch:
    """Rows of REWRITTEN_SCHEMA for a bin in state ``written``, each file with its live rows."""
    files = [*(("input", *each) for each in inputs), *(("output", *each) for each in outputs)]
    made = [
        ledger_row(name, role, add, rows=rows, engine=engine, verified=verified)
        for role, add, rows in files
    ]
    return batch_of(made, REWRITTEN_ARROW)


def unwritten_rows(
    name: str, inputs: Iterable[Add], *, state: str, reason: str | None, engine: str = "arrow"
) -> pa.RecordBatch:
    """Rows of REWRITTEN_SCHEMA for a bin that is not rewritten: its inputs, with the reason."""
    rows = [
        ledger_row(name, "input", add, rows=0, state=state, reason=reason, engine=engine)
        for add in inputs
    ]
    return batch_of(rows, REWRITTEN_ARROW)


def own_bin(name: str, add: Add) -> str:
    """The name of the bin of a file that is set apart from its planned bin."""
    return f"{name}-{hashlib.sha256(add.path.encode()).hexdigest()[:8]}"


def _output(inputs: list[Add], how: Rewriting) -> tuple[Add | None, list[int]]:
    """Write the new file of a bin; its add (None without live rows), and live rows per input.

    Raises _RefusedError if Arrow cannot rewrite an input; no new file is left then.
    """
    counts: list[int] = []

    files = DataFiles(how.location, how.files)
    dictionaries = files.keep_dictionaries(inputs)

    def copy(new_file: NewFile) -> None:
        counts.clear()
        files.expect(inputs)
        counts.extend(_copied(files, add, new_file) for add in inputs)

    values, marks = bin_values(inputs, how), kept_marks(inputs)
    output = write_data_file(copy, how, values=values, marks=marks, dictionaries=dictionaries)
    return output, counts


def write_data_file(
    fill: Callable[[NewFile], None],
    how: Rewriting,
    *,
    values: dict[str, str | None],
    marks: Marks,
    dictionaries: Sequence[str] = (),
) -> Add | None:
    """Write a new file with the rows that ``fill`` appends; its add, or None (no file) for no rows.

    ``fill`` appends the columns ``dictionaries`` dictionary-encoded. It is called again if later
    rows show that a column must be written otherwise than the first rows suggested
    (``NewFile.late``). If it raises, no file is left.
    """
    location, path = how.location, new_path(values, how)
    plain = frozenset[str]()
    with write.draft_directory(location) as draft, write.parent_of(draft, path):
        while True:
            with (
                write.new_file(draft, path) as sink,
                NewFile(sink, how, dictionaries=dictionaries, plain=plain) as new_file,
            ):
                fill(new_file)
            if not new_file.late:
                break
            draft.file(path).unlink()
            plain |= new_file.late
        statistics = new_file.statistics
        if not statistics.rows:
            draft.file(path).unlink()
            return None
        _refuse_unread(draft, path, statistics.rows, table=location.uri)
        write.publish(draft, location, path)
    return output_add(path, how, values=values, marks=marks, stats=statistics.json())


def _copied(files: DataFiles, add: Add, new_file: NewFile) -> int:
    """Copy the live rows of a file; returns their number.

    Raises _RefusedError for a file that Arrow cannot rewrite, RewriteError for missing rows.
    """
    with closing(files.open(add)) as file:
        found = file_hazard(file)
        if found is not None:
            raise _RefusedError(found)
        copied = 0
        for batch in file.rows():
            copied += batch.num_rows
            new_file.append(batch)
    refuse_other_rows(file, copied)
    return copied


def refuse_other_rows(file: DataFile, found: int) -> None:
    """Raise RewriteError unless as many rows were read as footer and deletion vector say."""
    if found != file.live_rows:
        raise RewriteError(
            file.location.uri,
            f"{found} rows were read from {file.add.path}, which has {file.live_rows} live rows",
            "nothing was committed; report this as a bug",
        )


def _refuse_unread(draft: Location, path: str, rows: int, *, table: str) -> None:
    found = pq.read_metadata(str(draft.file(path))).num_rows
    if found != rows:
        draft.file(path).unlink()
        raise RewriteError(
            table,
            f"the new file {path} has {found} rows, but {rows} were written",
            "nothing was committed; check the disk",
        )


def ledger_row(  # noqa: PLR0913
    name: str,
    role: str,
    add: Add,
    *,
    rows: int,
    state: str = "written",
    reason: str | None = None,
    engine: str = "arrow",
    verified: bool = False,
) -> tuple[Any, ...]:
    """A row of REWRITTEN_SCHEMA; ``rows`` are live rows, ``version`` is null until the commit."""
    text = msgspec.json.encode(add).decode()
    vector = add.deletion_vector
    deleted = 0 if vector is None else vector.cardinality
    cells = name, role, add.path, add.size, rows, deleted, state, engine, reason
    return *cells, verified, None, text
