"""Tables as a rewrite reads them: their live adds, their file schema, and their rows."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from maint_assets.compaction.columns.physical import FileSchema
from maint_assets.compaction.reading.data_files import footer_of, rows_of
from maint_assets.compaction.reading.hazards import Hazard, hazard
from maint_assets.delta.actions import Add, Metadata, Remove, actions
from maint_assets.delta.schema import Array, Map, Struct, TableSchema, Type
from maint_assets.snapshot.head import table_head
from maint_assets.storage.location import Location
from maint_assets_tests.oracles import delta_spark

_ROW_IDS = "delta.rowTracking.materializedRow{}ColumnName"


@dataclass(frozen=True)
class Opened:
    """An open table without a checkpoint."""

    location: Location
    target: FileSchema
    adds: tuple[Add, ...]

    def batches(self) -> list[pa.RecordBatch]:
        """The live rows of all files; each batch is validated and has exactly the file schema."""
        found = list(rows_of(self.location, self.adds, self.target))
        for batch in found:
            batch.validate(full=True)
            assert batch.schema.equals(self.target.arrow, check_metadata=True)
        return found

    def rows(self) -> list[dict[str, Any]]:
        """The live rows by logical names, in a fixed order."""
        columns = self.target.table.columns
        found = pa.Table.from_batches(self.batches(), self.target.arrow).to_pylist()
        return ordered([_logical(row, columns) for row in found])

    def hazards(self) -> list[str]:
        """Reasons why files of the table must not be rewritten by Arrow."""
        return [found.text for found in self.found_hazards()]

    def found_hazards(self) -> list[Hazard]:
        """The hazards, each with the engine that keeps the rows."""
        found: list[Hazard | None] = []
        for add in self.adds:
            with footer_of(self.location, add.path) as file:
                found.append(hazard(file, add, self.target))
        return [each for each in found if each is not None]


def opened(path: Path) -> Opened:
    """Open the newest version of a table whose log still has all commits."""
    head = table_head(Location.of(str(path)))
    properties = head.metadata.configuration
    mode = properties.get("delta.columnMapping.mode") or "none"
    names = properties.get(_ROW_IDS.format("Id")), properties.get(_ROW_IDS.format("CommitVersion"))
    schema = TableSchema.of(head.metadata, mapped=mode != "none", table=str(path))
    target = FileSchema.of(
        schema,
        by_id=mode == "id",
        partition_columns=True,
        row_tracking=(names[0], names[1]) if names[0] and names[1] else None,
    )
    return Opened(head.location, target, tuple(_live(path)))


def by_delta_spark(spark: SparkSession, path: Path, *extra: str) -> list[dict[str, Any]]:
    """All rows as delta-spark reads them; ``extra`` are further columns in SQL."""
    delta_spark.forget(spark)
    found = spark.read.format("delta").load(str(path)).selectExpr("*", *extra)
    return ordered(found.toArrow().to_pylist())


def ordered(rows: Iterable[Mapping[str, Any]]) -> list[Any]:
    """Rows in a fixed order, as text, so that NaN equals NaN."""
    return sorted(repr(sorted(row.items())) for row in rows)


def schema_of(
    *fields: tuple[str, Any] | dict[str, Any],
    partitions: tuple[str, ...] = (),
    mapped: bool = False,
) -> TableSchema:
    """A table's schema from pairs of name and type as in the log, or from whole fields."""
    every = [
        each if isinstance(each, dict) else {"name": each[0], "type": each[1], "metadata": {}}
        for each in fields
    ]
    text = json.dumps({"type": "struct", "fields": every})
    metadata = Metadata("id", text, list(partitions))
    return TableSchema.of(metadata, mapped=mapped, table="t")


def _live(path: Path) -> Iterable[Add]:
    live: dict[tuple[str, str | None], Add] = {}
    for commit in sorted((path / "_delta_log").glob("*.json")):
        for action in actions(commit.read_bytes(), table=str(path), file=commit.name):
            if action.remove is not None:
                live.pop(_key(action.remove), None)
            if action.add is not None:
                live[_key(action.add)] = action.add
    return live.values()


def _key(action: Add | Remove) -> tuple[str, str | None]:
    vector = action.deletion_vector
    return action.path, None if vector is None else vector.unique_id


def _logical(value: Any, kind: Type) -> Any:
    match kind:
        case Struct(fields=fields) if value is not None:
            names = {field.physical_name for field in fields}
            kept = {name: each for name, each in value.items() if name not in names}
            return kept | {
                field.name: _logical(value[field.physical_name], field.type)
                for field in fields
                if field.physical_name in value
            }
        case Array(element=element) if value is not None:
            return [_logical(each, element) for each in value]
        case Map() if value is not None:
            return [(_logical(k, kind.key), _logical(v, kind.value)) for k, v in value]
        case _:
            return value
