"""Prepares build/site-pages, from which `make site` builds the site: python -m tests.docs.site

Pages link to files outside of docs/ by relative paths, as GitHub needs it. The site gets a copy of each under
the same path. CONTRIBUTING.md is a page of the site.
"""

import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = ROOT / "build" / "site-pages"
MERMAID = ROOT / ".venv" / "site" / "package" / "dist" / "mermaid.min.js"
_OUTSIDE = re.compile(r"(?<=\]\()(?:\.\./)+[^)#\s]+")


def prepare(pages: Path = PAGES, mermaid: Path = MERMAID) -> None:
    """Copies docs/, what its pages link to, and the script that draws their diagrams."""
    shutil.rmtree(pages, ignore_errors=True)
    shutil.copytree(DOCS, pages, ignore=shutil.ignore_patterns("*.html"))
    for page in [*pages.rglob("*.md")]:
        original = DOCS / page.relative_to(pages)
        page.write_text(_with_links_inside(original, pages), encoding="utf-8")
    (pages / "CONTRIBUTING.md").write_text(_without_docs(ROOT / "CONTRIBUTING.md"), encoding="utf-8")
    shutil.copy(mermaid, pages / "site")


def _without_docs(page: Path) -> str:
    """Returns the text of a page outside of docs/, with its links into docs/ as the site needs them."""
    return page.read_text(encoding="utf-8").replace("](docs/", "](")


def _with_links_inside(page: Path, pages: Path) -> str:
    """Returns the text of a page; files outside of docs/ that it links to are copied."""

    def inside(link: re.Match[str]) -> str:
        target = (page.parent / link[0]).resolve()
        if target.is_relative_to(DOCS):
            return link[0]
        name = target.relative_to(ROOT)
        (pages / name).parent.mkdir(parents=True, exist_ok=True)
        if target.suffix == ".md":
            (pages / name).write_text(_without_docs(target), encoding="utf-8")
        else:
            shutil.copy(target, pages / name)
        return "../" * len(page.parent.relative_to(DOCS).parts) + name.as_posix()

    return _OUTSIDE.sub(inside, page.read_text(encoding="utf-8"))


if __name__ == "__main__":
    prepare()
