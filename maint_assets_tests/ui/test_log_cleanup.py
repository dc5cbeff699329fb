"""A log cleanup in the Dagster UI: planned, approved, executed, refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from playwright.sync_api import Page

from maint_assets.cli.launcher import Launcher
from maint_assets.cli.log_cleanup import plan_log_cleanup
from maint_assets.config import load
from maint_assets.errors import RetentionError
from maint_assets_tests.support.log_builder import LogBuilder
from maint_assets_tests.ui.browser import (
    INSTANCE,
    Shown,
    executed,
    materialized,
    opened,
    planned_digest,
    shoot,
)
from maint_assets_tests.ui.webserver import ROOT, serving

pytestmark = [pytest.mark.ui, pytest.mark.slow, pytest.mark.long]

CONFIG = """
workspace: out
tables:
  - {name: orders, uri: lake/orders}
  - {name: young, uri: lake/young}
  - {name: hasty, uri: lake/young, log_cleanup: {retention: 1 hour}}
"""


def orders(path: Path) -> LogBuilder:
    """A log of 60 days with files of every kind; its newest expired checkpoint is incomplete."""
    log = LogBuilder(path, features=["v2Checkpoint"])
    log.commits(range(60, -1, -1), checksums=True)
    log.checkpoint(5).checkpoint(10, "v2-json").checkpoint(20, "v2-parquet", parts=2)
    log.checkpoint(25, empty=True).checkpoint(50).hint()
    log.compaction(0, 4).staged(7)
    name = ".00000000000000000012.json.0f1e2d3c-0000-4000-8000-000000000000.tmp"
    return log.write(name, "{", log.ago_ms(47))


def planned(home: Path) -> None:
    """Plan each table once into a DAGSTER_HOME; the log of orders grows after its plan."""
    (home / "dagster.yaml").write_text(INSTANCE)
    (home / "maintenance.yaml").write_text(CONFIG)
    log = orders(home / "lake" / "orders")
    LogBuilder(home / "lake" / "young").commits(range(9, -1, -1), checksums=True).checkpoint(5)
    settings = load(home / "maintenance.yaml")
    with dg.DagsterInstance.from_config(str(home)) as instance:
        launcher = Launcher(settings, instance)
        plan_log_cleanup(launcher, settings.tables[0])
        log.compaction(6, 9)
        plan_log_cleanup(launcher, settings.tables[1])
        with pytest.raises(RetentionError):
            plan_log_cleanup(launcher, settings.tables[2])


@pytest.fixture(scope="module")
def shown(spark: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    home = tmp_path_factory.mktemp("home")
    planned(home)
    env = {"DAGSTER_HOME": str(home), "MAINT_ASSETS_CONFIG": str(home / "maintenance.yaml")}
    command = ["dagster-webserver", "-w", str(ROOT / "workspace.yaml")]
    with serving(command, env, home / "webserver.log") as address:
        yield Shown(address, digest="")


def test_a_log_cleanup_is_planned_approved_and_executed(page: Page, shown: Shown) -> None:
    assert materialized(page, shown, "expired_logs") == "SUCCESS"
    opened(page, shown, "expired_logs")
    plan = planned_digest(page)
    page.get_by_text("The log then begins with checkpoint 20").first.wait_for()
    page.get_by_text("versions 0 to 19 can no longer be read").first.wait_for()
    shoot(page, "expired_logs", height=1_700)
    shoot(page, "expired_logs_wide", width=2_100, height=1_700)
    opened(page, shown, "expired_logs", view="checks")
    page.get_by_text("checkpoints_sound").first.click()
    shoot(page, "checkpoints_sound")

    assert executed(page, shown, "deleted_logs", plan=plan) == "SUCCESS"
    opened(page, shown, "deleted_logs")
    page.get_by_text("are left; versions from").first.wait_for()
    page.get_by_text("grace@example.org").first.wait_for()
    shoot(page, "deleted_logs", height=1_700)
    opened(page, shown, "deleted_logs", view="checks")
    page.get_by_text("kept_versions_readable").first.click()
    assert page.get_by_text("Succeeded", exact=True).count() == 2
    shoot(page, "kept_versions_readable")


def test_numbers_of_plans_plot_over_time(page: Page, shown: Shown) -> None:
    opened(page, shown, "expired_logs")
    page.get_by_text("Plots", exact=True).first.click()

    page.locator("canvas").first.wait_for()
    shoot(page, "expired_logs_plots", height=1_700)


def test_the_reason_why_nothing_may_be_deleted_is_shown(page: Page, shown: Shown) -> None:
    opened(page, shown, "expired_logs", table="young")

    page.get_by_text("no commit is older than the cutoff").first.wait_for()
    shoot(page, "nothing_may_go", height=1_200)


def test_a_short_retention_is_refused_by_a_sentence(page: Page, shown: Shown) -> None:
    assert materialized(page, shown, "expired_logs", table="hasty") == "FAILURE"

    page.goto(f"{shown.address}/runs")
    page.locator("a[href*='/runs/']").first.click()
    page.get_by_text("below the table's log retention of 30 days").first.wait_for()
    shoot(page, "short_retention", height=1_200)
