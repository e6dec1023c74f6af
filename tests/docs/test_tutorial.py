"""The commands of the tutorial, run in order on a real lab with real Spark, print what its pages show."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.tutorial_page import Block, Runner, blocks, matches
from tests.ports import free_port

DOCS = Path(__file__).parents[2] / "docs"
PAGES = (DOCS / "tutorial.md", DOCS / "tutorial-failover.md")


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    """A folder of its own and an empty home; brokers and the metrics endpoint get free ports."""
    shop, home = tmp_path / "shop", tmp_path / "home"
    shop.mkdir()
    home.mkdir()
    kept = {
        key: os.environ[key] for key in ("JAVA_HOME", "REPL_TEST_RUN", "XDG_CACHE_HOME") if key in os.environ
    }
    cache = {"XDG_CACHE_HOME": str(Path.home() / ".cache")}  # Kafka's jars are not fetched again
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**cache, **kept, "HOME": str(home), "PATH": path, "COLUMNS": "120", "LANG": "C.UTF-8"}
    given = Runner(
        shop, environment, {"repl lab up": "repl lab up --ports auto", "port: 9404": f"port: {free_port()}"}
    )
    try:
        yield given
    finally:
        given.folder = shop
        given.run(Block("repl destroy --auto-approve; repl lab down --purge; true", None, None, 0))


@pytest.mark.integration
@pytest.mark.long
@pytest.mark.spark
def test_every_command_of_the_tutorial_prints_what_the_page_shows(runner: Runner) -> None:
    for page in PAGES:
        for block in blocks(page.read_text(encoding="utf-8")):
            if block.mark == "skip":
                continue
            printed = runner.run(block)
            right = block.output is None or matches(block.output, printed)
            assert right, (
                f"{page.name}:{block.line}: it shows\n{block.output}\nand what is printed is\n{printed}"
            )


def test_blocks_are_read_in_order_with_output_and_mark() -> None:
    with_output = "a\n\n```sh\none\n```\n```text\n1\n```\n\n"
    without = "<!-- test: until -->\n```sh\ntwo\n```\nwords\n```text\nx\n```\n"

    assert blocks(with_output + without) == [
        Block("one\n", "1\n", None, 3),
        Block("two\n", None, "until", 11),
    ]


@pytest.mark.parametrize(
    ("shown", "printed", "right"),
    [
        ("a\nb", "a\nb\n", True),
        ("a\nb", "a\nc", False),
        ("a", "a\nb", False),
        ("a\n⋮\nd", "a\nb\nc\nd", True),
        ("a\n⋮\nd", "a\nd", True),
        ("a\n⋮\nd", "a\nb\nc", False),
        ("⋮\nb\n⋮", "a\nb\nc", True),
        ("⋮\nc\n⋮\nb", "b\nc\na", False),
        ("a\n⋮\na", "a", False),
        ("done (0.1 s) at 2026-11-22 10:11:02Z", "done (12.1 s) at 2027-01-02 00:00:00Z", True),
        ("dc1  127.0.0.1:19092", "dc1 127.0.0.1:31000", True),
        ("3 added", "4 added", False),
    ],
)
def test_outputs_are_compared_without_what_varies(shown: str, printed: str, right: bool) -> None:
    assert matches(shown, printed) is right
