"""Where a path of the log leads on the storage: links into the table are looked through."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from maint_assets.delta.deletion_vectors import file_path
from maint_assets.delta.paths import TableRoot, canonical_key, is_outside, relative, spellings

Column = TypeVar("Column", pa.Array, pc.Expression)

_FILE = "file://"
_ODD = r"%|:|\\|^/|//|(^|/)\.\.?(/|$)"


def located(raw: str, root: TableRoot) -> str:
    """The path of ``relative``, and relative too where links lead an absolute one into the table.

    A table that is written through a symbolic link has absolute paths that name the link, while
    the root is known by its resolved path: such a file is the table's own, and must stay.
    """
    return through_links(relative(raw, root), root)


def placed(raw: pa.Array, root: TableRoot) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Decoded path, replay key and whether inside; plain paths are all three at once."""
    odd = pc.match_substring_regex(raw, _ODD)
    everywhere = pa.repeat(pa.scalar(value=True), len(raw))
    if not pc.any(odd).as_py():
        return raw, raw, everywhere
    spelled = pc.filter(raw, odd).to_pylist()
    found = [located(text, root) for text in spelled]
    path = pc.replace_with_mask(raw, odd, pa.array(found, pa.string()))
    key = pc.replace_with_mask(raw, odd, pa.array(map(canonical_key, spelled), pa.string()))
    within = pa.array([not is_outside(text) for text in found], pa.bool_())
    return path, key, pc.replace_with_mask(everywhere, odd, within)


def vector_path(kind: str, named: str, root: TableRoot) -> str | None:
    """Where the file of a deletion vector lies, as ``located`` says it; None for an inline one."""
    found = file_path(kind, named, root)
    return None if found is None else through_links(found, root)


def names(raw: str, root: TableRoot) -> tuple[str, ...]:
    """The paths inside the table that a path of the log may stand for: decoded, and literally.

    Writers that do not encode leave a ``%`` of a name as it is; the superset is the safe answer.
    """
    found = [located(raw, root), *spellings(raw, root)]
    if "%" in raw and is_outside(raw):
        found.append(through_links(raw, root))
    inside = [path for path in found if path and not is_outside(path)]
    led = (behind_links(path, root) for path in inside)
    return tuple(dict.fromkeys((*inside, *(path for path in led if path is not None))))


def behind_links(path: str, root: TableRoot) -> str | None:
    """Where a path inside the table lies that leads through a link to another place inside."""
    directory, _, name = path.rpartition("/")
    led = led_directory(directory, root) if directory and root.is_local else None
    return None if led is None else f"{led}/{name}".lstrip("/")


@lru_cache(maxsize=65_536)
def led_directory(directory: str, root: TableRoot) -> str | None:
    """The directory inside the table to which links lead from another one; None without such."""
    spelled = f"{root.path}/{directory}"
    found = os.path.realpath(spelled)
    if found == spelled or not f"{found}/".startswith(f"{root.path}/"):
        return None
    return found[len(root.path) + 1 :]


def are_inside(paths: pa.Array) -> pa.Array:
    """``not is_outside`` of each path; False for null."""
    return pc.fill_null(pc.invert(are_outside(paths)), fill_value=False)


def are_outside(paths: Column) -> Column:
    """``is_outside`` of each path; null for null."""
    return pc.or_kleene(pc.starts_with(paths, "/"), pc.match_substring(paths, "://"))


def directories_of(paths: pa.Array) -> pa.Array:
    """The directory of each path, empty for one directly in the root."""
    return pc.replace_substring_regex(paths, r"(^|/)[^/]*$", "")


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
