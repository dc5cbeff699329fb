"""The partition predicate of an OPTIMIZE: a Spark SQL condition over partition columns only."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import functions as F
from pyspark.sql import types as T

from maint_assets.compaction.planning.schema import COMPACTION_ARROW, COMPACTION_SCHEMA
from maint_assets.delta.schema import Decimal, Primitive
from maint_assets.errors import PredicateError, of_text, one_line

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from pyspark.sql import Column

    from maint_assets.datasets.rows import Rows
    from maint_assets.delta.schema import Field, Type

_FILE, _MATCHES = "__maint_assets_file", "__maint_assets_matches"
_QUOTED = re.compile(
    r"'(?:[^'\\]|\\.)*'|([`\"])(?P<word>\w+)\1|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|/\*.*?\*/|--[^\n]*",
    re.DOTALL,
)
_OF_VALUES = ("22", "P0001")
"""SQLSTATEs of errors that depend on a value: "data exception", and that of ``assert_true``."""

_TRY = "use try_cast or try_divide"
_SUBQUERY = re.compile(r"\bselect\b|\(\s*(values|from|table|with)\b", re.IGNORECASE)
_UNSTEADY = re.compile(
    r"\b(rand|randn|random|randstr|uniform|uuid|shuffle|monotonically_increasing_id"
    r"|spark_partition_id|input_file_\w+|reflect|try_reflect|java_method|over)\s*\(",
    re.IGNORECASE,
)
"""Functions that are not deterministic for a partition: each plan would be another one."""


def of_partitions(files: Rows, where: str, *, partitions: Iterable[Field], table: str) -> Rows:
    """Set the reason ``other_partition`` for files whose partition does not match ``where``.

    ``files`` and the result are rows of COMPACTION_SCHEMA. Raises PredicateError.
    """
    columns = tuple(partitions)
    names = ", ".join(field.name for field in columns) or "none"
    # Literals, quoted names and comments may hold any word.
    bare = _QUOTED.sub(" ", where)
    if _SUBQUERY.search(bare):
        raise PredicateError(table, f"where {where!r} holds a subquery", "give a plain condition")
    # The name of a function may be quoted.
    called = _QUOTED.sub(lambda quoted: f" {quoted['word'] or ''} ", where)
    if (found := _UNSTEADY.search(called)) is not None:
        unsteady = f"where {where!r} uses {found[1]}, whose value does not depend on the partition"
        raise PredicateError(table, unsteady, f"use partition columns: {names}")
    if _FILE in where or _MATCHES in where:
        raise PredicateError(table, f"where {where!r} names an internal column", "leave it out")
    frame = files.as_frame(COMPACTION_SCHEMA)
    typed = frame.select(
        F.struct(*frame.columns).alias(_FILE),
        *(
            _value(F.from_json("partition", "map<string,string>"), field).alias(field.name)
            for field in columns
        ),
    )
    reason = F.when(F.col(_MATCHES), F.col("reason")).otherwise(F.lit("other_partition"))
    try:
        with _unlogged():
            matched = typed.select(_FILE, F.expr(where).cast("boolean").alias(_MATCHES))
            kind = typed.select(F.expr(where).alias("found")).schema["found"].dataType
    except (AnalysisException, ParseException) as error:
        raise PredicateError(
            table, f"where {where!r} {_fault(error)}", f"use partition columns: {names}"
        ) from error
    if not isinstance(kind, T.BooleanType):
        raise PredicateError(
            table, f"where {where!r} is of type {kind.simpleString()}", "give a condition"
        )
    shown = matched.select(f"{_FILE}.*", _MATCHES).withColumn("reason", reason).drop(_MATCHES)
    return replace(files, frame=shown.select(*frame.columns), function=_typed)


@contextmanager
def failed_values(where: str | None, *, table: str) -> Generator[None, None, None]:
    """Raise PredicateError when the predicate fails on a partition value while files are matched.

    Our own errors from executors pass unchanged.
    """
    try:
        with _unlogged():
            yield
    except PySparkException as error:
        if where is None or of_text(str(error)) is not None or not _is_of_value(error):
            raise
        raise PredicateError(
            table, f"where {where!r} fails on a partition value ({_sentence(error)})", _TRY
        ) from error


@contextmanager
def _unlogged() -> Generator[None, None, None]:
    """Silence PySpark's log of SQL errors: the PredicateError says in one sentence what is wrong.

    The logger must be created by ``PySparkLogger``: after a plain logger of the same name, each
    later SQL error of the process is a TypeError.
    """
    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    disabled, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = disabled


def _is_of_value(error: PySparkException) -> bool:
    """Whether the error is about a value: "data exception" (class 22), or ``assert_true``."""
    return (error.getSqlState() or "").startswith(_OF_VALUES)


def _sentence(error: PySparkException) -> str:
    return one_line(error).partition(" SQLSTATE")[0]


def _fault(error: PySparkException) -> str:
    if (error.getCondition() or "").startswith("UNRESOLVED_COLUMN"):
        name = (error.getMessageParameters() or {}).get("objectName", "a column")
        return f"names {name}, which is not a partition column"
    return f"is not valid ({_sentence(error)})"


def _typed(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows that passed through Spark, with the schema of COMPACTION_ARROW again."""
    for batch in rows:
        yield pa.RecordBatch.from_arrays(batch.columns, schema=COMPACTION_ARROW)


def _value(values: Column, field: Field) -> Column:
    return values.getItem(field.physical_name).cast(_spark_type(field.type))


def _spark_type(kind: Type) -> str:
    match kind:
        case Decimal(precision=precision, scale=scale):
            return f"decimal({precision},{scale})"
        case Primitive(name=name):
            return name
        case _:
            raise TypeError(f"{kind} is not a type of a partition column")
