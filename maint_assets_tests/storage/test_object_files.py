"""Objects of a real S3 server, opened and uploaded as files."""

import contextlib
import os
import uuid
from pathlib import Path

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from maint_assets.storage import object_files, read, write
from maint_assets.storage.location import Location
from maint_assets_tests.support import s3
from maint_assets_tests.support.faulty import LostConnection, Refusal

BODY = os.urandom(100_000)


@pytest.fixture
def location(s3_server: s3.Server) -> Location:
    return s3_server.location(f"files-{uuid.uuid4()}")


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects above a kilobyte count as large, and come in parts of seven kilobytes."""
    monkeypatch.setattr(object_files, "MEMORY_BYTES", 1_000)
    monkeypatch.setattr(object_files, "_RANGE_BYTES", 7_000)


def put(location: Location, path: str, body: bytes, server: s3.Server) -> None:
    server.put(f"{location.uri.split('/', 3)[3]}/{path}", body=body)


@pytest.mark.parametrize("expected", [0, 1, 999, 100_000, 10_000_000])
def test_an_object_is_read_whole_whatever_size_is_expected(
    location: Location, s3_server: s3.Server, expected: int
) -> None:
    put(location, "a b%20", BODY, s3_server)

    found = read.opened(location, "a b%20", size=expected)

    assert (found.size, found.source.read()) == (len(BODY), BODY)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("size", [0, 1, 999, 1_001, 7_000, 7_001, 20_999, 21_000])
def test_a_large_object_is_copied_to_a_file_without_a_name(
    location: Location,
    s3_server: s3.Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    size: int,
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/elsewhere")
    put(location, "a", BODY[:size], s3_server)

    found = read.opened(location, "a", size=size)

    assert (found.size, found.source.read()) == (size, BODY[:size])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("small_parts")
def test_an_object_that_changes_while_it_is_read_is_an_error(
    location: Location, s3_server: s3.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(location, "a", BODY, s3_server)
    get = obstore.get

    def changing(*arguments: object, **how: object) -> object:
        found = get(*arguments, **how)  # type: ignore[arg-type]
        put(location, "a", BODY[::-1], s3_server)
        return found

    monkeypatch.setattr(object_files.obstore, "get", changing)

    with pytest.raises(OSError, match=r"(?i)precondition|412|if-match"):
        read.opened(location, "a", size=len(BODY))


@pytest.mark.parametrize("columns", [1, 3_000])
def test_a_footer_is_read_without_the_rows(
    location: Location, s3_server: s3.Server, columns: int
) -> None:
    sink = pa.BufferOutputStream()
    rows = pa.table({f"column {at}": pa.array(range(2_000)) for at in range(columns)})
    pq.write_table(rows, sink, compression="none")
    body = sink.getvalue().to_pybytes()
    put(location, "a", body, s3_server)

    found = read.footer(location, "a")

    assert found.size == len(body)
    footer = pq.ParquetFile(found.source).metadata
    assert (footer.num_rows, footer.num_columns) == (2_000, columns)
    assert columns == 1 or object_files.FOOTER_BYTES < found.source.size() < len(body) / 4


@pytest.mark.parametrize("body", [b"", b"x", b"PAR1", b"\xff\xff\xff\x7fPAR1", b"x" * 200_000])
def test_what_is_no_parquet_file_has_no_footer(
    location: Location, s3_server: s3.Server, body: bytes
) -> None:
    put(location, "a", body, s3_server)

    with pytest.raises((OSError, pa.ArrowInvalid)):
        pq.ParquetFile(read.footer(location, "a").source)


def test_an_absent_object_is_named(location: Location) -> None:
    for size in (5, 50_000_000):
        with pytest.raises(FileNotFoundError, match="absent"):
            read.opened(location, "absent", size=size)
    with pytest.raises(FileNotFoundError, match="absent"):
        read.footer(location, "absent")


@pytest.mark.parametrize("is_local", [True, False])
def test_ranges_end_with_the_file(
    location: Location, s3_server: s3.Server, tmp_path: Path, is_local: bool
) -> None:
    put(location, "a", BODY, s3_server)
    (tmp_path / "a").write_bytes(BODY)
    place = Location.of(str(tmp_path)) if is_local else location

    found = read.ranges(place, "a", [(0, 1), (50, 100), (99_990, 100), (7, 0), (200_000, 5)])

    assert found == [BODY[:1], BODY[50:150], BODY[-10:], b"", b""]


def test_ranges_far_from_each_other_are_asked_for_singly(
    location: Location, s3_server: s3.Server
) -> None:
    body = BODY * 30
    put(location, "a", body, s3_server)

    found = read.ranges(location, "a", [(0, 1), (2_999_990, 100)])

    assert found == [body[:1], body[-10:]]
    with pytest.raises(OSError, match=r"416|(?i:range)"):
        read.ranges(location, "a", [(0, 1), (5_000_000, 10)])


@pytest.mark.parametrize("size", [0, 1, 12_000_000])
def test_a_file_is_uploaded_whole(location: Location, tmp_path: Path, size: int) -> None:
    body = (BODY * (1 + size // len(BODY)))[:size]
    (tmp_path / "new").write_bytes(body)

    write.put_file(location, "p=1/new", tmp_path / "new")

    assert read.content(location, "p=1/new") == body
    write.remove_files(location, ["p=1/new", "never there"])
    assert not read.exists(location, "p=1/new")


@pytest.mark.parametrize("fault", [LostConnection, Refusal])
def test_an_upload_that_fails_leaves_no_object(
    location: Location,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: type[LostConnection | Refusal],
) -> None:
    (tmp_path / "new").write_bytes(BODY)
    fault(monkeypatch)

    with pytest.raises(OSError, match=r"connection reset|503"):
        write.put_file(location, "new", tmp_path / "new")

    assert not read.exists(location, "new")


def test_a_draft_of_a_store_is_gone_whether_it_was_published_or_not(
    location: Location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    with write.draft_directory(location) as draft:
        with write.new_file(draft, "p=1/new") as sink:
            sink.write(BODY)
        write.publish(draft, location, "p=1/new")
    with contextlib.suppress(ValueError), write.draft_directory(location) as draft:
        with write.new_file(draft, "p=1/other") as sink:
            sink.write(BODY)
        raise ValueError

    assert read.content(location, "p=1/new") == BODY
    assert not read.exists(location, "p=1/other")
    assert list(tmp_path.iterdir()) == []
