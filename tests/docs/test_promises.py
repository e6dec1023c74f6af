"""Each test and scenario that docs/internals/testing.md names exists, on the level that it names."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = (ROOT / "docs/internals/testing.md").read_text(encoding="utf-8").partition("## Which test")[2]
LEVELS = {"mark.long": "long", "@long": "long", "mark.spark": "Spark", "mark.integration": "brokers"}


@cache
def marks(path: str) -> dict[str, str]:
    """Returns the marks of each test or scenario of a file, with those of the whole file."""
    own: dict[str, str] = {}
    if not (ROOT / ("tests" if path.endswith(".py") else "features") / path).exists():
        return {}
    if path.endswith(".py"):
        text = (ROOT / "tests" / path).read_text(encoding="utf-8")
        functions = ast.FunctionDef | ast.AsyncFunctionDef
        for test in (node for node in ast.parse(text).body if isinstance(node, functions)):
            own[test.name] = " ".join(ast.unparse(getattr(d, "func", d)) for d in test.decorator_list)
    else:
        feature = (ROOT / "features" / path).read_text(encoding="utf-8")
        own = {
            title: tag for tag, title in re.findall(r"((?:@\w+)?)\n *Scenario(?: Outline)?: (.*)", feature)
        }
        runs = re.compile(rf'\nscenarios\(.*("{Path(path).stem}"|{path}|"{Path(path).parent}"[,)])')
        (text,) = filter(runs.search, map(Path.read_text, (ROOT / "tests/bdd").glob("test_*.py")))
    return {name: " ".join([some, *re.findall("\npytestmark.*", text)]) for name, some in own.items()}


def test_every_promise_has_its_guards_on_their_levels() -> None:
    rows = re.findall(r"\n\| (.*) \| (`.*`) \| (.*) \|", TABLE)
    wrong = []
    for promise, guards, levels in rows:
        found = []
        for guard in re.findall(r"`([^`]+)`", guards):
            path, name = re.split("::|: ", guard, maxsplit=1)
            own = marks(path).get(name)
            level = (
                next((LEVELS[mark] for mark in LEVELS if mark in own), "pure") if own is not None else "gone"
            )
            found.append(level)
        if ", ".join(found) != levels:
            wrong.append(f"{promise}: {guards} is {', '.join(found)}")
    assert rows
    assert not wrong, "\n".join(wrong)
