"""List the objects below a prefix in ranges of keys, page by page, without directories."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import obstore
import pyarrow as pa
import pyarrow.compute as pc
from obstore.exceptions import BaseError, InvalidPathError
from pyarrow import fs

from maint_assets.errors import StorageError, UnorderedListingError
from maint_assets.storage import objects

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from maint_assets.storage.location import Location

LISTED = pa.schema([
    ("path", pa.string()),
    ("size", pa.int64()),
    ("modified_ms", pa.int64()),
    ("is_named", pa.bool_()),
])
"""A row per object: path below the location, bytes, time in ms, and whether reading and deletion
can name it. Keys with empty components or control characters cannot be named."""

_UNNAMED = re.compile(r"(^|/)\.{0,2}(/|$)|[\x00-\x1f\x7f]")
_REMEDY = "allow listing it (s3:ListBucket), or check endpoint and region"


def listed(
    location: Location, *, after: str = "", until: str | None = None, ordered: bool = True
) -> Iterator[pa.RecordBatch]:
    """Pages of LISTED with the objects after one path, up to another one included, in key order.

    Markers of directories, which Hadoop's clients leave, are left out. Unless ``ordered``, all
    objects come in any order. Raises StorageError, or UnorderedListingError if ``ordered`` does not
    hold.
    """
    last = after
    try:
        for found in obstore.list(
            objects.store_of(location),
            offset=after or None,
            chunk_size=objects.PAGE_KEYS,
            return_arrow=True,
        ):
            page = pa.record_batch(found)
            page = page.filter(pc.not_equal(page["path"], ""))  # the marker of the root itself
            if not page.num_rows:
                continue
            keys = page["path"]
            if ordered:
                _refuse_unordered(location, last, keys)
                page = _between(page, after, until)
            last = keys[-1].as_py()
            yield _rows(location, page)
            if ordered and until is not None and last >= until:
                return
    except InvalidPathError:
        # One such key fails the whole page, so that its neighbours are unknown too.
        yield from _by_arrow(location, after=last if ordered else "", until=until)
    except BaseError as error:
        found = f"it cannot be listed ({objects.reason(error)})"
        raise StorageError(location.uri, found, _REMEDY) from error


def is_named(path: str) -> bool:
    """Whether requests can name an object: no empty component, no ``.`` or control character."""
    return _UNNAMED.search(path) is None


def _refuse_unordered(location: Location, last: str, keys: pa.Array) -> None:
    """Raise UnorderedListingError unless keys ascend by their bytes, as Arrow compares them."""
    every = pa.concat_arrays([pa.array([last], pa.string()), pc.cast(keys, pa.string())])
    if not pc.all(pc.less(every.slice(0, len(keys)), every.slice(1)), min_count=0).as_py():
        raise UnorderedListingError(location.uri, "its store lists keys in no order", "run again")


def _between(page: pa.RecordBatch, after: str, until: str | None) -> pa.RecordBatch:
    """The keys of a range: some stores ignore where a listing is to start."""
    inside = pc.greater(page["path"], after)
    if until is not None:
        inside = pc.and_(inside, pc.less_equal(page["path"], until))
    return page.filter(inside)


def _rows(location: Location, page: pa.RecordBatch) -> pa.RecordBatch:
    paths, sizes = pc.cast(page["path"], pa.string()), pc.cast(page["size"], pa.int64())
    in_ms = pc.cast(page["last_modified"], pa.timestamp("ms", "UTC"), safe=False)
    times = pc.cast(in_ms, pa.int64())
    named = pa.repeat(pa.scalar(value=True), len(paths))
    rows = pa.RecordBatch.from_arrays([paths, sizes, times, named], schema=LISTED)
    empty = pc.equal(sizes, 0)
    suspects = paths.filter(empty).to_pylist()
    if not suspects:
        return rows
    # A marker is listed without the slash at its end, and there is no object of that name.
    there = pa.array([each is not None for each in objects.looked_at(location, suspects)])
    return rows.filter(pc.replace_with_mask(pc.invert(empty), empty, there))


def _by_arrow(location: Location, *, after: str, until: str | None) -> Iterator[pa.RecordBatch]:
    """The same by Arrow's client, which lists any key, but from the first one on, and slowly."""
    root = location.uri.partition("://")[2]
    found: list[tuple[str, int, int, bool]] = []
    try:
        selector = fs.FileSelector(root, recursive=True)
        for each in _arrow_client(location).get_file_info(selector):
            path = each.path.removeprefix(f"{root}/")
            if each.type is fs.FileType.File and after < path and (until is None or path <= until):
                found.append((path, each.size, each.mtime_ns // 1_000_000, is_named(path)))
    except OSError as error:
        raise StorageError(location.uri, f"it cannot be listed ({error})", _REMEDY) from error
    columns = zip(*sorted(found), strict=True) if found else [()] * len(LISTED)
    arrays = [pa.array(each, kind.type) for each, kind in zip(columns, LISTED, strict=True)]
    yield pa.RecordBatch.from_arrays(arrays, schema=LISTED)


def _arrow_client(location: Location) -> fs.S3FileSystem:
    """Arrow's client for the bucket, by the same options and credentials."""
    config = objects.store_of(location).config
    given: dict[str, Any] = {
        "region": config.get("region"),
        "access_key": config.get("access_key_id"),
        "secret_key": config.get("secret_access_key"),
        "session_token": config.get("session_token") or None,
        "anonymous": location.options.anonymous,
    }
    endpoint = config.get("endpoint")
    if endpoint:
        scheme, _, host = str(endpoint).partition("://")
        given |= {"scheme": scheme, "endpoint_override": host.rstrip("/")}
    return fs.S3FileSystem(**{name: value for name, value in given.items() if value})
