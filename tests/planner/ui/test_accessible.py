"""What axe finds on the pages of each state: on a wide screen in light, on a phone in dark."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from planner.ui.access import AccessPolicy
from runtime.contract.results.status import ReplicationStatus
from tests.browser import chromium, serious, viewing
from tests.planner.render import test_status as scenes
from tests.planner.ui.serving import fresh, serving
from tests.runtime.audit.given import FLOW, JOB, TOPIC

pytestmark = pytest.mark.long

SCENES = {
    "copying": fresh(scenes.copying()),
    "needs someone": fresh(scenes.needs_someone()),
    "waits for a core": fresh(scenes.waits_for_a_core()),
    "source down": fresh(scenes.source_down()),
    "destination down": fresh(scenes.destination_down()),
    "never ran": fresh(scenes.never_ran()),
    "an old reading": scenes.copying(),
}
PAGES = ("/", f"/flow?name={FLOW}", f"/topic?flow={FLOW}&topic={TOPIC}", f"/job?name={JOB}")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as made:
        yield made


@pytest.mark.parametrize("status", SCENES.values(), ids=SCENES)
def test_pages_have_no_serious_fault(status: ReplicationStatus, browser: Browser) -> None:
    with (
        serving(fresh(scenes.caught_up()), status) as visited,
        viewing(browser, f"http://127.0.0.1:{visited.port}") as page,
    ):
        assert serious(page, *PAGES) == []


def test_the_first_pages_have_no_serious_fault(browser: Browser) -> None:
    guarded = AccessPolicy("t0ken-of-sixteen-and-more")
    with serving(policy=guarded) as visited, viewing(browser, f"http://127.0.0.1:{visited.port}") as page:
        login = serious(page, "/login")
        page.get_by_label("Token").fill("t0ken-of-sixteen-and-more")
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="The clusters are being read").wait_for()
        waiting = serious(page, "/")

    assert (login, waiting) == ([], [])
