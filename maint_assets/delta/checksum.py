"""The version checksum ``V.crc`` (PROTOCOL, "Version Checksum File"), compared after replay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from maint_assets.delta.actions import Long, Metadata, Protocol

if TYPE_CHECKING:
    from typing_extensions import Self


class VersionChecksum(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The state of one version as recorded. Sizes in bytes; None for what is not recorded."""

    table_size_bytes: Long
    num_files: Long
    num_deletion_vectors_opt: Long | None = None
    num_deleted_records_opt: Long | None = None
    in_commit_timestamp_opt: Long | None = None
    protocol: Protocol | None = None
    metadata: Metadata | None = None

    @classmethod
    def parse(cls, content: bytes) -> Self | None:
        """Parse the first line of the file; None if empty or invalid.

        The file is optional, so a broken one counts as absent.
        """
        try:
            return msgspec.json.decode(content.strip().partition(b"\n")[0], type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
