"""Content of actions that are not of files, to compare: protocol, metadata, txn, domains."""

from __future__ import annotations

from typing import Any

import msgspec

from maint_assets.delta.actions import DomainMetadata, Format, Metadata, Protocol, Txn
from maint_assets.delta.properties import interval_ms

_EXPIRES = "delta.setTransactionRetentionDuration"


def transaction_retention_ms(metadata: Metadata) -> int | None:
    """How long transaction identifiers (``txn``) are kept, in ms; None if they never expire."""
    text = metadata.configuration.get(_EXPIRES)
    return None if text is None else interval_ms(text)


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
            format_ = value.format or Format()
            described = value.name, value.description, value.created_time
            stored = format_.provider, format_.options or {}
            content = value.id, _schema(value.schema_string), columns, described, stored, settings
            return ("metaData", ""), content
        case Txn():
            return ("txn", value.app_id), (value.version, value.last_updated)
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
