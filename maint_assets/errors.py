"""Every error that a user can see: one sentence with the table, what was found, and the remedy.

MaintError
  RefusedError                    exit 3: safety or an unsupported feature; nothing was touched
    UnsupportedFeatureError       a table feature that the operation does not support
    NotADeltaTableError           no log below the location
    LogTooShortError              commits that a VACUUM LITE needs are gone from the log
    InventoryError                an inventory that is missing or lacks a column
    UnsupportedLocationError      a URI scheme or path that is not supported
    RetentionError                a retention that is negative or shorter than the table's own
    GuardError                    a plan beyond its limits, a broken table, a wrong clock
    StalePlanError                the plan is not the one approved, too old, or of another table
  CorruptLogError                 exit 1: a log file that cannot be read
  LogGapError                     exit 1: versions or checkpoint parts are missing
  ChecksumMismatchError           exit 1: replay and version checksum disagree
  PropertyError                   exit 1: a table property that is not valid
  CommitError                     exit 1: the log could not be written
    NoRoomError                   exit 1: the disk is full; nothing was committed
  ConflictError                   exit 1: a concurrent commit conflicts; nothing was committed
  UnknownOutcomeError             exit 1: a commit may or may not have been written
  OverwrittenError                exit 1: another writer overwrote a commit of ours
  DeletionFailedError             exit 1: some planned paths could not be deleted
  StoppedError                    exit 1: an interrupt stopped the stage
  RewriteError                    exit 1: new files would not hold the rows of the old ones
  StorageError                    exit 1: a directory or file that cannot be read or written
    UnorderedListingError         a store that lists keys in no order; it is listed as a whole then
  OrderError                      exit 2: columns that rows cannot be ordered by
  StageMissingError               exit 1: an upstream stage was never materialised
  PredicateError                  exit 2: a partition predicate that is not valid
  ConfigError                     exit 2: a config file or argument that is not valid
"""

import json
import re
from typing import ClassVar

_MARK = "maint-assets-error:"
_MARKED = re.compile(re.escape(_MARK) + r"(\{.*\})$", re.MULTILINE)


class MaintError(Exception):
    """Base of all errors. Its ``args`` are its fields, all strings, so that it can be pickled."""

    retryable: ClassVar[bool] = False
    files_may_be_removed: ClassVar[bool] = False
    exit_code: ClassVar[int] = 1

    def __init__(self, table: str, found: str, remedy: str = "") -> None:
        super().__init__(table, found, remedy)
        self.table, self.found, self.remedy = table, found, remedy

    def __str__(self) -> str:
        return f"{self.table}: {self.found}" + (f"; {self.remedy}" if self.remedy else "")

    def marked(self) -> str:
        """This error as one line of text, from which ``of_text`` restores it on the driver."""
        return _MARK + json.dumps({"error": type(self).__name__, "args": list(self.args)})


class RefusedError(MaintError):
    """The run was refused before anything was touched."""

    exit_code = 3


class UnsupportedFeatureError(RefusedError):
    """The table has a feature that the operation does not support."""


class LogTooShortError(RefusedError):
    """Commits that record what was removed are gone from the log."""


class InventoryError(RefusedError):
    """An inventory cannot be read, or lacks a column."""


class NotADeltaTableError(RefusedError):
    """There is no Delta log at the location."""


class UnsupportedLocationError(RefusedError):
    """The URI names a kind of storage, or a path, that is not supported."""


class RetentionError(RefusedError):
    """The retention asked for is shorter than the one that the table promises its readers."""


class GuardError(RefusedError):
    """The plan is beyond the configured limits, or the table is in a state that makes it unsafe."""


class StalePlanError(RefusedError):
    """The plan is not the approved one, too old, or made for another table."""


class CorruptLogError(MaintError):
    """A file of the log cannot be read."""


class LogGapError(MaintError):
    """The log lacks a version or a checkpoint part that the state needs."""


class ChecksumMismatchError(MaintError):
    """Replay of the log gives another state than the version checksum records."""


class PropertyError(MaintError):
    """A table property has a value that Delta does not accept."""


class CommitError(MaintError):
    """A commit could not be written."""


class NoRoomError(CommitError):
    """The disk or the quota is full: the commit was not written."""

    files_may_be_removed = True


class ConflictError(MaintError):
    """A concurrent commit conflicts with the rewrite; nothing was committed."""

    files_may_be_removed = True


class UnknownOutcomeError(MaintError):
    """The storage failed during a commit: it may have been written, or may appear later."""


class OverwrittenError(MaintError):
    """Another writer overwrote a commit that had succeeded."""


class DeletionFailedError(MaintError):
    """Some planned paths could not be deleted; the ledger names each."""


class StoppedError(MaintError):
    """An interrupt stopped a stage; what it had done by then is recorded."""


class RewriteError(MaintError):
    """New files would not hold the rows of the old ones."""

    files_may_be_removed: ClassVar[bool] = True


class StorageError(MaintError):
    """A file or directory of a table, or of the workspace, cannot be read or written."""


class UnorderedListingError(StorageError):
    """A store lists keys in no order, as directory buckets of S3 Express do."""


class StageMissingError(MaintError):
    """An upstream stage was never materialised."""


class OrderError(MaintError):
    """The rows of a table cannot be ordered by the columns asked for."""

    exit_code = 2


class PredicateError(MaintError):
    """A partition predicate names columns that are not partition columns, or is no condition."""

    exit_code = 2


class ConfigError(MaintError):
    """A config file, key or argument is not valid."""

    exit_code = 2


def of_text(text: str) -> MaintError | None:
    """The error in the text of a Spark error (see ``with_marked_errors``), or None."""
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
