"""The last checkpoint: a hint that is verified by its checksum if it has one."""

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maint_assets.delta.hint import LastCheckpoint, json_checksum, parse_hint

PROTOCOL_SAMPLE = (
    '{"k0":"\'v 0\'", "checksum": "adsaskfljadfkjadfkj", "k1":{"k2": 2, '
    '"k3": ["v3", [1, 2], {"k4": "v4", "k5": ["v5", "v6", "v7"]}]}}'
)


def test_hint_of_a_v2_checkpoint_names_its_file() -> None:
    content = b'{"version":3,"size":9,"v2Checkpoint":{"path":"3.checkpoint.u.json"},"new":{}}'

    assert parse_hint(content) == LastCheckpoint(3, 9, v2_checkpoint="3.checkpoint.u.json")


def test_hint_without_a_checksum_is_taken() -> None:
    assert parse_hint(b'{"version":3,"size":-1,"parts":2}') == LastCheckpoint(3, -1, 2)


def test_checksum_of_the_protocol_s_sample() -> None:
    assert json_checksum(PROTOCOL_SAMPLE) == "6a92d155a59bf2eecbd4b4ec7fd1f875"


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ('{"b":"a\u20ac+","a":null}', '"a"=null,"b"="a%E2%82%AC%2B"'),
        ('{"a":[true,false],"b":{}}', '"a"+0=true,"a"+1=false'),
        ('{"a":1.50,"b":{"checksum":-0}}', '"a"=1.50,"b"+"checksum"=-0'),
        ('{"a b":"-._~/"}', '"a%20b"="-._~%2F"'),
    ],
)
def test_checksum_is_of_the_canonical_form(text: str, canonical: str) -> None:
    assert json_checksum(text) == hashlib.md5(canonical.encode()).hexdigest()


@given(st.integers(0, 2**40), st.integers(-1, 2**40), st.text())
def test_hint_with_its_own_checksum_is_taken(version: int, size: int, tag: str) -> None:
    fields = {"version": version, "size": size, "tags": {"t": tag}}
    digest = json_checksum(json.dumps(fields))

    found = parse_hint(json.dumps({**fields, "checksum": digest}).encode())

    assert found == LastCheckpoint(version, size, checksum=digest)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"size":1}',
        b'{"version":"1","size":1}',
        b'{"version":1,"version":1}',
        b'{"version":1,"tags":{"a":1,"a":2}}',
        b'{"version":1,"checksum":"0123"}',
        b'{"version":1,"x":NaN}',
        b'{"version":1,"x":"\xff"}',
        b'{"version":1,"x":' + b"[" * 100_000,
    ],
)
def test_hint_that_is_corrupt_is_none(content: bytes) -> None:
    assert parse_hint(content) is None


@pytest.mark.parametrize("text", ["[1]", '{"a":NaN}', '{"a":1,"a":1}'])
def test_checksum_of_what_is_no_hint_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"Expected|not JSON|duplicate keys"):
        json_checksum(text)
