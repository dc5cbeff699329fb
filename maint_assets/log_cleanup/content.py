"""Content of actions that are not of files, to compare: protocol, metadata, txn, domains."""

from __future__ import annotations

from typing import Any

import msgspec

from maint_assets.delta.actions import DomainMetadata, Metadata, Protocol, Txn

_EXPIRES = "delta.setTransactionRetentionDuration"


def txn_can_expire(metadata: object) -> bool:
    """Whether metadata, as of ``other_action``, lets transaction identifiers (``txn``) expire."""
    return isinstance(metadata, tuple) and _EXPIRES in metadata[-1]


def other_action(value: Any) -> tuple[tuple[str, str], object]:
    """Key (kind, name) and content of an action that is not of a file.

    Content that writers spell in different ways is equal here. It is None for a removed domain.
    """
    match value:
        case Protocol():
            features = value.reader_features or [], value.writer_features or []
            versions = value.min_reader_version, value.min_writer_version
            return ("protocol", ""), (*versions, *map(sorted, features))
        case Metadata():
            columns = tuple(value.partition_columns)
            settings = {
                name: text for name, text in value.configuration.items() if text is not None
            }
            return ("metaData", ""), (value.id, _schema(value.schema_string), columns, settings)
        case Txn():
            return ("txn", value.app_id), value.version
        case DomainMetadata():
            domain = None if value.removed else value.configuration or ""
            return ("domainMetadata", value.domain), domain
        case _:
            raise TypeError(f"{type(value).__name__} is not an action of a checkpoint")


def _schema(text: str | None) -> object:
    """The decoded schema, so that white space does not count; the text if it is not JSON."""
    try:
        return msgspec.json.decode(text or "null")
    except (msgspec.DecodeError, RecursionError):
        return text
