"""What actions that are not of files say, however they are spelled."""

from __future__ import annotations

from typing import Any

import msgspec

from maint_assets.delta.actions import DomainMetadata, Metadata, Protocol, Txn

_EXPIRES = "delta.setTransactionRetentionDuration"


def lets_expire(metadata: object) -> bool:
    """Whether a table's metadata, as ``other_action`` tells it, lets applications expire."""
    return isinstance(metadata, tuple) and _EXPIRES in metadata[-1]


def other_action(value: Any) -> tuple[tuple[str, str], object]:
    """Kind and name of an action that is not of a file, and what it says; None if it removes it.

    Texts that writers spell in several ways are equal here.
    """
    match value:
        case Protocol():
            features = value.reader_features or [], value.writer_features or []
            versions = value.min_reader_version, value.min_writer_version
            return ("protocol", ""), (*versions, *map(sorted, features))
        case Metadata():
            columns = tuple(value.partition_columns)
            told = {name: text for name, text in value.configuration.items() if text is not None}
            return ("metaData", ""), (value.id, _schema(value.schema_string), columns, told)
        case Txn():
            return ("txn", value.app_id), value.version
        case DomainMetadata():
            told = None if value.removed else value.configuration or ""
            return ("domainMetadata", value.domain), told
        case _:
            raise TypeError(f"{type(value).__name__} is no action that is kept")


def _schema(text: str | None) -> object:
    """A schema whatever its JSON is spaced like; the text itself where it is none."""
    try:
        return msgspec.json.decode(text or "null")
    except (msgspec.DecodeError, RecursionError):
        return text
