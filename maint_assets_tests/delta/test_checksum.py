"""The version checksum: its content, or None if it cannot be used."""

import pytest

from maint_assets.delta.checksum import VersionChecksum


def test_checksum_is_read_from_the_first_line() -> None:
    found = VersionChecksum.parse(
        b'{"txnId":"x","tableSizeBytes":10,"numFiles":2,"numMetadata":1,"numProtocol":1,'
        b'"inCommitTimestampOpt":7,"numDeletedRecordsOpt":0,'
        b'"metadata":{"id":"m","partitionColumns":["p"]},'
        b'"protocol":{"minReaderVersion":1,"minWriterVersion":2},"allFiles":[]}\n\n'
    )

    assert found is not None
    assert (found.table_size_bytes, found.num_files, found.num_deleted_records_opt) == (10, 2, 0)
    assert (found.in_commit_timestamp_opt, found.num_deletion_vectors_opt) == (7, None)
    assert found.metadata is not None
    assert found.metadata.partition_columns == ["p"]


def test_checksum_needs_no_optional_field() -> None:
    assert VersionChecksum.parse(b'{"tableSizeBytes":1,"numFiles":1}') == VersionChecksum(1, 1)


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"{", b"[]", b"{}", b'{"tableSizeBytes":"1","numFiles":1}', b"\xff"]
)
def test_checksum_that_is_invalid_is_none(content: bytes) -> None:
    assert VersionChecksum.parse(content) is None
