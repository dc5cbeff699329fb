"""The columns to order by, and the tags with which new files record their order.

Clustered files carry Delta's own tags. Delta does not tag Z-ordered files, so each of its runs
orders them again; our files carry tags of our own, which other engines ignore.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from maint_assets.compaction.columns.physical import has_variants
from maint_assets.delta.schema import Struct
from maint_assets.delta.stats import indexed_columns, is_skipping_eligible
from maint_assets.errors import OrderError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from maint_assets.compaction.plan import Selection
    from maint_assets.delta.schema import TableSchema, Type
    from maint_assets.snapshot.head import TableHead

    Path = tuple[str, ...]

_PLAIN = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)

CUBE_TAG, COLUMNS_TAG = "ZCUBE_ID", "ZCUBE_ZORDER_BY"
"""Delta's tags of clustered files: id of the run that ordered them, logical column names."""

Z_CUBE_TAG, Z_COLUMNS_TAG = "MAINT_ASSETS_ZCUBE_ID", "MAINT_ASSETS_ZORDER_BY"
"""Our tags of Z-ordered files: the same, with the physical paths of the columns."""

PROVIDER = "liquid"

_PART = r"(?:`(?:[^`]|``)+`|[^.`]+)"
_NAME = re.compile(rf"{_PART}(?:\.{_PART})*")
_COMMA = re.compile(r",(?=[^`]*(?:`[^`]*`[^`]*)*$)")
"""A comma outside backticks: an even number of them follows."""


@dataclass(frozen=True, slots=True)
class Ordering:
    """The columns to order by: logical paths (``names``) and physical paths (``columns``).

    ``clustering`` is true if they are the clustering columns of the table.
    """

    names: tuple[Path, ...]
    columns: tuple[Path, ...]
    clustering: bool

    @property
    def shown(self) -> tuple[str, ...]:
        """The columns as in SQL: parts joined by dots, quoted where delta-spark quotes them.

        In a clustering it quotes all but plain identifiers. It compares the texts with its own, and
        clusters files again whose text differs.
        """
        quoted = _quoted_unless_plain if self.clustering else _quoted
        return tuple(".".join(map(quoted, name)) for name in self.names)

    @property
    def cube_tag(self) -> str:
        """The tag with the id of the run that ordered a file."""
        return CUBE_TAG if self.clustering else Z_CUBE_TAG

    @property
    def columns_tag(self) -> str:
        """The tag with the columns by which a file is ordered."""
        return COLUMNS_TAG if self.clustering else Z_COLUMNS_TAG

    @property
    def columns_text(self) -> str:
        """The value of ``columns_tag`` in files of this ordering."""
        named: Any = self.shown if self.clustering else self.columns
        return msgspec.json.encode(named).decode()

    @property
    def provider(self) -> Literal["liquid"] | None:
        """The ``clusteringProvider`` of new files."""
        return PROVIDER if self.clustering else None

    def tags(self, cube: str) -> dict[str, str | None]:
        """The tags of new files."""
        return {self.cube_tag: cube, self.columns_tag: self.columns_text}

    def parameters(self, *, full: bool) -> dict[str, Any]:
        """The ``operationParameters`` of the commits of a run, with Delta's names."""
        named = msgspec.json.encode(self.shown).decode()
        if not self.clustering:
            return {"zOrderBy": named, "clusterBy": "[]"}
        return {"zOrderBy": "[]", "clusterBy": named, "isFull": full}


def listed_names(text: str) -> list[str]:
    """The names of columns in a list separated by commas, as for ``zorder_by``."""
    return [name.strip() for name in _COMMA.split(text)]


def ordering(
    head: TableHead, schema: TableSchema, selection: Selection, *, clustered: tuple[Path, ...]
) -> Ordering | None:
    """The ordering of a run: by the clustering columns, else by ``zorder_by``, else None.

    ``clustered`` are the physical paths of the table's clustering columns.

    Raises OrderError for columns that cannot be ordered or for which no reader skips files, for a
    Z-order of a clustered table, and for ``full`` without an ordering.
    """
    zorder_by = selection.zorder_by
    if clustered and zorder_by:
        raise OrderError(
            head.table,
            "is clustered, so it is not Z-ordered",
            "leave zorder_by out: OPTIMIZE keeps to the columns of the clustering",
        )
    found = _clustering(head, schema, clustered) or _z_order(head, schema, zorder_by)
    if found is not None and has_variants(schema.data):
        raise OrderError(
            head.table,
            "has variant columns: only Spark rewrites them, and Spark does not order rows here",
            "leave zorder_by out; order it with another engine",
        )
    if selection.full and found is None:
        raise OrderError(
            head.table,
            "has nothing to order in full: it has no clustering, and zorder_by is empty",
            "name columns in zorder_by, or cluster the table",
        )
    return found


def _clustering(
    head: TableHead, schema: TableSchema, clustered: tuple[Path, ...]
) -> Ordering | None:
    if not clustered:
        return None
    logical = {
        physical: name
        for name, physical, kind in _leaves(schema.data)
        if is_skipping_eligible(kind)
    }
    missing = [".".join(each) for each in clustered if each not in logical]
    if missing:
        found = f"its clustering names {missing[0]}, which is no column of an ordered type"
        raise OrderError(
            head.table, found, "set its clustering columns again with ALTER TABLE ... CLUSTER BY"
        )
    return Ordering(tuple(logical[each] for each in clustered), clustered, clustering=True)


def _z_order(head: TableHead, schema: TableSchema, zorder_by: Sequence[str]) -> Ordering | None:
    if not zorder_by:
        return None
    found = [_column(name, head, schema) for name in zorder_by]
    names, columns = tuple(name for name, _ in found), tuple(path for _, path in found)
    if len(set(columns)) < len(columns):
        raise OrderError(head.table, "zorder_by names a column twice", "name each once")
    return Ordering(names, columns, clustering=False)


def _column(text: str, head: TableHead, schema: TableSchema) -> tuple[Path, Path]:
    """The logical and physical path of a requested column; names resolve as in Spark."""
    asked = _parts(text)
    by_name: dict[Path, list[tuple[Path, Path, Type]]] = {}
    for name, path, kind in _leaves(schema.data):
        by_name.setdefault(_lower(name), []).append((name, path, kind))
    if asked[:1] in {_lower((name,)) for name in schema.partition_columns}:
        raise OrderError(
            head.table,
            f"zorder_by names the partition column {text}",
            "leave it out: a file never holds rows of two partitions",
        )
    found = by_name.get(asked, [])
    if len(found) != 1:
        known = ", ".join(".".join(map(_quoted, name)) for name, _, _ in _leaves(schema.data))
        raise OrderError(
            head.table,
            f"zorder_by names {text}, which it does not have",
            f"its columns are {known}",
        )
    name, path, kind = found[0]
    if not is_skipping_eligible(kind):
        raise OrderError(
            head.table,
            f"zorder_by names {text}, a column of a type by which Delta skips no files",
            "use columns of a numeric, string, date or timestamp type",
        )
    if path not in indexed_columns(schema, head.properties):
        raise OrderError(
            head.table,
            f"zorder_by names {text}, but files have no statistics of it, so readers skip none",
            "raise delta.dataSkippingNumIndexedCols or name it in delta.dataSkippingStatsColumns",
        )
    return name, path


def _parts(text: str) -> Path:
    """The lower-case parts of a dotted name; a text that is no SQL identifier is one part."""
    if not _NAME.fullmatch(text.strip()):
        return (text.lower(),)
    return tuple(
        part[1:-1].replace("``", "`").lower() if part.startswith("`") else part.strip().lower()
        for part in re.findall(_PART, text.strip())
    )


def _leaves(
    struct: Struct, logical: Path = (), physical: Path = ()
) -> Iterable[tuple[Path, Path, Type]]:
    """Logical path, physical path and type of each leaf column: structs are descended into."""
    for field in struct.fields:
        name, path = (*logical, field.name), (*physical, field.physical_name)
        if isinstance(field.type, Struct):
            yield from _leaves(field.type, name, path)
        else:
            yield name, path, field.type


def _lower(path: Path) -> Path:
    return tuple(part.lower() for part in path)


def _quoted(part: str) -> str:
    return _in_backticks(part) if "." in part or "`" in part else part


def _quoted_unless_plain(part: str) -> str:
    return part if _PLAIN.fullmatch(part) else _in_backticks(part)


def _in_backticks(part: str) -> str:
    return f"`{part.replace('`', '``')}`"
