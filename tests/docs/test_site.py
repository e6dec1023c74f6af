"""The site of docs/: every page is on a shelf and not too long, and the built pages need no network."""

import functools
import http.server
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from playwright.sync_api import Browser, Page, expect

from planner.config import load
from tests.browser import DESKTOP, PHONE, chromium, viewing

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FOR_USERS = sorted(DOCS.glob("*.md"))
LINES = 300
HOW_TO = (
    "active-active.md",
    "mask-personal-data.md",
    "back-up-and-restore.md",
    "drill-in-ci.md",
    "kubernetes.md",
)
_YAML = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CLUSTERS = "apiVersion: repl/v1\nname: page\nclusters: {{{}}}\n"


def pages_of(entry: object) -> Iterator[str]:
    """Yields the files that the navigation names, from the top."""
    match entry:
        case str():
            yield entry
        case dict():
            for inner in entry.values():
                yield from pages_of(inner)
        case list():
            for inner in entry:
                yield from pages_of(inner)


def test_every_page_stands_on_one_shelf() -> None:
    shelves = list(pages_of(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]))
    pages = [page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")]
    assert sorted(shelves) == sorted([*pages, "CONTRIBUTING.md"])


@pytest.mark.parametrize("page", FOR_USERS, ids=lambda page: page.name)
def test_a_page_can_be_read_in_one_sitting(page: Path) -> None:
    assert len(page.read_text(encoding="utf-8").splitlines()) <= LINES


def fragments() -> Iterator[tuple[str, str]]:
    for name in HOW_TO:
        for block in _YAML.findall((DOCS / name).read_text(encoding="utf-8")):
            yield name, block


@pytest.mark.parametrize(("name", "block"), list(fragments()))
def test_what_a_how_to_shows_is_a_topology(name: str, block: str, tmp_path: Path) -> None:
    named = {"dc1", "dc2", *re.findall(r"(?:from|to): (\w+)", block)} - {"archive"}
    text = _CLUSTERS.format(
        ", ".join(f"{one}: {{bootstrap: 127.0.0.1:{i + 9092}}}" for i, one in enumerate(named))
    )
    if "endpoints:" not in block and "flows:" not in block:
        block += "flows:\n  - {name: a, from: dc1, to: dc2, topics: {include: orders}}\n"
    (tmp_path / "topology.yaml").write_text(text + block, encoding="utf-8")
    load(tmp_path / "topology.yaml")


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """The built site on a port of its own."""
    subprocess.run(["make", "site"], cwd=ROOT, check=True, capture_output=True, text=True)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=ROOT / "build" / "site")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


def opened(page: Page) -> list[str]:
    """Returns the addresses of other hosts that the page asks for from now on; each is refused."""
    asked: list[str] = []

    def refuse(route: object, request: object) -> None:
        asked.append(request.url)  # type: ignore[attr-defined]
        route.abort()  # type: ignore[attr-defined]

    page.route(re.compile(r"^(?!http://127\.0\.0\.1:|data:)"), refuse)
    return asked


@pytest.mark.long
def test_the_pages_load_nothing_from_elsewhere(site: str, browser: Browser) -> None:
    with viewing(browser, site) as page:
        asked = opened(page)
        for path in ("/", "/tutorial/", "/topology-flows/", "/internals/testing/"):
            page.goto(path, wait_until="networkidle")
        page.goto("/concepts/")
        expect(page.locator("div.mermaid")).to_have_count(8)
        assert asked == []


@pytest.mark.long
def test_the_search_finds_a_key(site: str, browser: Browser) -> None:
    with viewing(browser, site) as page:
        page.get_by_role("button", name="Search").click()
        page.get_by_role("dialog").get_by_role("textbox").fill("rate_limit")
        expect(page.get_by_role("link", name=re.compile("rate_limit")).first).to_be_visible()


@pytest.mark.long
@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_no_page_is_wider_than_the_screen(site: str, browser: Browser, size: dict[str, int]) -> None:
    with viewing(browser, site, viewport=size) as page:
        wide = []
        for path in ["/", *(f"/{one.stem}/" for one in FOR_USERS if one.stem != "README")]:
            page.goto(path)
            if page.evaluate("document.documentElement.scrollWidth") > size["width"]:
                wide.append(path)
        assert wide == []


@pytest.mark.long
def test_markdown_is_read_as_on_github(site: str) -> None:
    """A list that begins without an empty line before it would be one paragraph on the site."""
    unread = [
        f"{page.parent.name}: {paragraph[:60]}"
        for page in (ROOT / "build" / "site").rglob("index.html")
        for paragraph in re.findall(r"<p>(.*?)</p>", page.read_text(encoding="utf-8"), re.DOTALL)
        if re.search(r"^(?:[-*] |\d+\. |\||```)", paragraph, re.MULTILINE)
    ]
    assert unread == []
