"""docs/cli.md lists each command with its options; its JSON objects are compared in tests."""

from typing import Any

import click
import pytest

from maint_assets.cli.commands import cli
from maint_assets_tests.support.documented import GUIDE, differences, documented

COMMANDS = sorted(cli.commands)
CHECKED: dict[str, Any] = {"config": "a.yaml", "tables": ["t"], "valid": True}


@pytest.mark.parametrize("name", COMMANDS)
def test_each_option_of_a_command_is_in_the_guide(name: str):
    text = GUIDE.read_text(encoding="utf-8").partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    usage = text.strip().partition("`maint-assets ")[2].partition("`")[0]
    options = {
        option
        for parameter in cli.commands[name].params
        if isinstance(parameter, click.Option) and not parameter.hidden
        for option in parameter.opts
        if option.startswith("--")
    }

    assert usage.startswith(name)
    assert {word for word in usage.replace("[", " ").replace("]", " ").split() if "--" in word} == (
        options - {"--help"}
    )


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "demo"])
def test_each_command_with_json_has_its_keys_in_the_guide(name: str):
    assert len(documented(name)) > 0
    more = documented(name, paths=True).keys() - documented(name).keys()
    assert more <= {"paths", "directories"}


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        (CHECKED, []),
        (CHECKED | {"more": 1}, ["more is not documented"]),
        ({"config": "a.yaml", "tables": []}, ["valid is not there"]),
        (CHECKED | {"valid": 1}, ["valid is 1, not boolean"]),
        (CHECKED | {"tables": [1]}, ["tables is [1], not [string]"]),
    ],
)
def test_what_differs_from_the_guide_is_found(found: dict[str, Any], wrong: list[str]):
    assert differences("check", found) == wrong


def test_what_differs_inside_is_found():
    found = {"candidates": {"files": 1, "bytes": 2.5, "deep": 1}, "deleted": 3}

    wrong = set(differences("vacuum", found))

    assert wrong >= {
        "candidates.directories is not there",
        "candidates.deep is not documented",
        "candidates.bytes is 2.5, not integer",
        "deleted is 3, not object",
    }
