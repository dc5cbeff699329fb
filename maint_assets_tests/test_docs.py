"""What the guides name exists: files, folders and tests."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = (ROOT / "maint_assets", ROOT / "maint_assets_tests", ROOT)


@pytest.mark.parametrize("guide", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_files_and_folders_that_a_guide_names_exist(guide: str) -> None:
    text = re.sub(r"```.*?```", "", (ROOT / guide).read_text(encoding="utf-8"), flags=re.DOTALL)
    named = set(re.findall(r"`([\w./]+(?:\.py|\.md|\.cfg|/))`", text))
    beside = {path.name for folder in FOLDERS[:2] for path in folder.rglob("*.py")}

    assert len(named) > 5
    missing = [
        name
        for name in sorted(named)
        if not any((folder / name).exists() for folder in FOLDERS)
        and not ("/" not in name and name in beside)
        and not any((folder / name).exists() for folder in (ROOT / "maint_assets").rglob("*/"))
    ]
    assert missing == []


@pytest.mark.parametrize("guide", sorted(path.name for path in (ROOT / "docs").glob("*.md")))
def test_tests_that_a_guide_names_exist(guide: str) -> None:
    text = (ROOT / "docs" / guide).read_text(encoding="utf-8")
    named = re.findall(r"`([\w/]+\.py)` `(test_\w+)`", text)

    missing = [
        f"{file} {name}"
        for file, name in named
        if not re.search(rf"def {name}\b", (FOLDERS[1] / file).read_text(encoding="utf-8"))
    ]
    assert missing == []
    assert len(named) > 60 or guide != "differences.md"
