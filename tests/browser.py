"""Chromium as a viewer has it, driven by Playwright: what the page shows, and what it complains of."""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

from tests.records import PATIENCE_S

NAMES = ("chromium", "chromium-browser", "google-chrome")
DESKTOP: ViewportSize = {"width": 1120, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}
_BLOCKED = "addEventListener('securitypolicyviolation', e => console.error('CSP', e.violatedDirective))"


@contextmanager
def chromium() -> Iterator[Browser]:
    """The installed one: Playwright's own is not downloaded. Within it no other event loop can run."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    assert found is not None, "Chromium is missing: make browser"
    with sync_playwright() as playwright:
        # Root has no sandbox. A small /dev/shm, as of a container, would end it.
        browser = playwright.chromium.launch(
            executable_path=found, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def viewing(browser: Browser, url: str, **context: Any) -> Iterator[Page]:
    """A viewer with a window of their own. At the end no page has complained: no error, nothing blocked."""
    given = {"viewport": DESKTOP, "base_url": url, **context}
    complaints: list[str] = []
    with browser.new_context(**given) as window:
        window.set_default_timeout(PATIENCE_S * 1000)
        window.add_init_script(_BLOCKED)
        window.on("weberror", lambda one: complaints.append(str(one.error)))
        window.on("console", lambda one: complaints.append(one.text) if one.type == "error" else None)
        page = window.new_page()
        page.goto("/")
        yield page
    assert not complaints


def serious(page: Page, *paths: str) -> list[str]:
    """The serious and critical faults that axe finds on the pages: the rule, and the elements.

    Each is looked at on a wide screen in light, and on a phone in dark. Axe comes through the browser's
    debugger, which the pages' policy does not bind.
    """
    found = []
    for path in paths:
        page.set_viewport_size(DESKTOP)
        page.emulate_media(color_scheme="light")
        page.goto(path)
        found += faults(page)
        page.set_viewport_size(PHONE)
        page.emulate_media(color_scheme="dark")
        found += faults(page)
    return found


def faults(page: Page) -> list[str]:
    """The serious and critical faults of a page as it is shown now."""
    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    return [_told(page.url, one) for one in found if one["impact"] in ("serious", "critical")]


def _told(url: str, violation: Mapping[str, Any]) -> str:
    nodes = [(one["html"][:200], one["failureSummary"]) for one in violation["nodes"][:3]]
    return f"{violation['id']} at {url}: {violation['help']}: {json.dumps(nodes)}"
