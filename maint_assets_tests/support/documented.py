"""The JSON objects of the commands as docs/cli.md documents them."""

import re
from pathlib import Path
from typing import Any

GUIDE = Path(__file__).parents[2] / "docs" / "cli.md"
_ROW = re.compile(r"\| `(?P<key>[^`]+)` \| (?P<type>[^|]+) \|")
_SIMPLE: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "null": (type(None),),
}


def documented(command: str, *, paths: bool = False) -> dict[str, str]:
    """The type of each key in a command's object; ``paths`` includes those of ``--paths``."""
    text = GUIDE.read_text(encoding="utf-8").partition(f"\n## {command}\n")[2].partition("\n## ")[0]
    every, _, more = text.partition("With `--paths` as well:")
    rows = _ROW.finditer(every + (more if paths else ""))
    return {row["key"]: row["type"].strip() for row in rows}


def differences(command: str, found: dict[str, Any], *, paths: bool = False) -> list[str]:
    """The differences between the object that a command printed and the guide."""
    return list(_of_object(found, documented(command, paths=paths), ""))


def _of_object(found: dict[str, Any], types: dict[str, str], prefix: str) -> list[str]:
    names = {re.split(r"\.|\[\]\.", key)[0] for key in types}
    wrong = [f"{prefix}{name} is not documented" for name in found if name not in names]
    wrong += [f"{prefix}{name} is not there" for name in sorted(names - found.keys())]
    for name in names & found.keys():
        inner = {
            key[len(name) :].removeprefix("[]").removeprefix("."): kind
            for key, kind in types.items()
            if key.startswith((f"{name}.", f"{name}[]."))
        }
        kind = types.get(name, "[object]" if f"{name}[]." in "".join(types) else "object")
        value = found[name]
        if not _is_of(value, kind):
            wrong.append(f"{prefix}{name} is {value!r}, not {kind}")
        for each in value if isinstance(value, list) else [value]:
            if inner and isinstance(each, dict):
                wrong += _of_object(each, inner, f"{prefix}{name}.")
    return wrong


def _is_of(value: object, kind: str) -> bool:
    if " or " in kind:
        return any(_is_of(value, each) for each in kind.split(" or "))
    if kind.startswith("["):
        return isinstance(value, list) and all(_is_of(each, kind[1:-1]) for each in value)
    if kind.startswith("{"):
        inner = kind[1:-1].partition(": ")[2]
        return isinstance(value, dict) and all(_is_of(each, inner) for each in value.values())
    return isinstance(value, _SIMPLE[kind]) and (kind == "boolean" or not isinstance(value, bool))
