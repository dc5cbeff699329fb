"""Commits of rewrites on failing storage, on changed logs, and when they are run again."""

from pathlib import Path

import msgspec
import pytest

from maint_assets.commit.rewrite import committing
from maint_assets.commit.rewrite.committing import FAULTS, commit_rewrites
from maint_assets.commit.rewrite.values import RewrittenBin
from maint_assets.errors import (
    CommitError,
    ConflictError,
    CorruptLogError,
    LogGapError,
    NoRoomError,
    StalePlanError,
    UnknownOutcomeError,
)
from maint_assets.storage.location import Location
from maint_assets.storage.write import put_if_absent
from maint_assets_tests.support.builder import tree
from maint_assets_tests.support.rewriting import Terms, head_of, names, table_of, two_bins


def test_lost_response_is_known_by_its_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table_of(tmp_path)
    head, bins = two_bins(tmp_path)
    monkeypatch.setattr(committing, "put_if_absent", _silent)

    done = commit_rewrites(head, bins, Terms().request())

    assert (done.version, done.kept) == (5, tuple(bins))
    assert head_of(tmp_path).version == 5


def _silent(location: Location, name: str, body: bytes) -> bool:
    put_if_absent(location, name, body)
    raise OSError("connection reset")


def test_write_of_unknown_outcome_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table_of(tmp_path)
    head, bins = two_bins(tmp_path)
    faults = iter([OSError("timeout"), OSError("timeout")])

    def put(location: Location, name: str, body: bytes) -> bool:
        for fault in faults:
            raise fault
        return put_if_absent(location, name, body)

    monkeypatch.setattr(committing, "put_if_absent", put)

    assert commit_rewrites(head, bins, Terms().request()).version == 5


def test_write_that_never_succeeds_leaves_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table_of(tmp_path)
    head, bins = two_bins(tmp_path)
    tried: list[str] = []

    def put(location: Location, name: str, body: bytes) -> bool:
        tried.append(name)
        raise OSError("timeout")

    monkeypatch.setattr(committing, "put_if_absent", put)

    with pytest.raises(UnknownOutcomeError, match="txn-1") as raised:
        commit_rewrites(head, bins, Terms(attempts=50).request())

    assert not raised.value.files_may_be_removed
    assert len(tried) == FAULTS


FULL = OSError(28, "No space left on device"), OSError("Unable to copy (os error 122)")


@pytest.mark.parametrize("fault", FULL)
def test_a_commit_for_which_there_is_no_room_is_surely_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: OSError
) -> None:
    table_of(tmp_path)
    head, bins = two_bins(tmp_path)

    def put(*_: object) -> bool:
        raise fault

    monkeypatch.setattr(committing, "put_if_absent", put)

    with pytest.raises(NoRoomError, match=r"0005.json cannot be written .*make room") as raised:
        commit_rewrites(head, bins, Terms().request())
    assert raised.value.files_may_be_removed
    assert head_of(tmp_path).version == 4


@pytest.mark.parametrize("other", [OSError("timeout"), None], ids=["timeout", "not-listed"])
def test_want_of_room_after_a_doubtful_write_leaves_the_doubt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: OSError | None
) -> None:
    table_of(tmp_path)
    head, bins = two_bins(tmp_path)
    answers = iter([other])

    def put(*_: object) -> bool:
        answer = next(answers, FULL[0])
        if answer is None:
            return False
        raise answer

    monkeypatch.setattr(committing, "put_if_absent", put)

    with pytest.raises(UnknownOutcomeError):
        commit_rewrites(head, bins, Terms().request())


def test_failed_write_whose_version_another_took_is_no_doubt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_of(tmp_path)
    head, bins = two_bins(tmp_path)

    def put(location: Location, name: str, body: bytes) -> bool:
        table.add(f"winner{table.version}")
        raise OSError("timeout")

    monkeypatch.setattr(committing, "put_if_absent", put)

    with pytest.raises(ConflictError, match="5 attempts to commit OPTIMIZE lost the race"):
        commit_rewrites(head, bins, Terms().request())


def test_version_that_is_there_but_not_listed_is_in_doubt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table_of(tmp_path)
    head, bins = two_bins(tmp_path)
    monkeypatch.setattr(committing, "put_if_absent", lambda *_: False)

    with pytest.raises(UnknownOutcomeError, match="not listed"):
        commit_rewrites(head, bins, Terms().request())


def test_second_run_knows_the_commit_of_the_first(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    head, bins = two_bins(tmp_path)
    commit_rewrites(head, bins, Terms().request())
    table.version += 1
    table.commit([{"metaData": table.metadata | {"name": "later", "partitionColumns": ["id"]}}])

    done = commit_rewrites(head, bins, Terms().request())

    assert (done.version, done.kept) == (5, tuple(bins))
    assert head_of(tmp_path).version == 6


def test_other_files_of_a_second_run_are_not_taken_for_committed(tmp_path: Path) -> None:
    table_of(tmp_path)
    head, bins = two_bins(tmp_path)
    commit_rewrites(head, bins, Terms().request())
    moved = [msgspec.structs.replace(bins[0].outputs[0], path="again.parquet")]
    again = [RewrittenBin("ab", bins[0].inputs, tuple(moved)), bins[1]]

    done = commit_rewrites(head, again, Terms().request())

    assert (names(done.kept), names(done.dropped)) == (["cd"], ["ab"])


def test_new_files_are_not_given_up_when_a_second_run_has_them_in_other_bins(
    tmp_path: Path,
) -> None:
    table_of(tmp_path)
    head, bins = two_bins(tmp_path)
    commit_rewrites(head, bins[:1], Terms().request())
    outputs = bins[0].outputs + bins[1].outputs
    both = RewrittenBin("abcd", bins[0].inputs + bins[1].inputs, outputs)

    with pytest.raises(CommitError, match="but other bins"):
        commit_rewrites(head, [both], Terms().request())


def test_new_files_that_another_transaction_committed_are_not_given_up(tmp_path: Path) -> None:
    table_of(tmp_path)
    head, bins = two_bins(tmp_path)
    commit_rewrites(head, bins, Terms().request())

    with pytest.raises(CommitError, match=r"adds the new file ab\.parquet") as raised:
        commit_rewrites(head, bins, Terms(txn_id="txn-2").request())

    assert not raised.value.files_may_be_removed


def test_log_that_was_cleaned_up_behind_the_plan_is_not_written(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    head, bins = two_bins(tmp_path)
    table.add("e").add("f").checkpoint()
    (table.log / f"{5:020}.json").unlink()
    before = tree(tmp_path)

    with pytest.raises(LogGapError):
        commit_rewrites(head, bins, Terms().request())
    (table.log / f"{6:020}.json").unlink()
    with pytest.raises(LogGapError):
        commit_rewrites(head, bins, Terms().request())

    assert {*tree(tmp_path)} == {*before} - {f"_delta_log/{6:020}.json"}


def test_log_that_was_made_anew_is_not_written(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    head, bins = two_bins(tmp_path)
    planned = table.log / f"{4:020}.json"
    planned.write_text(planned.read_text() + "\n")

    with pytest.raises(StalePlanError, match="was replaced since"):
        commit_rewrites(head, bins, Terms().request())
    planned.unlink()
    with pytest.raises(LogGapError):
        commit_rewrites(head, bins, Terms().request())


def test_winner_that_cannot_be_read_is_not_passed_over(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    head, bins = two_bins(tmp_path)
    table.write_log(f"{5:020}.json", "{broken\n")

    with pytest.raises(CorruptLogError):
        commit_rewrites(head, bins, Terms().request())
