"""Write the hint ``_last_checkpoint`` (PROTOCOL, "Last Checkpoint File").

Like delta-spark, it repeats the checkpoint's schema, and the top file and sidecars of a V2
checkpoint, so that readers can skip listing the log and opening footers.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyspark.sql.pandas.types import from_arrow_schema

from maint_assets.commit.whole_files import replace_file
from maint_assets.delta.hint import json_checksum, parse_hint
from maint_assets.snapshot.log import HINT
from maint_assets.storage import read

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from maint_assets.snapshot.head import TableHead

MOST_SCHEMA_CHARS = 20_000
MOST_ACTIONS = 30
"""delta-spark's limits for the hint: characters of the schema's JSON, and actions or sidecars.

What is longer is left out of the hint.
"""

Members = dict[str, Any]


def write_hint(head: TableHead, members: Mapping[str, Any]) -> bool:
    """Point the hint to the checkpoint of the head's version; False if it names a newer one."""
    try:
        known = parse_hint(read.content(head.location, HINT))
    except FileNotFoundError:
        known = None
    if known is not None and known.version > head.version:
        return False
    whole = {**members, "checksum": json_checksum(json.dumps(members))}
    replace_file(head.location, HINT, json.dumps(whole, separators=(",", ":")).encode())
    return True


def classic_members(schema: pa.Schema) -> Members:
    """Members of the hint for a single-file checkpoint: its schema, unless that is too long."""
    text = schema_json(schema)
    return {} if text is None else {"checkpointSchema": json.loads(text)}


def v2_members(top: Members, *, others: Sequence[Members], sidecars: Sequence[Members]) -> Members:
    """Members of the hint for a V2 checkpoint: its top file, its sidecars and other actions.

    ``top`` and ``sidecars`` have the members of sidecar actions; ``others`` are all non-file
    actions. A list longer than MOST_ACTIONS is left out.
    """
    held = {"nonFileActions": others, "sidecarFiles": sidecars}
    few = {name: rows for name, rows in held.items() if len(rows) <= MOST_ACTIONS}
    return {"v2Checkpoint": {**top, **few}}


def schema_json(schema: pa.Schema) -> str | None:
    """The schema as Spark's JSON; None if it has more than MOST_SCHEMA_CHARS characters."""
    text = from_arrow_schema(schema, prefer_timestamp_ntz=True).json()
    return text if len(text) <= MOST_SCHEMA_CHARS else None
