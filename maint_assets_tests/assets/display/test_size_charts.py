"""The charts in the UI are SVG in Markdown that a browser can draw."""

import re
from urllib.parse import unquote
from xml.etree import ElementTree as ET

from maint_assets.assets.display.size_charts import size_histogram
from maint_assets.snapshot.summary import SIZE_BUCKETS

INLINE = 1_000
"""Dagster hides Markdown of this many characters behind a link."""

NAMES = ("before", "after")


def texts(markdown: str) -> list[str]:
    """The texts in the chart."""
    match = re.fullmatch(r"!\[.+\]\(<data:image/svg\+xml,([^<>#&\"]+)>\)", markdown)
    assert match is not None
    root = ET.fromstring(unquote(match[1]))
    return [each.text or "" for each in root.iter("{http://www.w3.org/2000/svg}text")]


def test_sizes_are_shown_before_and_after() -> None:
    before = {"<1 MB": 1200, "<8 MB": 0, "<32 MB": 7, ">=512 MB": 3}
    after = {"<1 MB": 0, "<8 MB": 0, "<32 MB": 7, ">=512 MB": 5}

    found = texts(size_histogram(before, after, names=NAMES, label="{0:,}, now {1:,}"))

    assert found == [
        *NAMES, "under 1 MB: 1,200, now 0", "8 to 32 MB: 7, now 7", "from 512 MB: 3, now 5",
    ]  # fmt: skip


def test_a_table_without_files_has_a_picture() -> None:
    nothing = size_histogram({"<1 MB": 0}, {"<1 MB": 0}, names=NAMES, label="")

    assert texts(nothing) == list(NAMES)


def test_a_picture_of_all_sizes_is_short_enough_to_be_shown_at_once() -> None:
    """Dagster shows a link instead of longer texts."""
    before = {name: 1_234 for name, _ in SIZE_BUCKETS}

    found = size_histogram(
        before, before, names=("live files", "to be rewritten"), label="{1:,} of {0:,} files"
    )

    assert len(found) < INLINE
