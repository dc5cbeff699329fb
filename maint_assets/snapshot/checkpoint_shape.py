"""The schema of a checkpoint: JSON and parsed statistics, typed partition values.

See PROTOCOL, "Checkpoint Schema". It lies here, not in ``commit``: the plan of a log
cleanup checks whether its anchor can be written, and plans may not import ``commit``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from maint_assets.delta.features import feature_names
from maint_assets.delta.schema import Primitive, TableSchema
from maint_assets.snapshot.whole.schemas import ADD_ARROW, REMOVE_ARROW, STRINGS
from maint_assets.snapshot.whole.typed_values import (
    partition_type,
    stats_type,
    typed_partitions,
    typed_stats,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from typing_extensions import Self

    from maint_assets.delta.schema import Type
    from maint_assets.snapshot.head import TableHead

_TEXTS = pa.list_(pa.string())
_NOT_KEPT = {"tags", "stats"}
"""Fields that delta-spark omits from tombstones in checkpoints."""

_UNTYPED = {"variant", "geometry", "geography"}
_COLLATED = {"collations", "collations-preview"}

OVERVIEW_ARROW = pa.schema([
    ("txn", pa.struct([
        ("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64()),
    ])),
    ("metaData", pa.struct([
        ("id", pa.string()),
        ("name", pa.string()),
        ("description", pa.string()),
        ("format", pa.struct([("provider", pa.string()), ("options", STRINGS)])),
        ("schemaString", pa.string()),
        ("partitionColumns", _TEXTS),
        ("configuration", STRINGS),
        ("createdTime", pa.int64()),
    ])),
    ("protocol", pa.struct([
        ("minReaderVersion", pa.int32()),
        ("minWriterVersion", pa.int32()),
        ("readerFeatures", _TEXTS),
        ("writerFeatures", _TEXTS),
    ])),
    ("domainMetadata", pa.struct([
        ("domain", pa.string()), ("configuration", pa.string()), ("removed", pa.bool_()),
    ])),
])  # fmt: skip
"""The non-file actions of a checkpoint."""

_REMOVE = pa.struct([field for field in REMOVE_ARROW if field.name not in _NOT_KEPT])


@dataclass(frozen=True, slots=True)
class CheckpointShape:
    """How file actions are written to a checkpoint.

    ``texts``: statistics as JSON (``stats``); ``stats`` and ``partitions``: the types of
    ``stats_parsed`` and ``partitionValues_parsed``, None to leave them out.
    """

    texts: bool
    stats: pa.StructType | None
    partitions: pa.StructType | None

    @classmethod
    def of(cls, head: TableHead) -> Self:
        """The shape by the table's ``delta.checkpoint.*`` properties.

        JSON statistics are kept anyway if the parsed form cannot represent them fully.
        """
        properties = head.properties
        mapped = properties.column_mapping_mode != "none"
        schema = TableSchema.of(head.metadata, mapped=mapped, table=head.table)
        features = feature_names(head.protocol)
        texts = properties.checkpoint_stats_as_json
        if not properties.checkpoint_stats_as_struct:
            return cls(texts, None, None)
        is_lossless = _COLLATED.isdisjoint(features) and all(
            _is_typed(kind) for _, kind in schema.data.leaves()
        )
        stats = stats_type(schema, properties, tight_bounds="deletionVectors" in features)
        return cls(texts or not is_lossless, stats, partition_type(schema.partitions))

    @property
    def schema(self) -> pa.Schema:
        """The schema of file actions."""
        return pa.schema([("add", self._add), ("remove", _REMOVE)])

    @property
    def classic_schema(self) -> pa.Schema:
        """The schema of a classic checkpoint: one file with all actions."""
        txn, *others = OVERVIEW_ARROW
        return pa.schema([txn, *self.schema, *others])

    def rows(self, actions: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Convert file actions from FULL_ARROW to this schema."""
        for batch in actions:
            add, remove = self._adds(batch["add"]), _projected(batch["remove"], _REMOVE)
            yield pa.RecordBatch.from_arrays([add, remove], schema=self.schema)

    @property
    def _add(self) -> pa.StructType:
        fields = [field for field in ADD_ARROW if field.name != "stats"]
        fields += [ADD_ARROW.field("stats")] if self.texts else []
        parsed = {"partitionValues_parsed": self.partitions, "stats_parsed": self.stats}
        fields += [pa.field(name, kind) for name, kind in parsed.items() if kind is not None]
        return pa.struct(fields)

    def _adds(self, adds: pa.Array) -> pa.Array:
        made: dict[str, pa.Array] = {}
        if self.stats is not None:
            made["stats_parsed"] = typed_stats(pc.struct_field(adds, "stats"), self.stats)
        if self.partitions is not None:
            values = pc.struct_field(adds, "partitionValues")
            made["partitionValues_parsed"] = typed_partitions(values, self.partitions)
        return _projected(adds, self._add, made)


def _projected(
    structs: pa.Array, kind: pa.StructType, made: dict[str, pa.Array] | None = None
) -> pa.Array:
    """Project structs to the fields of ``kind``, taken from ``made`` or else from the structs."""
    known = made or {}
    children = [
        known[field.name] if field.name in known else pc.struct_field(structs, field.name)
        for field in kind
    ]
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=structs.is_null())


def _is_typed(kind: Type) -> bool:
    if isinstance(kind, Primitive):
        return kind.name.partition("(")[0] not in _UNTYPED
    return True
