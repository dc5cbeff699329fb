"""Resolve log paths on the storage, following symbolic links that lead into the table."""

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


def resolved_path(raw: str, root: TableRoot) -> str:
    """``relative``, but also relative if an absolute path leads into the table through links.

    A table written through a symbolic link has absolute paths that name the link, while the root is
    known by its resolved path. Such files belong to the table and must not look like orphans.
    """
    return through_links(relative(raw, root), root)


def resolved_columns(raw: pa.Array, root: TableRoot) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Decoded path, replay key, and whether inside the table, for a column of log paths.

    Only paths with escapes, schemes or odd components cost a Python call.
    """
    odd = pc.match_substring_regex(raw, _ODD)
    everywhere = pa.repeat(pa.scalar(value=True), len(raw))
    if not pc.any(odd).as_py():
        return raw, raw, everywhere
    spelled = pc.filter(raw, odd).to_pylist()
    found = [resolved_path(text, root) for text in spelled]
    path = pc.replace_with_mask(raw, odd, pa.array(found, pa.string()))
    key = pc.replace_with_mask(raw, odd, pa.array(map(canonical_key, spelled), pa.string()))
    within = pa.array([not is_outside(text) for text in found], pa.bool_())
    return path, key, pc.replace_with_mask(everywhere, odd, within)


def vector_path(kind: str, named: str, root: TableRoot) -> str | None:
    """Path of a deletion vector's file, as by ``resolved_path``; None for an inline vector."""
    found = file_path(kind, named, root)
    return None if found is None else through_links(found, root)


def possible_paths(raw: str, root: TableRoot) -> tuple[str, ...]:
    """All paths inside the table that a log path may mean: decoded, literal, and behind links.

    Some writers do not encode a ``%``. Protecting all candidates is safe.
    """
    found = [resolved_path(raw, root), *spellings(raw, root)]
    if "%" in raw and is_outside(raw):
        found.append(through_links(raw, root))
    inside = [path for path in found if path and not is_outside(path)]
    led = (behind_links(path, root) for path in inside)
    return tuple(dict.fromkeys((*inside, *(path for path in led if path is not None))))


def behind_links(path: str, root: TableRoot) -> str | None:
    """The resolved path, if a link in the path leads elsewhere inside the table; else None."""
    directory, _, name = path.rpartition("/")
    led = resolved_directory(directory, root) if directory and root.is_local else None
    return None if led is None else f"{led}/{name}".lstrip("/")


@lru_cache(maxsize=65_536)
def resolved_directory(directory: str, root: TableRoot) -> str | None:
    """The resolved directory, if links lead elsewhere inside the table; else None."""
    spelled = f"{root.path}/{directory}"
    found = _real(spelled)
    if found == spelled or not f"{found}/".startswith(f"{root.path}/"):
        return None
    return found[len(root.path) + 1 :]


@lru_cache(maxsize=65_536)
def is_behind_links(directory: str, root: TableRoot) -> bool:
    """Whether links lead from a directory of the table elsewhere, inside or outside of it."""
    spelled = f"{root.path}/{directory}" if directory else root.path
    return root.is_local and _real(spelled) != spelled


def are_inside(paths: pa.Array) -> pa.Array:
    """``not is_outside`` of each path; False for null."""
    return pc.fill_null(pc.invert(are_outside(paths)), fill_value=False)


def are_outside(paths: Column) -> Column:
    """``is_outside`` of each path; null for null."""
    return pc.or_kleene(pc.starts_with(paths, "/"), pc.match_substring(paths, "://"))


def directories_of(paths: pa.Array) -> pa.Array:
    """The parent directory of each path; empty for files in the root."""
    return pc.replace_substring_regex(paths, r"(^|/)[^/]*$", "")


def through_links(path: str, root: TableRoot) -> str:
    """Make an absolute path relative if links of its directory lead into the table."""
    local = path.removeprefix(_FILE)
    if not is_outside(path) or not local.startswith("/") or not root.is_local:
        return path
    directory, _, name = local.rpartition("/")
    found = f"{_resolved(directory or '/')}/{name}"
    inside = found.removeprefix(root.path + "/")
    return path if inside == found else inside


@lru_cache(maxsize=4096)
def _resolved(directory: str) -> str:
    return _real(directory)


def _real(directory: str) -> str:
    """The directory without links; unchanged if no directory can have that name (with a NUL)."""
    try:
        return os.path.realpath(directory)
    except ValueError:
        return directory
