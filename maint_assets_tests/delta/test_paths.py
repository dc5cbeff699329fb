"""Paths: decoded once, relative inside the root, absolute outside."""

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maint_assets.delta.paths import (
    TableRoot,
    canonical_key,
    decoded,
    is_outside,
    parents,
    relative,
    spellings,
)
from maint_assets.errors import UnsupportedLocationError

LOCAL = TableRoot.of("/data/t")
S3 = TableRoot.of("s3://bucket/t")
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\0"), min_size=1)
PATHS = st.lists(NAMES.filter(lambda name: name not in {".", ".."}), min_size=1).map("/".join)


@pytest.mark.parametrize(
    ("uri", "normal", "path"),
    [
        ("/data/t/", "file:///data/t", "/data/t"),
        ("file:/data//t", "file:///data/t", "/data/t"),
        ("file:///data/x/../t", "file:///data/t", "/data/t"),
        ("FILE://localhost/data/t", "file:///data/t", "/data/t"),
        ("/a b%20c", "file:///a b%20c", "/a b%20c"),
        ("s3a://bucket/t/", "s3a://bucket/t", "/t"),
        ("s3://bucket", "s3://bucket", ""),
    ],
)
def test_root_has_one_normal_form(uri: str, normal: str, path: str) -> None:
    root = TableRoot.of(uri)

    assert (root.uri, root.path) == (normal, path)
    assert TableRoot.of(root.uri) == root
    assert root.is_local is normal.startswith("file:")


@pytest.mark.parametrize("uri", ["", "data/t", "/", "file:///", "s3:", "s3://"])
def test_root_that_is_no_place_for_a_table_is_refused(uri: str) -> None:
    with pytest.raises(UnsupportedLocationError):
        TableRoot.of(uri)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("p=a%2520b/x", "p=a%20b/x"),
        ("a+b", "a+b"),
        ("a%2Bb", "a+b"),
        ("%C3%A9%e2%82%ac", "é€"),
        ("100%", "100%"),
        ("%zz%2", "%zz%2"),
        ("%ff", "%ff"),
    ],
)
def test_decoded_exactly_once_and_malformed_stays(raw: str, text: str) -> None:
    assert decoded(raw) == text


@pytest.mark.parametrize(
    "raw",
    [
        "p=1/x y",
        "p=1/x%20y",
        "p=1//x y",
        "./p=1/x%20y",
        "p=2/../p=1/x%20y",
        "../t/p=1/x%20y",
        "/data/t/p=1/x%20y",
        "file:/data/t/p=1/x%20y",
        "file:///data/t/p=1/x y",
        "FILE://localhost/data/t/p=1/x%20y",
    ],
)
def test_relative_joins_the_spellings_of_a_local_file(raw: str) -> None:
    assert relative(raw, LOCAL) == "p=1/x y"


@pytest.mark.parametrize(
    ("root", "raw"),
    [
        ("s3://b/t", "s3a://b/t/x"),
        ("s3n://b/t", "S3://b/t/x"),
        ("s3://b/t", "/t/x"),
        ("s3://b", "s3://b/x"),
        ("abfss://c@a.dfs.core.windows.net/t", "abfs://c@a.dfs.core.windows.net/t/x"),
        ("wasb://c@a/t", "wasbs://c@a/t/x"),
        ("gs://b/t", "gcs://b/t/x"),
    ],
)
def test_relative_takes_aliases_of_a_scheme_as_one(root: str, raw: str) -> None:
    assert relative(raw, TableRoot.of(root)) == "x"


HOST = "acc.dfs.core.windows.net"
AZURE = [
    f"abfss://cont@{HOST}/t",
    f"abfs://cont@{HOST}/t",
    "abfss://cont@acc.blob.core.windows.net/t",
    "wasbs://cont@acc.blob.core.windows.net/t",
    "wasb://cont@acc.blob.core.windows.net/t",
    f"https://{HOST}/cont/t",
    "https://acc.blob.core.windows.net/cont/t",
    "HTTPS://ACC.blob.core.windows.net:443/cont//t",
    "https://acc-secondary.blob.core.windows.net/cont/t",
    "https://acc.z07.blob.storage.azure.net/cont/t",
    "az://cont/t",
    "azure://cont/t",
    "abfs://cont/t",
    "adl://cont/t",
]


@pytest.mark.parametrize("root", AZURE)
@pytest.mark.parametrize("other", AZURE)
def test_relative_joins_the_spellings_of_an_azure_container(root: str, other: str) -> None:
    table = TableRoot.of(root)

    assert relative(f"{other}/p=1/x%20y", table) == "p=1/x y"
    assert relative("/t/p=1/x%20y", table) == "p=1/x y"
    assert table.path == "/t"


@pytest.mark.parametrize("root", AZURE)
@pytest.mark.parametrize(
    "raw",
    [
        f"abfss://other@{HOST}/t/x",
        "https://acc.blob.core.windows.net/other/t/x",
        "https://acc.blob.core.windows.net/cont/t2/x",
        "https://acc.blob.core.windows.net/cont/../t/x",
        "az://other/t/x",
        "s3://cont/t/x",
        "https://cont/t/x",
        "https://example.com/cont/t/x",
        "adl://acc.azuredatalakestore.net/t/x",
    ],
)
def test_another_container_or_store_is_outside_of_an_azure_table(root: str, raw: str) -> None:
    assert is_outside(relative(raw, TableRoot.of(root)))


@pytest.mark.parametrize("root", [root for root in AZURE if "acc" in root.lower()])
@pytest.mark.parametrize("host", ["acc2.dfs.core.windows.net", "acc2.blob.core.windows.net"])
def test_another_account_is_outside_of_an_azure_table(root: str, host: str) -> None:
    for raw in (f"abfss://cont@{host}/t/x", f"https://{host}/cont/t/x"):
        assert is_outside(relative(raw, TableRoot.of(root)))


@pytest.mark.parametrize(
    ("root", "raw", "whole"),
    [
        (LOCAL, "/data/t2/x", "/data/t2/x"),
        (LOCAL, "file:/other/x%20y", "file:///other/x y"),
        (LOCAL, "../x", "file:///data/x"),
        (LOCAL, "a/../../../x", "file:///x"),
        (LOCAL, "s3://bucket/t/x", "s3://bucket/t/x"),
        (S3, "s3://other/t/x", "s3://other/t/x"),
        (S3, "../x", "s3://bucket/x"),
        (S3, "https://acc.blob.core.windows.net/c/x", "abfss://c@acc.blob.core.windows.net/x"),
        (S3, "https://acc.blob.core.windows.net/c", "abfss://c@acc.blob.core.windows.net/"),
        (S3, "file:/t/x", "file:///t/x"),
        (S3, "gs://bucket/t/x", "gs://bucket/t/x"),
    ],
)
def test_relative_is_whole_outside_the_root(root: TableRoot, raw: str, whole: str) -> None:
    assert relative(raw, root) == whole
    assert is_outside(whole)
    assert spellings(raw, root) == parents(whole) == ()


@pytest.mark.parametrize("raw", ["p=a:b/x", "ts=2020-01-01 10:00:00/x", "a:b", "a%3A/x", "a%3A//x"])
def test_relative_with_a_colon_is_inside(raw: str) -> None:
    assert relative(raw, LOCAL) == decoded(raw).replace("//", "/")
    assert not is_outside(relative(raw, LOCAL))


@given(PATHS)
def test_relative_of_an_encoded_path_is_the_path(path: str) -> None:
    assert relative(quote(path), S3) == path
    assert relative(f"s3a://bucket/t/{quote(path)}", S3) == path


@given(st.text())
def test_relative_takes_any_text_and_settles(raw: str) -> None:
    found = relative(raw, LOCAL)

    assert relative(quote(found), LOCAL) == found or is_outside(found)
    assert all(not is_outside(path) for path in spellings(raw, LOCAL))


def test_spellings_hold_the_decoded_and_the_raw_path() -> None:
    assert spellings("p=a%20b//x", LOCAL) == ("p=a b/x", "p=a%20b/x")
    assert spellings("file:///data/t/%41", LOCAL) == ("A", "%41")
    assert spellings("x", LOCAL) == ("x",)
    assert spellings(".", LOCAL) == ()


def test_spellings_protect_below_a_root_with_a_percent_sign() -> None:
    assert spellings("file:///a%20b/x", TableRoot.of("/a%20b")) == ("x",)


def test_parents_are_deepest_first_without_the_root() -> None:
    assert parents("a/b/c.parquet") == ("a/b", "a")
    assert parents("c.parquet") == ()


def test_canonical_key_raises_only_the_digits_of_escapes() -> None:
    assert canonical_key("p=%c3%a9%2f/x%zzaf") == "p=%C3%A9%2F/x%zzaf"


@pytest.mark.parametrize("raw", ["/t/b%2f", "file:/t/b%2F", "file:///t/b%2F"])
def test_an_absolute_local_path_has_one_key_in_all_its_forms(raw: str) -> None:
    assert canonical_key(raw) == "file:/t/b%2F"
    assert canonical_key("b%2F") != canonical_key(raw) != canonical_key("s3://t/b%2F")
