"""The site of docs/: every page is on a shelf and not too long, and the built pages need no network."""

import functools
import http.server
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml
from playwright.sync_api import Browser, Page, Request, Route, expect

from planner.cli.app import root
from planner.config import load
from tests.browser import DESKTOP, PHONE, chromium, viewing
from tests.docs.site import MERMAID, prepare
from tests.records import PATIENCE_S

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FOR_USERS = sorted(DOCS.glob("*.md"))
LINES = 300
HOW_TO = (
    "active-active.md",
    "mask-personal-data.md",
    "schemas.md",
    "back-up-and-restore.md",
    "drill-in-ci.md",
    "kubernetes.md",
)
_BLOCK = re.compile(r"^```(?:sh|console)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_REPL = re.compile(r"(?:^|(?<=[|;&$] )|(?<=^\$ ))repl [a-z][^|;&#…]*")
CONTEXT = click.Context(root, info_name="repl")
_LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)")
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


def commands_of(page: Path) -> Iterator[list[str]]:
    """Yields the words of each `repl …` that a block of the page shows."""
    for block in _BLOCK.findall(page.read_text(encoding="utf-8")):
        for line in block.splitlines():
            for command in _REPL.findall(line.split("  #")[0].split(" # ")[0]):
                yield command.split()


@pytest.mark.parametrize("page", FOR_USERS, ids=lambda page: page.name)
def test_the_commands_of_a_page_exist_with_their_options(page: Path) -> None:
    unknown = []
    for words in commands_of(page):
        command: click.Command = root
        for word in words[1:]:
            inner = command.get_command(CONTEXT, word) if isinstance(command, click.Group) else None
            command = inner or command
        options = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
        used = [word.partition("=")[0] for word in words if word.startswith("--")]
        passed_on = command.context_settings.get("ignore_unknown_options", False)  # to a tool of Kafka's
        if command is root or not (passed_on or {*used} <= {*options, "--help"}):
            unknown.append(" ".join(words))
    assert unknown == []


def test_every_link_of_the_prepared_pages_names_a_file_of_the_site(tmp_path: Path) -> None:
    """`make site` stops at a dead link; only the tests that need a browser run it."""
    (tmp_path / MERMAID.name).write_text("")
    pages = tmp_path / "pages"
    prepare(pages, tmp_path / MERMAID.name)
    dead = [
        f"{page.relative_to(pages)}: {link}"
        for page in pages.rglob("*.md")
        for link in _LINK.findall(page.read_text(encoding="utf-8"))
        if not (page.parent / link).resolve().is_relative_to(pages) or not (page.parent / link).exists()
    ]
    assert dead == []
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    needed = [*settings["extra_css"], f"site/{MERMAID.name}", *pages_of(settings["nav"])]
    assert [name for name in needed if not (pages / name).exists()] == []


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """The built site on a port of its own."""
    subprocess.run(["make", "site"], cwd=ROOT, check=True, capture_output=True, text=True)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=ROOT / "build" / "site")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


def opened(page: Page) -> list[str]:
    """Returns the addresses of other hosts that the page asks for from now on; each is refused."""
    asked: list[str] = []

    def refuse(route: Route, request: Request) -> None:
        asked.append(request.url)
        route.abort()

    page.route(re.compile(r"^(?!http://127\.0\.0\.1:|data:)"), refuse)
    return asked


@pytest.mark.long
def test_the_pages_load_nothing_from_elsewhere(site: str, browser: Browser) -> None:
    with viewing(browser, site) as page:
        asked = opened(page)
        for path in ("/", "/tutorial/", "/topology-flows/", "/internals/testing/"):
            page.goto(path, wait_until="networkidle")
        page.goto("/concepts/")
        expect(page.locator("div.mermaid")).to_have_count(8, timeout=PATIENCE_S * 1000)
        assert asked == []


@pytest.mark.long
def test_the_search_finds_a_key(site: str, browser: Browser) -> None:
    with viewing(browser, site) as page:
        page.get_by_role("button", name="Search").click()
        page.get_by_role("combobox", name="Search").fill("rate_limit")
        expect(page.get_by_text("rate_limit").first).to_be_visible(timeout=PATIENCE_S * 1000)


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
