"""docs/lints.md and the code speak of the same lints."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[4]
CODE = re.compile(r'"([a-z]+(?:-[a-z]+)+)"')


def test_each_code_stands_in_the_docs_and_each_documented_one_is_found() -> None:
    sources = [path.read_text() for path in (ROOT / "planner" / "graph").rglob("*.py")]
    codes = {code for text in sources for code in CODE.findall(text)}
    rows = re.findall(r"^\| `([a-z-]+)` \|", (ROOT / "docs" / "lints.md").read_text(), re.MULTILINE)
    assert sorted(codes) == sorted(rows)
