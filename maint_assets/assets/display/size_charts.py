"""Bar charts in the UI: SVG in Markdown, the only form in which Dagster shows pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WIDTH, ROW, BAR = 270, 40, 264
FIRST, SECOND, TEXT = "b4bcd0", "4f43dd", "4a5568"
_SAFE = " !$'()*+,-./:;=@"


def size_histogram(
    first: Mapping[str, int], second: Mapping[str, int], *, names: tuple[str, str], label: str
) -> str:
    """Chart of two file counts for each size class, the longest bar for the largest count.

    ``names`` say what the two numbers are, ``label`` the format of the text that shows both.
    """
    shown = [name for name in first if first[name] or second.get(name, 0)]
    rows = [
        (f"{_words(name, list(first))}: {label.format(*numbers)}", *numbers)
        for name in shown
        for numbers in [(first[name], second.get(name, 0))]
    ]
    return paired_bars(rows, names=names, title="files by size")


def paired_bars(
    rows: Sequence[tuple[str, float, float]], *, names: tuple[str, str], title: str
) -> str:
    """Chart with two bars below each line of text; ``names`` are the legend."""
    most = max([number for _, *numbers in rows for number in numbers if number], default=1)
    texts = [_text(16, 12, names[0]), _text(146, 12, names[1])]
    bars = ["M0 3h10v10H0z"], ["M130 3h10v10h-10z"]
    for row, (text, *numbers) in enumerate(rows):
        top = ROW * row + 22
        texts.append(_text(0, top + 11, text))
        for at, number in enumerate(numbers):
            bars[at].append(_bar(top + 16 + 9 * at, number, most=most))
    drawn = "".join(
        f"<path fill='#{colour}' d='{''.join(each)}'/>"
        for colour, each in zip((FIRST, SECOND), bars, strict=True)
    )
    return markdown(drawn + "".join(texts), ROW * len(rows) + 22, title)


def markdown(shapes: str, height: int, title: str) -> str:
    """Shapes as a picture in Markdown."""
    size = f"width='{WIDTH}' height='{height}'"
    style = f"font-family='sans-serif' font-size='12' fill='#{TEXT}'"
    svg = f"<svg xmlns='http://www.w3.org/2000/svg' {size} {style}>{shapes}</svg>"
    return f"![{title}](<data:image/svg+xml,{quote(svg, safe=_SAFE)}>)"


def _words(size: str, sizes: list[str]) -> str:
    """The name of a size class in words, beginning where the class before ends."""
    at = sizes.index(size)
    if at and size.startswith("<"):
        return f"{sizes[at - 1].strip('<').split()[0]} to {size.strip('<')}"
    return size.replace(">=", "from ").replace("<", "under ")


def _bar(top: int, number: float, *, most: float) -> str:
    width = max(round(BAR * number / most), 1 if number else 0)
    return f"M0 {top}h{width}v8H0z" if width else ""


def _text(x: int, y: int, text: str) -> str:
    return f"<text x='{x}' y='{y}'>{text}</text>"
