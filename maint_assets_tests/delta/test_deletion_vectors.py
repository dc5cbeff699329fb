"""Deletion vectors: the file of each storage type."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maint_assets.delta.deletion_vectors import file_path, z85_decoded
from maint_assets.delta.paths import TableRoot
from maint_assets.errors import CorruptLogError

ROOT = TableRoot.of("/t")
ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
NAME = "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"


@pytest.mark.parametrize(
    ("storage_type", "text", "path"),
    [
        ("u", "ab^-aqEH.-t@S}K{vb[*k^", f"ab/{NAME}"),
        ("u", "^-aqEH.-t@S}K{vb[*k^", NAME),
        ("u", "%41^-aqEH.-t@S}K{vb[*k^", f"%41/{NAME}"),
        ("p", "file:///t/a%20b.bin", "a b.bin"),
        ("p", "s3://mybucket/x.bin", "s3://mybucket/x.bin"),
        ("r", "a%20b.bin", "a%20b.bin"),
        ("r", "../b.bin", "file:///b.bin"),
        ("i", "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", None),
    ],
)
def test_file_path_of_each_storage_type(storage_type: str, text: str, path: str | None) -> None:
    assert file_path(storage_type, text, ROOT) == path


@pytest.mark.parametrize(
    ("storage_type", "text"), [("x", "a"), ("u", "short"), ("u", "#" * 20), ("u", "é" * 20)]
)
def test_file_path_of_an_unknown_vector_is_an_error(storage_type: str, text: str) -> None:
    with pytest.raises(CorruptLogError, match=r"^file:///t: deletion vector"):
        file_path(storage_type, text, ROOT)


@given(st.uuids(), st.sampled_from(["", "ab", "a/b"]))
def test_file_path_holds_the_uuid_that_was_encoded(uuid: UUID, prefix: str) -> None:
    expected = f"{prefix}/" * bool(prefix) + f"deletion_vector_{uuid}.bin"

    assert file_path("u", prefix + z85(uuid.bytes), ROOT) == expected


@given(st.binary().map(lambda content: content[: len(content) // 4 * 4]))
def test_z85_decoded_of_encoded_bytes_is_the_bytes(content: bytes) -> None:
    assert z85_decoded(z85(content)) == content


def test_z85_decoded_knows_the_sample_of_its_specification() -> None:
    assert z85_decoded("HelloWorld") == bytes.fromhex("864FD26FB559F75B")


def z85(content: bytes) -> str:
    groups = (int.from_bytes(content[at : at + 4], "big") for at in range(0, len(content), 4))
    return "".join(ALPHABET[g // 85**power % 85] for g in groups for power in range(4, -1, -1))
