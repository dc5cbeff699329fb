"""Real tables on local disk, written by hand, action by action, for stories about the log.

    TableBuilder(tmp_path).at(days_ago=10).create().add("a").at(days_ago=9).remove("a")

The builder's clock is ``clock_ms`` and advances by a second per commit; files, commits and
tombstones get its time. Nothing is random: names and ids come from counters.
"""

import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from typing_extensions import Self

from maint_assets_tests.support import checkpoints, vectors

Action = dict[str, Any]
Row = Mapping[str, Any]

DAY_MS = 86_400_000
HOUR_MS = 3_600_000
TABLE_ID = "00000000-0000-4000-8000-000000000001"
FIELDS = {"id": "long", "value": "string"}
READER_FEATURES = frozenset({
    "columnMapping",
    "deletionVectors",
    "timestampNtz",
    "typeWidening",
    "v2Checkpoint",
    "vacuumProtocolCheck",
    "variantType",
})

_ARROW = {
    "long": pa.int64(),
    "integer": pa.int32(),
    "string": pa.string(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "binary": pa.binary(),
}
# In the names of partition directories Spark escapes nearly nothing but these.
_HIVE_ESCAPED = {*"\"#%'*/:=?\\{[]^\x7f", *map(chr, range(1, 32))}
# Hadoop's Path.toUri does not encode these nor any non-ASCII characters.
_URI_SAFE = "/!$&'()*+,;=:@~-._"


class TableBuilder:
    """A table being built at ``path``; methods write at once and return the builder."""

    def __init__(self, path: Path, *, now_ms: int | None = None) -> None:
        self.path = path
        self.log = path / "_delta_log"
        self.now_ms = int(time.time()) * 1_000 if now_ms is None else now_ms
        self.clock_ms = self.now_ms - HOUR_MS
        self.version = -1
        self.protocol: Action = {}
        self.metadata: Action = {}
        self.live: dict[str, Action] = {}
        self.tombstones: dict[tuple[str, str | None], Action] = {}
        self.domains: dict[str, Action] = {}
        self.transactions: dict[str, Action] = {}
        self.info: Action = {}
        """Further fields of the commitInfo of each commit."""
        self._next_id = 0
        self._uuids = 0

    def at(self, *, days_ago: float = 0, hours_ago: float = 0) -> Self:
        """Set the clock to that long before ``now_ms``."""
        self.clock_ms = self.now_ms - int(days_ago * DAY_MS + hours_ago * HOUR_MS)
        return self

    def create(
        self,
        *,
        partition_columns: Sequence[str] = (),
        configuration: Mapping[str, str] | None = None,
        features: Sequence[str] = (),
        fields: Mapping[str, str] | None = None,
    ) -> Self:
        """Commit protocol and metadata; partition columns not among the fields are strings."""
        schema = dict(fields or FIELDS)
        schema |= {name: "string" for name in partition_columns if name not in schema}
        metadata = {
            "id": TABLE_ID,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": _schema_fields(schema)}),
            "partitionColumns": list(partition_columns),
            "configuration": dict(configuration or {}),
            "createdTime": self.clock_ms,
        }
        return self.commit(
            [{"protocol": _protocol(features)}, {"metaData": metadata}], operation="CREATE TABLE"
        )

    def add(
        self,
        *paths: str,
        partition: Mapping[str, str | None] | None = None,
        rows: int | Sequence[Row] = 2,
        **fields: Any,
    ) -> Self:
        """One commit that adds a new data file at each path.

        A bare file name is put into its partition's Hive directory. ``rows`` is the number of rows
        to generate, or the rows. ``fields`` are put into the action as they are; ``path`` among
        them replaces the percent-encoded path in the log.
        """
        added = [self.added(path, partition=partition, rows=rows, **fields) for path in paths]
        return self.commit(added, operation="WRITE")

    def added(
        self,
        path: str,
        /,
        *,
        partition: Mapping[str, str | None] | None = None,
        rows: int | Sequence[Row] = 2,
        **fields: Any,
    ) -> Action:
        """Write a data file and return its add action, not committed."""
        values = dict(partition or {})
        written = rows if isinstance(rows, Sequence) else self._rows(rows)
        file = self.path / (path if "/" in path else hive_path(values) + path)
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(list(written), self._arrow_schema()), file)
        self._touch(file)
        action = {
            "path": encoded(str(file.relative_to(self.path))),
            "partitionValues": values,
            "size": file.stat().st_size,
            "modificationTime": self.clock_ms,
            "dataChange": True,
            "stats": json.dumps({"numRecords": len(written)}),
        }
        return {"add": action | fields}

    def remove(
        self,
        *paths: str,
        deletion_timestamp_ms: int | None = None,
        extended: bool = True,
        **fields: Any,
    ) -> Self:
        """One commit that removes live files, named as for ``add``; they stay on disk."""
        at_ms = self.clock_ms if deletion_timestamp_ms is None else deletion_timestamp_ms
        removed = [self.removed(path, at_ms, extended=extended, **fields) for path in paths]
        return self.commit(removed, operation="DELETE")

    def removed(
        self, path: str, deletion_timestamp_ms: int, *, extended: bool = True, **fields: Any
    ) -> Action:
        """The remove action of a live file, not committed."""
        add = self._live(path)
        action = {
            "path": add["path"],
            "deletionTimestamp": deletion_timestamp_ms,
            "dataChange": True,
            "extendedFileMetadata": extended,
        }
        kept = ("partitionValues", "size", "tags") if extended else ()
        kept = (*kept, "deletionVector")
        return {"remove": action | {key: add[key] for key in kept if key in add} | fields}

    def delete_rows(self, path: str, *rows: int, storage: str = "u", prefix: str = "") -> Self:
        """One commit that marks rows of a live file as deleted.

        ``storage`` is the deletion vector's storage type in the protocol: ``u`` a file named by a
        UUID (below the directory ``prefix``), ``p`` an absolute path, ``i`` inline.
        """
        add = self._live(path)
        name = self.next_uuid()
        vector, file = vectors.write(self.path, rows, storage=storage, uuid=name, prefix=prefix)
        if file is not None:
            self._touch(file)
        removed = self.removed(path, self.clock_ms)
        return self.commit([removed, {"add": add | {"deletionVector": vector}}], operation="DELETE")

    def commit(
        self, actions: Iterable[Action], *, version: int | None = None, operation: str = "MANUAL"
    ) -> Self:
        """One commit of a commitInfo and exactly these actions."""
        self.version = self.version + 1 if version is None else version
        info = {"timestamp": self.clock_ms, "operation": operation, "operationParameters": {}}
        info |= self.info
        lines = [{"commitInfo": info}, *actions]
        self._apply(lines)
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        self.write_log(f"{self.version:020}.json", text)
        self.clock_ms += 1_000
        return self

    def write_log(self, name: str, text: str) -> Self:
        """Write any file of the log with this text and the clock's time."""
        self.log.mkdir(parents=True, exist_ok=True)
        (self.log / name).write_text(text, encoding="utf-8")
        self._touch(self.log / name)
        return self

    def checkpoint(self, kind: str = "classic", *, parts: int = 1, hint: bool = True) -> Self:
        """A checkpoint of the state: ``classic`` (in parts), ``v2-json`` or ``v2-parquet``.

        The V2 kinds keep file actions in ``parts`` sidecars and need the feature v2Checkpoint;
        ``v2-json`` with 0 parts contains them itself.
        """
        state = self.state()
        uuids = [self.next_uuid() for _ in range(parts + 1)]
        for file in checkpoints.write(self.log, state, kind, parts=parts, uuids=uuids):
            self._touch(file)
        if hint:
            self.hint(parts=parts if kind == "classic" and parts > 1 else None)
        return self

    def state(self) -> checkpoints.State:
        """The content of a checkpoint of the newest version."""
        return checkpoints.State(self.version, self._overview(), self._files())

    def hint(self, version: int | None = None, *, parts: int | None = None) -> Self:
        """The file ``_last_checkpoint``, naming the newest or another version."""
        size = len(self._overview()) + len(self._files())
        found = {"version": self.version if version is None else version, "size": size}
        return self.write_log("_last_checkpoint", json.dumps(found | _present(parts=parts)))

    def checksum(self) -> Self:
        """The checksum file of the newest version."""
        return self.write_log(f"{self.version:020}.crc", json.dumps(self.totals()))

    def totals(self) -> Action:
        """The content of the checksum of the newest version."""
        return {
            "tableSizeBytes": sum(add["size"] for add in self.live.values()),
            "numFiles": len(self.live),
            "numMetadata": 1,
            "numProtocol": 1,
            "setTransactions": list(self.transactions.values()),
            "domainMetadata": list(self.domains.values()),
            "metadata": self.metadata,
            "protocol": self.protocol,
        }

    def stray(self, path: str, *, age_days: float = 0, content: bytes = b"stray") -> Self:
        """A file that no commit names."""
        file = self.path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        return self.age(path, age_days)

    def directory(self, path: str, *, age_days: float = 0) -> Self:
        """An empty directory."""
        (self.path / path).mkdir(parents=True, exist_ok=True)
        return self.age(path, age_days)

    def age(self, path: str, days: float) -> Self:
        """Set the mtime of a path, or of all that a glob finds, to that long before ``now_ms``."""
        literal = self.path / path
        for found in [literal] if literal.exists() else sorted(self.path.glob(path)):
            self._touch(found, self.now_ms - int(days * DAY_MS))
        return self

    def mtime_ms(self, path: str) -> int:
        """The modification time of a file below the root."""
        return (self.path / path).stat().st_mtime_ns // 1_000_000

    def next_uuid(self) -> str:
        """A UUID that is unique in this table and the same in each run."""
        self._uuids += 1
        return f"00000000-0000-4000-8000-{self._uuids:012x}"

    def _live(self, path: str) -> Action:
        for name in (path, encoded(path)):
            found = [key for key in self.live if key == name or key.endswith("/" + name)]
            if found:
                return self.live[found[0]]
        raise KeyError(path)

    def _rows(self, count: int) -> list[Row]:
        first, self._next_id = self._next_id, self._next_id + count
        return [{"id": row, "value": f"v{row}"} for row in range(first, first + count)]

    def _arrow_schema(self) -> pa.Schema:
        fields = json.loads(self.metadata["schemaString"])["fields"]
        inside = [f for f in fields if f["name"] not in self.metadata["partitionColumns"]]
        return pa.schema([(field["name"], _ARROW[field["type"]]) for field in inside])

    def _touch(self, path: Path, at_ms: int | None = None) -> None:
        ns = (self.clock_ms if at_ms is None else at_ms) * 1_000_000
        os.utime(path, ns=(ns, ns))

    def _apply(self, actions: Iterable[Action]) -> None:
        for action in actions:
            self.protocol = action.get("protocol", self.protocol)
            self.metadata = action.get("metaData", self.metadata)
            if remove := action.get("remove"):
                self.live.pop(remove["path"], None)
                self.tombstones[_key(remove)] = remove
            if add := action.get("add"):
                self.live[add["path"]] = add
                self.tombstones.pop(_key(add), None)
            if domain := action.get("domainMetadata"):
                self.domains[domain["domain"]] = domain
            if txn := action.get("txn"):
                self.transactions[txn["appId"]] = txn

    def _overview(self) -> list[Action]:
        return [
            {"protocol": self.protocol},
            {"metaData": self.metadata},
            *({"txn": txn} for txn in self.transactions.values()),
            *({"domainMetadata": domain} for domain in self.domains.values()),
        ]

    def _files(self) -> list[Action]:
        removes = [
            {"remove": remove | {"dataChange": False}} for remove in self.tombstones.values()
        ]
        return [*({"add": add | {"dataChange": False}} for add in self.live.values()), *removes]


def tree(path: Path) -> dict[str, tuple[bytes, int]]:
    """Bytes and mtime of every file below a root, to assert that nothing was changed."""
    return {
        str(file.relative_to(path)): (file.read_bytes(), file.stat().st_mtime_ns)
        for file in path.rglob("*")
        if file.is_file()
    }


def encoded(path: str) -> str:
    """The path as Delta writes it into the log: ASCII percent-encoded, all else as it is."""
    return "".join(quote(char, safe=_URI_SAFE) if char.isascii() else char for char in path)


def hive_path(partition: Mapping[str, str | None]) -> str:
    """The directory of a partition as Spark names it, with a trailing slash."""
    return "".join(f"{_hive_escaped(k)}={_hive_escaped(v)}/" for k, v in partition.items())


def _hive_escaped(text: str | None) -> str:
    if not text:
        return "__HIVE_DEFAULT_PARTITION__"
    return "".join(f"%{ord(char):02X}" if char in _HIVE_ESCAPED else char for char in text)


def _schema_fields(schema: Mapping[str, str]) -> list[Action]:
    return [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in schema.items()
    ]


def _protocol(features: Sequence[str]) -> Action:
    if not features:
        return {"minReaderVersion": 1, "minWriterVersion": 2}
    readers = [name for name in features if name in READER_FEATURES]
    if not readers:
        return {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": list(features)}
    return {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": readers,
        "writerFeatures": list(features),
    }


def _key(action: Action) -> tuple[str, str | None]:
    vector = action.get("deletionVector")
    return action["path"], vector and vectors.unique_id(vector)


def _present(**values: object) -> dict[str, object]:
    return {key: value for key, value in values.items() if value is not None}
