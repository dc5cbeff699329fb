"""A batch that is not sound is never committed."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from maint_assets.commit.rewrite.committing import commit_rewrites
from maint_assets.commit.rewrite.values import RewrittenBin
from maint_assets.errors import (
    CommitError,
    UnsupportedFeatureError,
)
from maint_assets_tests.support.builder import TableBuilder
from maint_assets_tests.support.rewriting import Terms, head_of, merged

TRACKED = ["rowTracking", "domainMetadata"]


def _with_output(each: RewrittenBin, **fields: object) -> RewrittenBin:
    return RewrittenBin(
        each.bin, each.inputs, (msgspec.structs.replace(each.outputs[0], **fields),)
    )


UNSOUND: dict[str, tuple[Callable[[RewrittenBin], list[RewrittenBin]], str]] = {
    "lost rows": (lambda b: [_with_output(b, stats='{"numRecords":3}')], "its outputs 3"),
    "no rows": (lambda b: [RewrittenBin("x", b.inputs, ())], "its outputs 0"),
    "no statistics": (lambda b: [_with_output(b, stats=None)], "numRecords"),
    "no inputs": (lambda b: [RewrittenBin("x", (), b.outputs)], "no inputs"),
    "input twice": (lambda b: [b, RewrittenBin("x", b.inputs, ())], "more than once"),
    "own input": (lambda b: [_with_output(b, path="a")], "more than once"),
    "partition": (lambda b: [_with_output(b, partition_values={"p": "1"})], "partition columns"),
    "row id": (lambda b: [_with_output(b, base_row_id=1)], "row ids already"),
}


@pytest.mark.parametrize("fault", UNSOUND)
def test_batch_that_is_not_sound_is_refused(tmp_path: Path, fault: str) -> None:
    TableBuilder(tmp_path).create().add("a").add("b")
    spoilt, found = UNSOUND[fault]
    bins = spoilt(merged(tmp_path, "ab"))

    with pytest.raises(CommitError, match=found):
        commit_rewrites(head_of(tmp_path), bins, Terms().request())

    assert head_of(tmp_path).version == 2


def test_table_that_must_not_be_rewritten_is_refused(tmp_path: Path) -> None:
    TableBuilder(tmp_path).create(features=["icebergCompatV2"]).add("a")

    with pytest.raises(UnsupportedFeatureError):
        commit_rewrites(head_of(tmp_path), [merged(tmp_path, "new")], Terms().request())


def test_row_ids_that_are_not_kept_are_refused(tmp_path: Path) -> None:
    enabled = {"delta.enableRowTracking": "true"}
    TableBuilder(tmp_path).create(features=TRACKED, configuration=enabled).add("a", baseRowId=0)

    with pytest.raises(CommitError, match="row tracking is enabled"):
        commit_rewrites(head_of(tmp_path), [merged(tmp_path, "new")], Terms().request())
