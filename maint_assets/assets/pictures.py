"""Pictures in the UI: SVG in Markdown, as Dagster shows no other."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Mapping

WIDTH, ROW, LABEL, BAR = 560, 40, 90, 380
BEFORE, AFTER, TEXT = "#b4bcd0", "#4f43dd", "#4a5568"


def size_histogram(
    before: Mapping[str, int], after: Mapping[str, int], *, names: tuple[str, str]
) -> str:
    """Two numbers of files of each size, a bar each; ``names`` say what the two are."""
    most = max([*before.values(), *after.values(), 1])
    shown = [name for name in before if before[name] or after.get(name, 0)]
    parts = [_legend(names)]
    for row, name in enumerate(shown):
        top = ROW * (row + 1)
        parts.append(_text(LABEL - 8, top + 20, name, anchor="end"))
        parts.append(_bar(top + 4, before[name], most=most, colour=BEFORE))
        parts.append(_bar(top + 20, after.get(name, 0), most=most, colour=AFTER))
    return markdown(
        "".join(parts), ROW * (len(shown) + 1), f"number of files by size: {names[0]}, {names[1]}"
    )


def markdown(shapes: str, height: int, title: str) -> str:
    """Shapes as a picture in Markdown."""
    size = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    style = 'font-family="sans-serif" font-size="12"'
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>{shapes}</svg>'
    return f"![{title}](data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()})"


def _legend(names: tuple[str, str]) -> str:
    return _text(LABEL - 8, 20, "file size", anchor="end") + "".join(
        f'<rect x="{x}" y="10" width="12" height="12" fill="{colour}"/>' + _text(x + 18, 20, name)
        for x, name, colour in zip((LABEL, LABEL + 130), names, (BEFORE, AFTER), strict=True)
    )


def _bar(top: int, count: int, *, most: int, colour: str) -> str:
    width = max(round(BAR * count / most), 1 if count else 0)
    bar = f'<rect x="{LABEL}" y="{top}" width="{width}" height="14" fill="{colour}"/>'
    return bar + _text(LABEL + width + 6, top + 12, f"{count:,}")


def _text(x: int, y: int, text: str, *, anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" fill="{TEXT}" text-anchor="{anchor}">{escape(text)}</text>'
