"""What a person sees of a materialisation: a summary line, numbers that plot, schema, preview."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import types as T

    from maint_assets.assets.store import StageDataset
    from maint_assets.assets.vacuum_stages import StageResult

PREVIEW_ROWS = 25

_STEP = 1000
_UNITS = ("B", "KB", "MB", "GB", "TB", "PB")
_KINDS = {"bigint": "int", "string": "string", "boolean": "bool"}


def human_bytes(size: float) -> str:
    """A size as people write it: ``14.5 KB``."""
    unit = 0
    while size >= _STEP and unit < len(_UNITS) - 1:
        size, unit = size / _STEP, unit + 1
    return f"{size:.0f} {_UNITS[unit]}" if unit == 0 else f"{size:.1f} {_UNITS[unit]}"


def human_time(time_ms: int | None) -> str:
    """A time in UTC, or a dash."""
    if time_ms is None:
        return "-"
    return datetime.fromtimestamp(time_ms / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


def human_count(number: int, noun: str) -> str:
    """``1 file``, ``1,200 files``, ``2 directories``."""
    plural = noun[:-1] + "ies" if noun.endswith("y") else noun + "s"
    return f"{number:,} {noun if number == 1 else plural}"


def metadata(
    result: StageResult,
    *,
    line: str,
    dataset: StageDataset,
    preview: dg.TableMetadataValue | None,
    schema: T.StructType,
) -> dict[str, Any]:
    """The metadata of a materialisation: numbers of the summary plot over time in the UI."""
    shown: dict[str, Any] = {"summary": dg.MetadataValue.md(line)}
    if preview is not None:
        shown["preview"] = preview
    shown |= {
        "dataset": dg.MetadataValue.path(dataset.location.path),
        "dagster/row_count": result.written.rows,
        "dagster/column_schema": column_schema(schema),
    }
    plan = getattr(result.summary, "plan", None)
    if plan is not None:
        shown |= {"digest": dg.MetadataValue.text(plan.digest), "share": plan.share}
    for name, value in _flat(dataclasses.asdict(result.summary)).items():
        if name.endswith("_ms") and isinstance(value, int):
            shown[name.removesuffix("_ms")] = dg.MetadataValue.text(_moment(name, value))
        elif isinstance(value, (bool, int, float)):
            shown[name] = value
        elif isinstance(value, str) and name not in shown:
            shown[name] = dg.MetadataValue.text(value)
    return shown


def _moment(name: str, value: int) -> str:
    """A length or a point of time: as a number in ms it would be noise among the plots."""
    if name == "retention_ms":
        return str(timedelta(milliseconds=value)).removesuffix(", 0:00:00")
    return human_time(value)


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested numbers under joined names, so that each has a plot of its own."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            nested = "" if name == "plan" else f"{prefix}{name}/"
            flat |= _flat(value, nested)
        elif isinstance(value, list):
            flat[prefix + name] = ", ".join(map(str, value)) or "none"
        else:
            flat[prefix + name] = value
    return flat


def column_schema(schema: T.StructType) -> dg.TableSchema:
    """The columns of a stage with their descriptions."""
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                field.name,
                field.dataType.simpleString(),
                description=(field.metadata or {}).get("comment"),
                constraints=dg.TableColumnConstraints(nullable=field.nullable),
            )
            for field in schema
        ]
    )


def preview(dataset: StageDataset, schema: T.StructType, *order: str) -> dg.TableMetadataValue:
    """The largest rows by the given columns, times readable; read in bounded memory.

    A column that says nothing in any of them is left out.
    """
    rows = first_rows(dataset, PREVIEW_ROWS, *order)
    told = [field for field in schema if any(row[field.name] is not None for row in rows)]
    columns = [dg.TableColumn(field.name.removesuffix("_ms"), _shown_type(field)) for field in told]
    records = [
        dg.TableRecord({
            field.name.removesuffix("_ms"): _cell(field.name, row[field.name]) for field in told
        })
        for row in rows
    ]
    return dg.MetadataValue.table(records, schema=dg.TableSchema(columns))


def first_rows(dataset: StageDataset, count: int, *order: str) -> list[dict[str, Any]]:
    """The first rows of a dataset in descending order of columns; one batch is held at a time."""
    keys = [(name, "descending") for name in order]
    first: pa.Table | None = None
    for batch in ds.dataset(dataset.rows_location.path, format="parquet").to_batches():
        both = pa.Table.from_batches([batch])
        both = both if first is None else pa.concat_tables([first, both])
        first = both.take(pc.select_k_unstable(both, min(count, both.num_rows), keys))
    return [] if first is None else first.to_pylist()


def _shown_type(field: T.StructField) -> str:
    if field.name.endswith("_ms"):
        return "string"
    return _KINDS.get(field.dataType.simpleString(), "string")


def _cell(name: str, value: Any) -> Any:
    if name.endswith("_ms"):
        return human_time(value) if value else None
    return value
