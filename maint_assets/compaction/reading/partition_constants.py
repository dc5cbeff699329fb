"""Typed partition values (PROTOCOL, "Partition Value Serialization")."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from maint_assets.compaction.columns.physical import arrow_field
from maint_assets.compaction.reading.matching import MismatchError

if TYPE_CHECKING:
    from maint_assets.delta.schema import Field


def constant(field: Field, raw: str | None) -> pa.Scalar:
    """The partition value of a file in the column's type; the empty string is null for every type.

    Raises MismatchError for text that is no such value, such as a timestamp without a zone.
    """
    kind = arrow_field(field).type
    if not raw:
        return pa.scalar(None, kind)
    try:
        if pa.types.is_binary(kind):
            return pa.scalar(raw.encode(), kind)
        return pa.scalar(raw, pa.string()).cast(kind)
    except (pa.ArrowException, ValueError) as error:
        found = f"partition column {field.name} is {raw!r}, which is no {kind}"
        raise MismatchError(found) from error
