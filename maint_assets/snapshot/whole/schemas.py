"""Schemas of complete file actions: all fields of the protocol and of delta-spark."""

from __future__ import annotations

import pyarrow as pa

STRINGS = pa.map_(pa.string(), pa.string())

VECTOR_ARROW = pa.struct([
    ("storageType", pa.string()),
    ("pathOrInlineDv", pa.string()),
    ("offset", pa.int32()),
    ("sizeInBytes", pa.int32()),
    ("cardinality", pa.int64()),
    ("maxRowIndex", pa.int64()),
])

ADD_ARROW = pa.struct([
    ("path", pa.string()),
    ("partitionValues", STRINGS),
    ("size", pa.int64()),
    ("modificationTime", pa.int64()),
    ("dataChange", pa.bool_()),
    ("stats", pa.string()),
    ("tags", STRINGS),
    ("deletionVector", VECTOR_ARROW),
    ("baseRowId", pa.int64()),
    ("defaultRowCommitVersion", pa.int64()),
    ("clusteringProvider", pa.string()),
])
"""An add action. ``dataChange`` is false, as in any reconciled state."""

REMOVE_ARROW = pa.struct([
    ("path", pa.string()),
    ("deletionTimestamp", pa.int64()),
    ("dataChange", pa.bool_()),
    ("extendedFileMetadata", pa.bool_()),
    ("partitionValues", STRINGS),
    ("size", pa.int64()),
    ("tags", STRINGS),
    ("deletionVector", VECTOR_ARROW),
    ("baseRowId", pa.int64()),
    ("defaultRowCommitVersion", pa.int64()),
    ("stats", pa.string()),
])
"""A remove action. ``dataChange`` is false, as in any reconciled state."""

FULL_ARROW = pa.schema([
    ("log_key", pa.string()),
    ("dv_id", pa.string()),
    ("ord", pa.int64()),
    ("add", ADD_ARROW),
    ("remove", REMOVE_ARROW),
])
"""A file action: replay key, order (version * 2, + 1 for adds), and the action."""

LIVE_ADDS_ARROW = pa.schema([
    ("log_key", pa.string()),
    ("dv_id", pa.string()),
    ("add", ADD_ARROW),
    ("disputed", pa.bool_()),
])
"""A live file: replay key and add action. ``disputed``: the newest commit that adds the file also
removes it, so that readers disagree on whether it is live."""
