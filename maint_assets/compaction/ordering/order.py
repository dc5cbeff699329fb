"""By which columns rows are ordered, and how new files say so (optimize.md 4.2, 4.3).

Clustered files carry Delta's own tags. Delta leaves no mark on Z-ordered ones and so orders them
again in each run; new files of ours carry a tag that other engines pass by.
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

CUBE_TAG, COLUMNS_TAG = "ZCUBE_ID", "ZCUBE_ZORDER_BY"
"""Delta's tags of clustered files: the run that made them, the logical names of the columns."""

Z_CUBE_TAG, Z_COLUMNS_TAG = "MAINT_ASSETS_ZCUBE_ID", "MAINT_ASSETS_ZORDER_BY"
"""Our tags of Z-ordered files: the same, with physical paths."""

PROVIDER = "liquid"

_PART = r"(?:`(?:[^`]|``)+`|[^.`]+)"
_NAME = re.compile(rf"{_PART}(?:\.{_PART})*")


@dataclass(frozen=True, slots=True)
class Ordering:
    """The columns in their order, by logical and by physical path.

    ``clustering``: the table asks for it, in its domain ``delta.clustering``.
    """

    names: tuple[Path, ...]
    columns: tuple[Path, ...]
    clustering: bool

    @property
    def shown(self) -> tuple[str, ...]:
        """The columns as people write them."""
        return tuple(".".join(map(_quoted, name)) for name in self.names)

    @property
    def cube_tag(self) -> str:
        """The tag that names the run that ordered a file."""
        return CUBE_TAG if self.clustering else Z_CUBE_TAG

    @property
    def columns_tag(self) -> str:
        """The tag that names the columns by which a file is ordered."""
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
        """What the commits of a run say of it (optimize.md 6)."""
        named = msgspec.json.encode(self.shown).decode()
        if not self.clustering:
            return {"zOrderBy": named, "clusterBy": "[]"}
        return {"zOrderBy": "[]", "clusterBy": named, "isFull": full}


def ordering(
    head: TableHead, schema: TableSchema, selection: Selection, *, clustered: tuple[Path, ...]
) -> Ordering | None:
    """How the table's rows are to be ordered: as it is clustered, else as asked, None for not.

    ``clustered`` are the physical paths of the columns of its clustering.

    Raises OrderError for columns by which no order helps readers, and for ``full`` without any.
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
            "has variants, which only Spark keeps, and rows are ordered without it",
            "leave zorder_by out; order it with another engine",
        )
    if selection.full and found is None:
        raise OrderError(
            head.table,
            "is to be ordered in full, and has no order",
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
        found = f"its clustering names {missing[0]}, which is no column that has an order"
        raise OrderError(head.table, found, "mend its clustering")
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
    """The logical and the physical path of a column that is asked for, as Spark resolves names."""
    asked = _parts(text)
    by_name: dict[Path, list[tuple[Path, Path, Type]]] = {}
    for name, path, kind in _leaves(schema.data):
        by_name.setdefault(_lower(name), []).append((name, path, kind))
    if asked[:1] in {_lower((name,)) for name in schema.partition_columns}:
        raise OrderError(
            head.table,
            f"zorder_by names the partition column {text}",
            "leave it out: files of different partitions are never mixed",
        )
    found = by_name.get(asked, [])
    if len(found) != 1:
        known = ", ".join(".".join(map(_quoted, name)) for name, _, _ in _leaves(schema.data))
        raise OrderError(
            head.table, f"zorder_by names {text}, which it does not have", f"use of {known}"
        )
    name, path, kind = found[0]
    if not is_skipping_eligible(kind):
        raise OrderError(
            head.table,
            f"zorder_by names {text}, a column of a type by which Delta skips no files",
            "use columns of numbers, texts, days or times",
        )
    if path not in indexed_columns(schema, head.properties):
        raise OrderError(
            head.table,
            f"zorder_by names {text}, of which files have no statistics, so no reader gains",
            "raise delta.dataSkippingNumIndexedCols or name it in delta.dataSkippingStatsColumns",
        )
    return name, path


def _parts(text: str) -> Path:
    """The lower-case parts of a name; one that is none of SQL's is one part."""
    if not _NAME.fullmatch(text.strip()):
        return (text.lower(),)
    return tuple(
        part[1:-1].replace("``", "`").lower() if part.startswith("`") else part.strip().lower()
        for part in re.findall(_PART, text.strip())
    )


def _leaves(
    struct: Struct, logical: Path = (), physical: Path = ()
) -> Iterable[tuple[Path, Path, Type]]:
    """Logical and physical path and type of every column that is no struct."""
    for field in struct.fields:
        name, path = (*logical, field.name), (*physical, field.physical_name)
        if isinstance(field.type, Struct):
            yield from _leaves(field.type, name, path)
        else:
            yield name, path, field.type


def _lower(path: Path) -> Path:
    return tuple(part.lower() for part in path)


def _quoted(part: str) -> str:
    return f"`{part.replace('`', '``')}`" if "." in part or "`" in part else part
