"""Helpers of the UI tests: open the page of a stage, take a screenshot."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Page

from maint_assets_tests.ui.webserver import ROOT, ended, runs

ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SHOTS = Path(os.environ.get("MAINT_ASSETS_SHOTS", ROOT / "artifacts"))
INSTANCE = """
telemetry: {enabled: false}
nux: {enabled: false}
run_coordinator: {module: dagster.core.run_coordinator, class: DefaultRunCoordinator}
"""
"""Runs start at once: no daemon takes them from a queue."""

WAIT_MS = 60_000

APPROVAL = (
    "ops: {{maintenance__{table}__{stage}: "
    "{{config: {{approved_plan: {plan}, approved_by: grace@example.org}}}}}}"
)


@dataclass(frozen=True)
class Shown:
    """A webserver on a DAGSTER_HOME in which chains ran; ``digest`` is that of the newest plan."""

    address: str
    digest: str


def shoot(page: Page, name: str, *, width: int = 1400, height: int = 900) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.set_viewport_size({"width": width, "height": height})
    page.wait_for_timeout(1_500)
    page.screenshot(path=SHOTS / f"{name}.png")


def opened(
    page: Page, shown: Shown, stage: str, *, view: str = "overview", table: str = "orders"
) -> None:
    page.goto(f"{shown.address}/assets/maintenance/{table}/{stage}?view={view}")
    page.get_by_role("button", name="Materialize").first.wait_for()


def materialized(page: Page, shown: Shown, stage: str, *, table: str = "orders") -> str:
    """Click Materialize on a planning stage; returns the final state of the run."""
    before = len(runs(shown.address))
    opened(page, shown, stage, table=table)
    page.get_by_role("button", name="Materialize").first.click()
    return ended(shown.address, after=before)


def executed(page: Page, shown: Shown, stage: str, *, plan: str, table: str = "orders") -> str:
    """Approve a plan in the launchpad; returns the final state of the run."""
    before = len(runs(shown.address))
    opened(page, shown, stage, table=table)
    page.get_by_role("button", name="Materialize").first.click()
    page.locator(".CodeMirror").first.click()
    page.keyboard.press("Control+A")
    page.keyboard.insert_text(APPROVAL.format(table=table, stage=stage, plan=plan))
    page.get_by_text("No errors", exact=True).wait_for()
    page.get_by_role("button", name="Materialize").last.click()
    return ended(shown.address, after=before)


def planned_digest(page: Page) -> str:
    """The digest that the page of a plan shows for approval."""
    page.get_by_text("To approve").first.wait_for()
    return page.get_by_text("To approve").first.locator("code").last.inner_text()
