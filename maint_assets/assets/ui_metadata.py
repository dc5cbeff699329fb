"""Metadata of a materialisation in the UI: summary, numbers for plots, schema, preview."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import dagster as dg
import msgspec

from maint_assets.assets.numbers import human_time
from maint_assets.delta.timestamps import duration_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import types as T

    from maint_assets.assets.stage_store import StageDataset, StageResult

_KINDS = {"bigint": "int", "string": "string", "boolean": "bool"}


def metadata(
    result: StageResult,
    *,
    line: str,
    dataset: StageDataset,
    preview: dg.TableMetadataValue | None,
    schema: T.StructType,
    pictures: Mapping[str, str | None],
) -> dict[str, Any]:
    """The metadata of a materialisation: numbers of the summary plot over time in the UI."""
    seen_first = {
        "summary": dg.MetadataValue.md(line),
        **{name: text and dg.MetadataValue.md(text) for name, text in pictures.items()},
        "preview": preview,
    }
    shown: dict[str, Any] = {name: each for name, each in seen_first.items() if each}
    shown |= {
        "dataset": dg.MetadataValue.path(dataset.location.path),
        "dagster/row_count": result.written.rows,
        "dagster/column_schema": column_schema(schema),
    }
    plan = getattr(result.summary, "plan", None)
    if plan is not None:
        shown["digest"] = dg.MetadataValue.text(plan.digest)
        if hasattr(plan, "share"):
            shown["share"] = plan.share
    for name, value in _flat(dataclasses.asdict(result.summary)).items():
        if name.endswith(("_ms", "TimeMs")) and isinstance(value, int):
            named = name.removesuffix("_ms").removesuffix("Ms")
            shown[named] = dg.MetadataValue.text(_moment(name, value))
        elif isinstance(value, (bool, int, float)):
            shown[name] = value
        elif isinstance(value, str) and name not in shown:
            shown[name] = dg.MetadataValue.text(value)
    return shown


def _moment(name: str, value: int) -> str:
    """A duration or time as text: as numbers in ms they would clutter the plots."""
    if name.endswith("retention_ms"):
        return duration_text(value)
    return human_time(value)


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested numbers under joined names, so that each gets its own plot."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, (dict, msgspec.Struct)):
            nested = "" if name == "plan" else f"{prefix}{name}/"
            flat |= _flat(msgspec.to_builtins(value), nested)
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


def preview(rows: list[dict[str, Any]], schema: T.StructType) -> dg.TableMetadataValue:
    """Rows for people: times as text, empty columns left out."""
    fields = [field for field in schema if any(row[field.name] is not None for row in rows)]
    columns = [
        dg.TableColumn(field.name.removesuffix("_ms"), _shown_type(field)) for field in fields
    ]
    records = [
        dg.TableRecord({
            field.name.removesuffix("_ms"): _cell(field.name, row[field.name]) for field in fields
        })
        for row in rows
    ]
    return dg.MetadataValue.table(records, schema=dg.TableSchema(columns))


def _shown_type(field: T.StructField) -> str:
    if field.name.endswith("_ms"):
        return "string"
    return _KINDS.get(field.dataType.simpleString(), "string")


def _cell(name: str, value: Any) -> Any:
    if name.endswith("_ms"):
        return human_time(value) if value else None
    return value
