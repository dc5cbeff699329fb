"""The rows that a deletion vector marks, wherever it is stored; damaged ones are refused."""

import pickle
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap
from pyspark.sql import SparkSession

from maint_assets.compaction.reading.deleted_rows import deleted_rows
from maint_assets.delta.actions import DeletionVector
from maint_assets.errors import CorruptLogError, MaintError, StorageError
from maint_assets.storage.location import Location
from maint_assets_tests.oracles.delta_spark import table
from maint_assets_tests.support import vectors
from maint_assets_tests.support.data_files import by_delta_spark, opened

UUID = "d2c639aa-8816-431a-aaf6-d3fe2512ff61"
ROWS = [0, 3, 4, 7, 70_000, 5_000_000_000]
EXAMPLE = "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"


@dataclass
class Stored:
    root: Path
    descriptor: dict[str, Any]
    file: Path | None

    def rows(self) -> list[int]:
        vector = msgspec.convert(self.descriptor, DeletionVector)
        return deleted_rows(Location.of(str(self.root)), vector).tolist()


def stored(root: Path, storage: str = "u", *, prefix: str = "") -> Stored:
    found = vectors.write(root, ROWS, storage=storage, uuid=UUID, prefix=prefix)
    return Stored(root, *found)


def inline(root: Path, bitmap: bytes, cardinality: int) -> Stored:
    text = vectors.z85(bitmap + b"\0" * (-len(bitmap) % 4))
    descriptor = {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(bitmap)}
    return Stored(root, descriptor | {"cardinality": cardinality}, None)


@pytest.mark.parametrize("storage", ["i", "u", "p"])
def test_vector_of_each_place_gives_its_rows(tmp_path: Path, storage: str) -> None:
    assert stored(tmp_path, storage).rows() == ROWS


def test_vector_below_a_prefix_gives_its_rows(tmp_path: Path) -> None:
    assert stored(tmp_path, prefix="ab").rows() == ROWS


def test_vector_by_a_relative_path_gives_its_rows(tmp_path: Path) -> None:
    vector = stored(tmp_path)
    vector.descriptor |= {
        "storageType": "r", "pathOrInlineDv": f"deletion_vector_{UUID}.bin",
    }  # fmt: skip

    assert vector.rows() == ROWS


def test_vector_outside_the_table_gives_its_rows(tmp_path: Path) -> None:
    vector = stored(tmp_path / "original", "p")
    vector.root = tmp_path / "clone"

    assert vector.rows() == ROWS


def test_one_of_many_vectors_in_a_file_is_found_by_its_offset(tmp_path: Path) -> None:
    vector = stored(tmp_path)
    assert vector.file is not None
    first = vector.file.read_bytes()
    bitmap = vectors.bitmap_of([8, 9])
    checksum = struct.pack(">I", zlib.crc32(bitmap))
    vector.file.write_bytes(first + struct.pack(">I", len(bitmap)) + bitmap + checksum)
    vector.descriptor |= {"offset": len(first), "sizeInBytes": len(bitmap), "cardinality": 2}

    assert vector.rows() == [8, 9]


def test_example_of_the_protocol_gives_its_rows(tmp_path: Path) -> None:
    descriptor = {"storageType": "i", "pathOrInlineDv": EXAMPLE, "sizeInBytes": 40}

    assert Stored(tmp_path, descriptor | {"cardinality": 6}, None).rows() == [3, 4, 7, 11, 18, 29]


def test_native_format_gives_its_rows(tmp_path: Path) -> None:
    parts = [BitMap([1, 5]).serialize(), BitMap().serialize(), BitMap([2]).serialize()]
    framed = b"".join(struct.pack("<i", len(part)) + part for part in parts)

    bitmap = struct.pack("<ii", 1681511376, 3) + framed

    assert inline(tmp_path, bitmap, 3).rows() == [1, 5, 2**33 + 2]


@given(rows=st.sets(st.integers(0, 2**33)))
def test_all_rows_of_a_vector_are_found_in_order(rows: set[int]) -> None:
    assert inline(Path("/t"), vectors.bitmap_of(sorted(rows)), len(rows)).rows() == sorted(rows)


def test_vector_over_no_row_is_empty(tmp_path: Path) -> None:
    assert inline(tmp_path, vectors.bitmap_of([]), 0).rows() == []


def flipped(raw: bytes) -> bytes:
    return raw[:-9] + bytes([raw[-9] ^ 1]) + raw[-8:]


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (flipped, "checksum does not match"),
        (lambda raw: raw[:-1], "file ends before"),
        (lambda raw: b"\x02" + raw[1:], "format version 02"),
        (lambda raw: raw[:4] + bytes([raw[4] ^ 1]) + raw[5:], "has 73 bytes, not 72"),
        (lambda _: b"", "format version"),
    ],
)
def test_damaged_file_is_refused(
    tmp_path: Path, damage: Callable[[bytes], bytes], why: str
) -> None:
    vector = stored(tmp_path)
    assert vector.file is not None
    vector.file.write_bytes(damage(vector.file.read_bytes()))

    with pytest.raises(CorruptLogError, match=why) as refused:
        vector.rows()
    assert UUID in refused.value.found
    assert pickle.loads(pickle.dumps(refused.value)).args == refused.value.args


@pytest.mark.parametrize("storage", ["i", "u"])
@pytest.mark.parametrize(
    ("field", "why"),
    [
        ({"cardinality": 5}, "has 6 rows, not 5"),
        ({"sizeInBytes": 60}, "60"),
        ({"storageType": "x"}, "storage type 'x' is unknown"),
    ],
)
def test_wrong_descriptor_is_refused(
    tmp_path: Path, storage: str, field: dict[str, Any], why: str
) -> None:
    vector = stored(tmp_path, storage)
    vector.descriptor |= field

    with pytest.raises(CorruptLogError, match=why):
        vector.rows()


@pytest.mark.parametrize(
    ("bitmap", "why"),
    [
        (struct.pack("<iq", 1, 0), "format number is 1"),
        (vectors.bitmap_of(ROWS)[:-6], "deserialize"),
        (b"\x01", "unpack"),
    ],
)
def test_broken_bitmap_is_refused(tmp_path: Path, bitmap: bytes, why: str) -> None:
    with pytest.raises(CorruptLogError, match=why):
        inline(tmp_path, bitmap, 6).rows()


def test_missing_file_is_an_error_of_the_storage(tmp_path: Path) -> None:
    vector = stored(tmp_path)
    assert vector.file is not None
    vector.file.unlink()

    with pytest.raises(StorageError, match="No such file"):
        vector.rows()


def test_vector_on_another_storage_is_refused(tmp_path: Path) -> None:
    vector = stored(tmp_path, "p")
    vector.descriptor["pathOrInlineDv"] = "s3://bucket/deletion_vector.bin"

    with pytest.raises(MaintError, match="s3://bucket"):
        vector.rows()


@pytest.mark.oracle
def test_vector_of_delta_spark_leaves_the_rows_that_it_reads(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = spark.range(0, 20_000, 1, 1).write.format("delta")
    rows.option("delta.enableDeletionVectors", "true").save(str(tmp_path))
    spark.sql(f"DELETE FROM {table(tmp_path)} WHERE id % 7 = 3 OR id BETWEEN 7000 AND 14000")

    found = opened(tmp_path)

    assert [add.deletion_vector is not None for add in found.adds] == [True]
    assert found.rows() == by_delta_spark(spark, tmp_path)
