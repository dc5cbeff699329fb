"""Pictures in the UI are SVG in Markdown that a browser can draw."""

import base64
import re
from xml.etree import ElementTree as ET

from maint_assets.assets.pictures import size_histogram


def texts(markdown: str) -> list[str]:
    """The words of the picture."""
    match = re.fullmatch(r"!\[.+\]\(data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)\)", markdown)
    assert match is not None
    root = ET.fromstring(base64.b64decode(match[1]))
    return [each.text or "" for each in root.iter("{http://www.w3.org/2000/svg}text")]


def test_sizes_are_shown_before_and_after() -> None:
    before = {"<1 MB": 1200, "<8 MB": 0, ">=512 MB": 3}
    after = {"<1 MB": 0, "<8 MB": 0, ">=512 MB": 5}

    found = texts(size_histogram(before, after, names=("before", "after")))

    assert found == ["file size", "before", "after", "<1 MB", "1,200", "0", ">=512 MB", "3", "5"]


def test_a_table_without_files_has_a_picture() -> None:
    nothing = size_histogram({"<1 MB": 0}, {"<1 MB": 0}, names=("before", "after"))

    assert texts(nothing) == ["file size", "before", "after"]
