"""Ranges of keys show the objects of a store once each, whatever lies among them."""

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import dagster as dg
import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs
from pyspark.sql import SparkSession

from maint_assets.errors import StorageError, UnorderedListingError
from maint_assets.storage import object_listing, objects
from maint_assets.storage.object_listing import listed
from maint_assets.vacuum import ranged_listing as ranged
from maint_assets.vacuum.ranged_listing import key_ranges
from maint_assets.vacuum.walk import Walk
from maint_assets_tests.support import s3
from maint_assets_tests.support.builder import TableBuilder
from maint_assets_tests.support.chain import Chain, files, set_clock

NAMES = st.text(st.sampled_from("_./0Za~é\U0001f600"), min_size=1, max_size=8)
LOG_KEYS = ("_delta_log/x", "_delta_log/\uffff", "_delta_log/_sidecars/y")


@given(sample=st.lists(NAMES, max_size=30), files=st.integers(0, 200_000), keys=st.sets(NAMES))
def test_each_key_outside_of_the_log_is_in_one_range(
    sample: list[str], files: int, keys: set[str]
) -> None:
    ranges = key_ranges([*sample, *LOG_KEYS], files)

    for key in {*keys, *sample, *LOG_KEYS, "_delta_log", "_delta_log0"}:
        inside = [r for r in ranges if r.after < key and (r.until is None or key <= r.until)]
        assert len(inside) == (0 if key.startswith("_delta_log/") else 1), key
    assert len(ranges) <= min(max(files // ranged.RANGE_FILES, 1), ranged.MOST_RANGES) + 1


KEYS = [f"p={number % 7}/{number:03}" for number in range(90)] + ["Z/1", "é/x", "\U0001f600"]


@pytest.fixture
def bucket(s3_server: s3.Server, monkeypatch: pytest.MonkeyPatch, request: Any) -> str:
    monkeypatch.setattr(objects, "PAGE_KEYS", 7)
    prefix = f"ranged-{abs(hash(request.node.name))}"
    if not s3_server.keys(prefix):
        s3_server.put(*(f"{prefix}/{key}" for key in KEYS))
    return prefix


def paths(pages: Any) -> list[str]:
    return [path for page in pages for path in page["path"].to_pylist()]


@pytest.mark.parametrize("ends", [[], ["p=3/010"], ["a", "p=1/000", "p=1/001", "p=6/999", "zz"]])
def test_ranges_together_are_the_flat_listing(
    s3_server: s3.Server, bucket: str, ends: list[str]
) -> None:
    location = s3_server.location(bucket)
    ranges = pairwise(["", *ends, None])

    found = [key for a, b in ranges for key in paths(listed(location, after=a or "", until=b))]

    assert found == sorted(KEYS, key=str.encode)


def test_a_store_that_ignores_the_start_of_a_listing_shows_each_key_once(
    s3_server: s3.Server, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing = obstore.list

    def flat(store: Any, *, offset: str | None, **how: Any) -> Any:
        return listing(store, **how)

    monkeypatch.setattr(object_listing.obstore, "list", flat)
    location = s3_server.location(bucket)

    with pytest.raises(UnorderedListingError):
        paths(listed(location, after="p=3", until="p=4"))
    assert sorted(paths(listed(location, ordered=False))) == sorted(KEYS)


@pytest.mark.parametrize("until", [None, "p=2/a\tb", "p=3"])
def test_a_key_that_cannot_be_named_hides_no_other(
    s3_server: s3.Server, bucket: str, until: str | None
) -> None:
    location = s3_server.location(bucket)
    client = object_listing._arrow_client(location)  # pyright: ignore[reportPrivateUsage]
    with client.open_output_stream(f"{s3.BUCKET}/{bucket}/p=2/a\tb") as file:
        file.write(b"x")
    every = sorted([*KEYS, "p=2/a\tb"], key=str.encode)

    pages = list(listed(location, until=until))

    assert paths(pages) == [key for key in every if until is None or key <= until]
    named = {p: n for page in pages for p, n in zip(page["path"].to_pylist(), page["is_named"].to_pylist(), strict=True)}  # fmt: skip  # noqa: E501
    assert [path for path, is_named in named.items() if not is_named] == ["p=2/a\tb"]


def test_markers_of_directories_are_no_files(s3_server: s3.Server, bucket: str) -> None:
    location = s3_server.location(bucket)
    client: fs.S3FileSystem = object_listing._arrow_client(location)  # pyright: ignore[reportPrivateUsage]
    client.create_dir(f"{s3.BUCKET}/{bucket}/marked")  # and a marker of the root
    s3_server.put(f"{bucket}/empty", body=b"")

    assert sorted(paths(listed(location))) == sorted([*KEYS, "empty"])


def test_a_bucket_that_is_not_there_is_named(s3_server: s3.Server) -> None:
    location = type(s3_server.location("x"))("s3://absent/t", s3_server.location("x").options)

    with pytest.raises(StorageError, match=r"cannot be listed .*allow listing it"):
        paths(listed(location))


def rows_of(walk: Walk, *keys: str, tables: Any = ()) -> tuple[dict[str, bool], set[str]]:
    """Whether each key is hidden, and the roots of other tables."""
    keyed = ranged._Keys(walk, tables)  # pyright: ignore[reportPrivateUsage]
    columns = [list(keys), [1] * len(keys), [0] * len(keys), [True] * len(keys)]
    page = pa.RecordBatch.from_arrays(
        [pa.array(c, k.type) for c, k in zip(columns, object_listing.LISTED, strict=True)],
        schema=object_listing.LISTED,
    )
    rows = keyed.rows(page).to_pylist()
    return {row["path"]: row["hidden"] for row in rows}, keyed.found


def test_keys_are_hidden_by_the_rules_of_a_walk(s3_server: s3.Server) -> None:
    walk = Walk(s3_server.location("t"), ["_p"], iceberg=True)

    hidden, found = rows_of(
        walk, "a", "d/a", "_p=1/a", "_p=1/_x", "_h/a", "d/.h/a", "d/.a", "_change_data/a",
        "metadata/v1.json", "metadata", "d/00000000000000000001.json", ".a.crc", "._a.crc",
        "other/_delta_log/0.json", "_h/t/_delta_log/0.json", "d/metadatas/a",
    )  # fmt: skip

    shown = {"a", "d/a", "_p=1/a", "_change_data/a", ".a.crc", "d/metadatas/a"}
    assert {path for path, is_hidden in hidden.items() if not is_hidden} == shown
    assert found == {"other"}


def test_other_tables_are_left_out_once_they_are_known(s3_server: s3.Server) -> None:
    walk = Walk(s3_server.location("t"), [], iceberg=False)

    hidden, found = rows_of(walk, "other/a", "other/_delta_log/0", "others/a", tables=["other"])

    assert (hidden, found) == ({"others/a": False}, set())


@pytest.mark.jvm
def test_a_table_in_many_ranges_with_another_one_inside_is_planned_as_on_a_disk(
    spark: SparkSession, s3_server: s3.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("maint_assets.vacuum.ranged_listing.RANGE_FILES", 4)
    monkeypatch.setattr("maint_assets.assets.stages.vacuum.RANGE_FILES", 4)
    table = TableBuilder(tmp_path / "t").at(days_ago=20).create(partition_columns=["p"])
    for value in "abc":
        table.add(*(f"{name}.parquet" for name in "qrstuvw"), partition={"p": value})
    table.remove("p=b/s.parquet").stray("p=c/stray").stray("_x/hidden").stray("zz/stray")
    inner = TableBuilder(tmp_path / "t/p=b/inner").at(days_ago=20).create().add("x", "y")
    inner.stray("stray")
    uri = s3_server.upload(table.path, "many-ranges")
    asked = {"retention": "0 hours", "allow_short_retention": True, "allow_clock_skew": True}
    chain = Chain.on_store(uri, tmp_path / "ws", s3_server.settings, **asked)
    set_clock(chain, int((tmp_path.stat().st_mtime + 3_600) * 1_000))

    report = chain.plan()

    assert files(report) == {"p=b/s.parquet", "p=c/stray", "zz/stray"}
    rows = listing_of(chain)
    assert [path for path, is_table in rows if is_table] == ["p=b/inner"]
    assert max(Counter(rows).values()) == 1
    assert not any(path.startswith("p=b/inner/") for path, _ in rows)


def listing_of(chain: Chain) -> list[tuple[str, bool]]:
    """Path, and whether it is the root of another table, of each row of the listing."""
    key = dg.AssetKey(["maintenance", "t", "listing"])
    _, dataset = chain.launcher.store.latest(chain.launcher.instance, key)
    rows = [row for part in dataset.parts() for row in pq.read_table(part.path).to_pylist()]
    return [(row["path"], row["nested_table"]) for row in rows]
