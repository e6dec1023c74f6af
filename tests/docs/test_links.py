"""Every relative link of a page leads to a file that is there, and every anchor to a heading of it."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
_CODE = re.compile(r"^(```|~~~).*?^\1$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)|<img[^>]+src=\"([^\"]+)\"")


def links(page: Path) -> list[str]:
    """Returns the targets of a page's links and pictures, without those to other sites."""
    text = re.sub(r"`[^`\n]*`", "", _CODE.sub("", page.read_text(encoding="utf-8")))
    found = [one or two for one, two in _LINK.findall(text)]
    return [one for one in found if not re.match(r"[a-z]+:", one)]


def anchors(page: Path) -> set[str]:
    """Returns the anchors of a page's headings, as GitHub makes them."""
    text = _CODE.sub("", page.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).strip().lower() for title in titles)
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in links(page):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert not broken


def test_anchors_are_made_as_on_github(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One\n## `repl read CLUSTER [TOPIC]`\n### 03:00, dc1 is gone\n```\n# not a title\n```\n"
    )

    assert anchors(page) == {"one", "repl-read-cluster-topic", "0300-dc1-is-gone"}


def named_tests(page: Path) -> list[tuple[str, str]]:
    """Returns the tests that a page names, by file and function; `…` stands for the file before."""
    found: list[tuple[str, str]] = []
    for file, name in re.findall(r"`([\w/]+\.py|…)(?:::(\w+))?`", page.read_text(encoding="utf-8")):
        if file == "…" or file.rpartition("/")[2].startswith("test_"):
            found.append((found[-1][0] if file == "…" else file, name))
    return found


def test_the_tests_that_stand_behind_the_argument_are_there() -> None:
    named = named_tests(ROOT / "docs/internals/exactly-once.md")
    assert len(named) > 20
    missing = [
        (file, name)
        for file, name in named
        if not (ROOT / "tests" / file).is_file() or f"def {name}" not in (ROOT / "tests" / file).read_text()
    ]
    assert not missing
