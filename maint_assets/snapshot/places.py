"""Where a path of the log leads on the storage: links into the table are looked through."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING

from maint_assets.delta.paths import is_outside, relative

if TYPE_CHECKING:
    from maint_assets.delta.paths import TableRoot

_FILE = "file://"


def located(raw: str, root: TableRoot) -> str:
    """The path of ``relative``, and relative too where links lead an absolute one into the table.

    A table that is written through a symbolic link has absolute paths that name the link, while
    the root is known by its resolved path: such a file is the table's own, and must stay.
    """
    return through_links(relative(raw, root), root)


def through_links(path: str, root: TableRoot) -> str:
    """A result of ``relative``, made relative where the links of its directory lead inside."""
    local = path.removeprefix(_FILE)
    if not is_outside(path) or not local.startswith("/") or not root.is_local:
        return path
    directory, _, name = local.rpartition("/")
    found = f"{_resolved(directory or '/')}/{name}"
    inside = found.removeprefix(root.path + "/")
    return path if inside == found else inside


@lru_cache(maxsize=4096)
def _resolved(directory: str) -> str:
    return os.path.realpath(directory)
