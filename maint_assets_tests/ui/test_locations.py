"""Both ways of starting load the configured tables: ``dagster dev`` and workspace.yaml."""

from pathlib import Path

import pytest

from maint_assets_tests.ui.webserver import ROOT, locations, serving

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("command", "with_home"),
    [
        (["dagster", "dev"], True),
        pytest.param(["dagster", "dev"], False, marks=pytest.mark.long),
        pytest.param(["dg", "dev"], True, marks=pytest.mark.long),
        pytest.param(
            ["dagster-webserver", "-w", str(ROOT / "workspace.yaml")],
            False,
            marks=pytest.mark.long,
        ),
    ],
    ids=["dagster dev", "dagster dev, no home", "dg dev", "webserver, no home"],
)
def test_the_tables_of_the_config_are_shown(
    tmp_path: Path, command: list[str], with_home: bool
) -> None:
    (tmp_path / "m.yaml").write_text("tables: [{name: orders, uri: a}, {name: events, uri: b}]")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    home = str(tmp_path / "home") if with_home else None
    env = {"MAINT_ASSETS_CONFIG": str(tmp_path / "m.yaml"), "DAGSTER_HOME": home}

    with serving(command, env, tmp_path / "log") as address:
        found = locations(address)

    assert found == {"maint_assets": {"orders", "events"}}
