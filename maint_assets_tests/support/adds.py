"""Live files as rows, for plans without a table."""

from typing import Any

from maint_assets.delta.paths import TableRoot

ROOT = TableRoot.of("/t")


def add(path: str, size: int = 10, *, rows: int | None = 10, **fields: Any) -> dict[str, Any]:
    stats = None if rows is None else f'{{"numRecords":{rows}}}'
    deleted = fields.pop("deleted", None)
    vector = None
    if deleted is not None:
        vector = {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 1}
        vector["cardinality"] = deleted
    return {
        "path": path,
        "size": size,
        "partitionValues": {},
        "modificationTime": 0,
        "stats": stats,
        "deletionVector": vector,
    } | fields
