"""The hint ``_last_checkpoint`` as Delta writes it, with what spares readers their next reads."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyspark.sql.pandas.types import from_arrow_schema

from maint_assets.commit.whole_files import replace
from maint_assets.delta.hint import json_checksum, parse_hint
from maint_assets.snapshot.log import HINT
from maint_assets.storage import read

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from maint_assets.snapshot.head import TableHead

MOST_SCHEMA_CHARS = 20_000
MOST_ACTIONS = 30
"""Delta's own limits of what it repeats in the hint: a schema as JSON, actions of either kind."""

Members = dict[str, Any]


def moved_hint(head: TableHead, members: Mapping[str, Any]) -> bool:
    """Whether the hint points to the checkpoint of the head now; not where it has a newer one."""
    try:
        known = parse_hint(read.content(head.location, HINT))
    except FileNotFoundError:
        known = None
    if known is not None and known.version > head.version:
        return False
    whole = {**members, "checksum": json_checksum(json.dumps(members))}
    replace(head.location, HINT, json.dumps(whole, separators=(",", ":")).encode())
    return True


def classic_members(schema: pa.Schema) -> Members:
    """What the hint says of a single file beside numbers: its columns."""
    text = schema_json(schema)
    return {} if text is None else {"checkpointSchema": json.loads(text)}


def v2_members(top: Members, *, others: Sequence[Members], sidecars: Sequence[Members]) -> Members:
    """What the hint says of a V2 checkpoint: its top file, and what that holds where it is little.

    ``top`` and ``sidecars`` are the members of sidecar actions, ``others`` all other actions.
    """
    held = {"nonFileActions": others, "sidecarFiles": sidecars}
    few = {name: rows for name, rows in held.items() if len(rows) <= MOST_ACTIONS}
    return {"v2Checkpoint": {**top, **few}}


def schema_json(schema: pa.Schema) -> str | None:
    """Columns as Spark's JSON; None where that is longer than Delta repeats it."""
    text = from_arrow_schema(schema, prefer_timestamp_ntz=True).json()
    return text if len(text) <= MOST_SCHEMA_CHARS else None
