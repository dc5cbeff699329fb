"""The columns that a Z-order names."""

import pytest

from maint_assets.compaction.ordering.order import listed_names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a", ["a"]),
        ("a, s.b ,c", ["a", "s.b", "c"]),
        ("`a,b`,s.`c, d`", ["`a,b`", "s.`c, d`"]),
        ("`a``,b`, c", ["`a``,b`", "c"]),
        ("a`b,c", ["a`b", "c"]),
        ("a,,b", ["a", "", "b"]),
    ],
)
def test_names_are_separated_by_commas_outside_backticks(text: str, names: list[str]) -> None:
    assert listed_names(text) == names
