"""A browser page on the server that is the fixture ``shown`` of a test module."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, sync_playwright

from maint_assets_tests.ui.browser import ARGS, WAIT_MS, Shown


@pytest.fixture(scope="module")
def page(chromium: str, shown: Shown) -> Iterator[Page]:  # after the chain: else two event loops
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGS)
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.set_default_timeout(WAIT_MS)
        yield page
        browser.close()
