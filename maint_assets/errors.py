"""Every error a user can see: one base, one sentence each, with table, finding and remedy.

MaintError
  RefusedError                    exit 3: safety or an unsupported feature; nothing was touched
    UnsupportedFeatureError       a table feature this operation does not know or must not meet
    NotADeltaTableError           no log below the location
    LogTooShortError              the log no longer tells all that a VACUUM LITE would have to know
    InventoryError                an inventory that is missing or lacks a column
    UnsupportedLocationError      a URI scheme or path that is not maintained
    RetentionError                a retention that is negative or below the table's own
    GuardError                    a plan outside the limits, a broken table, a wrong clock
    StalePlanError                the plan is not the one approved, too old, or of another table
  CorruptLogError                 exit 1: a log file that cannot be read
  LogGapError                     exit 1: versions or checkpoint parts are missing
  ChecksumMismatchError           exit 1: replay and version checksum disagree
  PropertyError                   exit 1: a table property that is not valid
  CommitError                     exit 1: the log could not be written
    NoRoomError                   exit 1: a full disk; surely nothing was committed
  ConflictError                   exit 1: others changed the table; surely nothing was committed
  UnknownOutcomeError             exit 1: nobody knows whether a commit was written
  DeletionFailedError             exit 1: some planned paths are still there
  StoppedError                    exit 1: an interrupt ended what was going on
  RewriteError                    exit 1: a rewrite that would not keep the rows
  StorageError                    exit 1: a directory or file that cannot be read or written
  StageMissingError               exit 1: an upstream stage was never materialised
  PredicateError                  exit 2: a partition predicate that is not one
  ConfigError                     exit 2: a config file or argument that does not fit
"""

import json
import re
from typing import ClassVar

_MARK = "maint-assets-error:"
_MARKED = re.compile(re.escape(_MARK) + r"(\{.*\})$", re.MULTILINE)


class MaintError(Exception):
    """The base of all errors; ``args`` are the fields, all strings, so that it pickles."""

    retryable: ClassVar[bool] = False
    files_may_be_removed: ClassVar[bool] = False
    exit_code: ClassVar[int] = 1

    def __init__(self, table: str, found: str, remedy: str = "") -> None:
        super().__init__(table, found, remedy)
        self.table, self.found, self.remedy = table, found, remedy

    def __str__(self) -> str:
        return f"{self.table}: {self.found}" + (f"; {self.remedy}" if self.remedy else "")

    def marked(self) -> str:
        """One line of text from which ``of_text`` makes this error again on the driver."""
        return _MARK + json.dumps({"error": type(self).__name__, "args": list(self.args)})


class RefusedError(MaintError):
    """The run was refused before anything was touched."""

    exit_code = 3


class UnsupportedFeatureError(RefusedError):
    """The table uses a feature that the operation does not know or must not meet."""


class LogTooShortError(RefusedError):
    """The log no longer tells all that was removed."""


class InventoryError(RefusedError):
    """An inventory cannot be read, or lacks a column."""


class NotADeltaTableError(RefusedError):
    """There is no Delta log at the location."""


class UnsupportedLocationError(RefusedError):
    """The URI names a storage or a place that is not maintained."""


class RetentionError(RefusedError):
    """A VACUUM was asked to keep less than the table promises its readers."""


class GuardError(RefusedError):
    """The plan is outside the limits set for it, or the table is not as it should be."""


class StalePlanError(RefusedError):
    """The plan is not the approved one, too old, or made for another table."""


class CorruptLogError(MaintError):
    """A file of the log cannot be read."""


class LogGapError(MaintError):
    """The log lacks a version or a checkpoint part that the state needs."""


class ChecksumMismatchError(MaintError):
    """Replay gave another state than the version checksum records."""


class PropertyError(MaintError):
    """A table property has a value that Delta does not accept."""


class CommitError(MaintError):
    """A commit could not be written."""


class NoRoomError(CommitError):
    """A full disk or quota kept a commit from being written: surely it is not there."""

    files_may_be_removed = True


class ConflictError(MaintError):
    """What others committed first leaves no room for a rewrite; surely nothing was committed."""

    files_may_be_removed = True


class UnknownOutcomeError(MaintError):
    """The storage failed while a commit was written: it may be there now, or come later."""


class DeletionFailedError(MaintError):
    """Some planned paths could not be deleted; the ledger names each."""


class StoppedError(MaintError):
    """An interrupt ended a stage; what it had done until then is recorded."""


class RewriteError(MaintError):
    """New files would not hold the rows of the old ones."""

    files_may_be_removed: ClassVar[bool] = True


class StorageError(MaintError):
    """The storage of a table or of the workspace does not let us read or write."""


class StageMissingError(MaintError):
    """A stage was asked for whose upstream was never materialised."""


class OrderError(MaintError):
    """The rows of a table cannot be ordered by the columns asked for."""

    exit_code = 2


class PredicateError(MaintError):
    """A partition predicate names other columns, or is no condition."""

    exit_code = 2


class ConfigError(MaintError):
    """A config file, key or argument does not fit."""

    exit_code = 2


def of_text(text: str) -> MaintError | None:
    """The error that an executor marked in the text of a Spark error, or None."""
    match = _MARKED.search(text)
    if match is None:
        return None
    fields = json.loads(match[1])
    kinds = {kind.__name__: kind for kind in _kinds(MaintError)}
    return kinds[fields["error"]](*fields["args"])


def _kinds(base: type[MaintError]) -> list[type[MaintError]]:
    return [base, *(kind for child in base.__subclasses__() for kind in _kinds(child))]


def one_line(error: BaseException) -> str:
    """The text of another library's error, as part of a sentence."""
    return " ".join(str(error).split())
