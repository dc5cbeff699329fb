"""Objects of a real S3 server, read and deleted through the doors of the storage."""

import random
import uuid

import pytest

from maint_assets.config import StorageSettings
from maint_assets.errors import GuardError, StorageError, UnsupportedLocationError
from maint_assets.storage import object_writes, objects, read, write
from maint_assets.storage.deletions import PlannedFile
from maint_assets.storage.location import Location
from maint_assets_tests.support import s3
from maint_assets_tests.support.faulty import FaultyDelete

PATHS = [f"p={number % 3}/{number:03}.parquet" for number in range(120)]


@pytest.fixture
def location(s3_server: s3.Server) -> Location:
    prefix = f"table-{uuid.uuid4()}"
    s3_server.put(*(f"{prefix}/{path}" for path in PATHS))
    return s3_server.location(prefix)


def planned(location: Location, *paths: str) -> list[PlannedFile]:
    found = read.sizes_and_mtimes(location, paths)
    return [PlannedFile(path, *(seen or (1, 0))) for path, seen in zip(paths, found, strict=True)]


def outcomes(
    location: Location, files: list[PlannedFile], *, is_stopping: bool = False
) -> list[tuple[str, str | None]]:
    done = write.delete_objects(location, files, stop=lambda: is_stopping)
    return [(each.outcome, each.error) for each in done]


def left(location: Location) -> set[str]:
    return {path for path in PATHS if read.is_file(location, path)}


def test_many_objects_are_looked_at_by_pages_and_singly_with_one_result(
    location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = random.Random(7).sample(PATHS, 60)
    asked = [*some, "absent", "p=1/absent", "zz"]
    singly = [read.size_and_mtime(location, path) for path in asked]

    for few, page in ((0, 1), (1, 7), (5, 50), (32, 1_000), (10_000, 1_000)):
        monkeypatch.setattr(objects, "FEW_PATHS", few)
        monkeypatch.setattr(objects, "PAGE_KEYS", page)
        assert read.sizes_and_mtimes(location, asked) == singly
    assert [found is None for found in singly] == [False] * 60 + [True] * 3
    assert read.are_files(location, asked) == [True] * 60 + [False] * 3


def test_no_paths_need_no_request(location: Location) -> None:
    assert read.sizes_and_mtimes(location, []) == []
    assert write.delete_objects(location, [], stop=lambda: False) == []


def test_each_object_of_a_batch_has_its_outcome(s3_server: s3.Server, location: Location) -> None:
    files = planned(location, *PATHS[:100], "absent", "_delta_log/00000000000000000000.json")
    files[3] = files[3]._replace(size=2)
    files[4] = files[4]._replace(modified_ms=files[4].modified_ms - 60_000)
    s3_server.put(f"{location.uri.removeprefix('s3://bucket/')}/{files[-1].path}")

    found = outcomes(location, files)

    changed = ("skipped", "changed since it was planned")
    expected = [("deleted", None)] * 100
    expected[3] = expected[4] = changed
    assert found == [*expected, ("missing", None), ("skipped", "a file of a Delta log")]
    assert left(location) == {PATHS[3], PATHS[4], *PATHS[100:]}
    assert read.is_file(location, files[-1].path)


def test_locked_objects_fail_alone(location: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FaultyDelete(monkeypatch, locked={PATHS[0], PATHS[50]})

    found = outcomes(location, planned(location, *PATHS))

    assert store.requests == 3
    failed = {PATHS[at]: error for at, (outcome, error) in enumerate(found) if outcome == "failed"}
    assert set(failed) == {PATHS[0], PATHS[50]} == left(location)
    assert all((error or "").startswith("protected by a lock") for error in failed.values())
    assert all("Debug" not in (error or "") for error in failed.values())
    assert [outcome for outcome, _ in found].count("deleted") == 118


def test_many_locked_objects_fail_one_by_one(
    location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = set(PATHS[::2])
    store = FaultyDelete(monkeypatch, locked=locked)

    found = outcomes(location, planned(location, *PATHS))

    assert store.requests == object_writes.NAMED_FAILURES + 1 + 120 - object_writes.NAMED_FAILURES
    assert [outcome for outcome, _ in found] == ["failed", "deleted"] * 60
    assert left(location) == locked


def test_a_busy_store_is_asked_again(location: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_writes, "_FIRST_PAUSE_S", 0.01)
    store = FaultyDelete(monkeypatch, busy=3)

    assert outcomes(location, planned(location, *PATHS)) == [("deleted", None)] * 120
    assert store.requests == 4


@pytest.mark.parametrize("is_stopping", [True, False])
def test_a_store_that_stays_busy_fails_what_is_still_there(
    location: Location, monkeypatch: pytest.MonkeyPatch, *, is_stopping: bool
) -> None:
    monkeypatch.setattr(object_writes, "_FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(object_writes, "SLOW_SECONDS", 300.0 if is_stopping else 0.05)
    FaultyDelete(monkeypatch, busy=10_000)

    found = outcomes(location, planned(location, *PATHS), is_stopping=is_stopping)

    assert {outcome for outcome, _ in found} == {"failed"}
    assert all((error or "").startswith("the store asks to slow down") for _, error in found)
    assert left(location) == set(PATHS)


def test_an_unset_variable_of_the_credentials_is_named(
    s3_server: s3.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TEST_STORE_SECRET")

    with pytest.raises(StorageError, match=r"variable TEST_STORE_SECRET.*is not set"):
        read.files(s3_server.location("no-such-table"), "")


def test_a_session_token_of_the_environment_is_not_mixed_with_named_keys(
    location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "stale")
    objects.store_of.cache_clear()

    assert len(read.names(location, "p=0")) == 40


def test_a_bucket_that_is_absent_or_forbidden_is_named(s3_server: s3.Server) -> None:
    absent = Location.of("s3://no-such-bucket/t", s3_server.settings)
    wrong = StorageSettings.model_validate(
        s3_server.settings.model_dump() | {"credentials": {"anonymous": True}}
    )

    with pytest.raises(StorageError, match=r"cannot be listed .*NoSuchBucket"):
        read.files(absent, "")
    with pytest.raises(StorageError, match=r"cannot be listed .*403"):
        read.files(Location.of("s3://bucket/t", wrong), "")


def test_markers_of_directories_are_no_files(s3_server: s3.Server) -> None:
    s3_server.put("marked/day=1/x", "marked/empty")
    s3_server.put("marked/day=1/zero", body=b"")

    found = read.names(s3_server.location("marked"), "day=1/")

    assert sorted(found) == ["x", "zero"]


@pytest.mark.parametrize("name", ["t#1", "t?x=1", "a%20b", "p=a%2Fb/t", "a b", "%2e%2e", "q+&"])
def test_a_location_is_taken_literally(s3_server: s3.Server, name: str) -> None:
    prefix = f"literal-{uuid.uuid4()}"
    s3_server.put(f"{prefix}/{name}/own", body=name.encode())
    s3_server.put(f"{prefix}/t/other", f"{prefix}/a b/other")

    location = s3_server.location(f"{prefix}/{name}")

    assert read.content(location, "own") == name.encode()
    assert "own" in [entry for each in read.directory(location, "") for entry in each.names]


@pytest.mark.parametrize(
    "uri",
    ["s3://KEY:SECRET@bucket/t", "s3://bucket:99/t", "s3://bucket/u/../t", "s3://bucket/./t",
     "s3://bucket/a\tb"],
)  # fmt: skip
def test_locations_that_would_be_others_are_refused_without_a_secret(uri: str) -> None:
    with pytest.raises(UnsupportedLocationError) as refused:
        Location.of(uri)

    assert "SECRET" not in str(refused.value)


def test_a_key_that_cannot_be_named_is_skipped_alone(location: Location) -> None:
    files = [*planned(location, PATHS[0]), PlannedFile("p=1/a\tb", 1, 0), PlannedFile("p//x", 1, 0)]

    found = outcomes(location, files)

    unnamed = ("skipped", "requests to the store cannot name its key")
    assert found == [("deleted", None), unnamed, unnamed]


@pytest.mark.parametrize(
    ("why", "said"),
    [
        ("error sending request for url (http://h/p/part-00403-x)", "error sending"),
        ("status code: 403: denied", "protected by a lock of the store, or not allowed: status"),
        ("status code: 503: part-403", "the store asks to slow down: status"),
        ("status code: 400: key part-00503", "status code: 400"),
    ],
)
def test_numbers_in_keys_are_no_status(why: str, said: str) -> None:
    assert object_writes._words(why).startswith(said)  # pyright: ignore[reportPrivateUsage]


def test_an_error_names_the_key_that_is_told_in_full(s3_server: s3.Server) -> None:
    location = s3_server.location("t")
    why = "DeleteObjects request failed for key t/x: protected"

    named = object_writes._named(location, why, ["t/x", "x"])  # pyright: ignore[reportPrivateUsage]

    assert named == "x"


def test_the_probe_of_conditions_goes_when_it_cannot_be_read(
    location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object) -> bytes:
        raise OSError("403")

    monkeypatch.setattr(write, "_stored", denied)
    with pytest.raises(GuardError, match="a put-if-absent of it fails"):
        write.refuse_ignored_conditions(location, "_delta_log")

    assert not read.has_directory(location, "_delta_log")
