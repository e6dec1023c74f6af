"""The pages in a real browser, on real clusters with a real job. The tests share them."""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import datetime
from functools import partial
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

import pytest
from confluent_kafka import Consumer, Producer
from playwright.sync_api import Browser, Locator, Page, expect

from tests.bdd.consuming import eat, place
from tests.bdd.running import Town, eventually, two_datacenters
from tests.browser import PHONE, chromium, serious, viewing
from tests.planner.ui.serving import LivePage
from tests.records import PATIENCE_S, wait_for

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.long]

View = Callable[..., AbstractContextManager[Page]]
LONG_MS = 240_000
FLOW, TOPIC = "dc1-to-dc2", "orders"
# Kafka takes any id of groups and clients. Names of topics have letters, digits and . _ - alone.
HOSTILE = "<script>window.ran=1</script><img src=x onerror=window.ran=1>\"'&amp;"
LOAD, RECORD = 300, b"x" * 10_000
PAGES = {
    "/": "Fail over dc1",
    f"/flow?name={FLOW}": "Topics",
    f"/topic?flow={FLOW}&topic={TOPIC}": "Partition",
    f"/groups?flow={FLOW}": HOSTILE,
    f"/group?{urlencode({'name': HOSTILE})}": HOSTILE,
    "/job?name=dc2": "The last lines of",
    "/plan": "No drift. The clusters are as they were applied.",
    "/plan/document": "No changes.",
    "/history": "done",
    f"/search?{urlencode({'q': '<script>'})}": HOSTILE,
}
ANSWERS = ("/groups", "/group", "/plan", "/history", "/search")


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    """A flow that copies 200 kB a second, so that a load of 3 MB takes a while."""
    flow = {
        "name": FLOW,
        "topics": {"include": [TOPIC]},
        "rpo": "60s",
        "rate_limit": "200KB/s",
        "groups": {"every": "300ms"},
    }
    with two_datacenters(tmp_path_factory.mktemp("town"), "shop", flow) as town:
        town.topology.topic(TOPIC, partitions=2)
        town.apply()
        yield town


@pytest.fixture(scope="module")
def group(town: Town) -> Iterator[Consumer]:
    """A member of a group, whose ids hold HTML: it has read 20 records, and dc2 knows its offsets."""
    settings = {"group.id": HOSTILE, "client.id": HOSTILE, "enable.auto.commit": "false"}
    town.write(TOPIC, "dc1", 20)
    consumer = Consumer({**town.client("dc1"), **settings, "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    eat(consumer, 20)
    eventually(lambda: len(place(town, HOSTILE, "dc2", f"dc1.{TOPIC}")) == 2, about="the offsets at dc2")
    yield consumer
    consumer.close()


@pytest.fixture(scope="module")
def url(town: Town, group: Consumer) -> Iterator[str]:
    served = LivePage(town.topology.file, town.home)
    yield served.url
    assert served.close() == 130


@pytest.fixture(scope="module")
def browser(town: Town, url: str) -> Iterator[Browser]:
    with chromium() as made:
        yield made


@pytest.fixture
def view(browser: Browser, url: str) -> View:
    return lambda **window: viewing(browser, url, **window)


def shows(part: Locator, words: str) -> None:
    """Waits until a part of the page shows these words."""
    wait_for(
        lambda: words in part.inner_text(), LONG_MS / 1000, about=lambda: f"{words!r}: {part.inner_text()!r}"
    )


def lag(page: Page) -> int:
    """The lag of the flow, on the overview or on its own page."""
    overview = page.locator("#flows td[data-label=Lag]")
    shown = overview if overview.count() else page.locator("#facts dt:text-is('Lag') + dd")
    found = re.sub(r"[^0-9]", "", shown.first.inner_text())
    return int(found or 0)


def caught_up(page: Page) -> bool:
    return lag(page) == 0


def behind(page: Page) -> bool:
    return lag(page) > LOAD / 3


def test_each_page_shows_its_part_and_names_stay_text(view: View) -> None:
    with view() as page:
        for path, words in PAGES.items():
            page.goto(path)
            shows(page.locator("body"), words)
            assert page.evaluate("window.ran") is None, path
            assert not page.locator("img").count(), path


def test_the_lag_grows_and_shrinks_live(view: View, town: Town) -> None:
    """On two open pages, which are never loaded again."""
    with view() as overview, view() as flow:
        flow.goto(f"/flow?name={FLOW}")
        pages = (overview, flow)
        for page in pages:
            page.evaluate("window.loaded = 'once'")
            wait_for(partial(caught_up, page))
        expect(overview.locator(".verdict.good h2").first).to_have_text(
            "Fail over dc1: safe, nothing would be lost", timeout=LONG_MS
        )
        producer = Producer(town.client("dc1"))
        for number in range(LOAD):
            producer.produce(TOPIC, RECORD, partition=number % 2)
        assert producer.flush(PATIENCE_S) == 0

        for page in pages:
            wait_for(partial(behind, page))
        expect(overview.locator(".verdict h2").first).to_contain_text("would lose")
        for page in pages:
            wait_for(partial(caught_up, page), 240)
        charts = flow.get_by_role(
            "img", name=re.compile(r"^Lag over the last hour: now 0 records, highest \d{3}")
        )
        expect(charts).to_be_visible(timeout=LONG_MS)
        assert [page.evaluate("window.loaded") for page in pages] == ["once", "once"]


def test_a_phone_needs_no_sideways_scroll(view: View) -> None:
    with view(viewport=PHONE, is_mobile=True, has_touch=True) as page:
        widths = {}
        for path in PAGES:
            page.goto(path)
            widths[path] = page.evaluate("document.documentElement.scrollWidth")

    assert widths == dict.fromkeys(PAGES, PHONE["width"])


def test_pages_of_the_clusters_answers_have_no_serious_fault(view: View) -> None:
    """test_accessible.py looks at those that show the status alone."""
    with view() as page:
        assert serious(page, *(one for one in PAGES if one.startswith(ANSWERS))) == []


def test_it_is_used_by_keyboard(view: View) -> None:
    focused = "document.activeElement.outerHTML.match(/^<[^>]*>/)[0]"
    with view() as page:
        page.keyboard.press("Tab")
        assert 'href="#main"' in page.evaluate(focused)
        links = [one.get_attribute("href") for one in page.locator("a:visible").all()]
        reached = [page.evaluate("document.activeElement.getAttribute('href')")]
        while reached.count("#main") == 1 and len(reached) < 3 * len(links) + 10:
            page.keyboard.press("Tab")
            reached.append(page.evaluate("document.activeElement.getAttribute('href')"))
        assert set(links) <= set(reached)

        page.keyboard.press("/")
        assert 'type="search"' in page.evaluate(focused)
        page.keyboard.type(TOPIC)
        page.keyboard.press("Enter")
        page.wait_for_url(f"**/search?q={TOPIC}")
        expect(page.get_by_role("link", name=TOPIC, exact=True).first).to_be_visible(timeout=LONG_MS)


def test_times_are_in_the_viewers_zone(view: View) -> None:
    zone = "Asia/Tokyo"
    with view(timezone_id=zone, locale="en-GB") as page:
        page.goto("/history")
        expect(page.locator("#zone")).to_have_text(f"Times are in {zone}.")
        began = page.locator("td[data-label=Began] time").first
        began.wait_for()
        at_s = int(began.get_attribute("data-at") or 0) / 1000
        assert datetime.fromtimestamp(at_s, ZoneInfo(zone)).strftime("%H:%M:%S") in began.inner_text()


def test_a_plan_is_computed_again_by_its_button(view: View) -> None:
    with view() as page:
        page.goto("/plan")
        expect(page.locator("#plans .summary")).to_have_count(2, timeout=LONG_MS)
        page.get_by_role("button", name="Compute again").click()
        expect(page).to_have_url(re.compile("/plan$"))
        expect(page.locator("#plans .summary")).to_have_count(2, timeout=LONG_MS)
