"""docs/cli.md and the pages of its groups are what the commands say of themselves."""

import pytest

from planner.cli.app import COMMANDS
from tests.docs.cli_page import DOCS, pages


@pytest.mark.parametrize("name", pages())
def test_the_page_is_current(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == pages()[name], "run: make docs"


def test_every_command_has_a_section_with_its_usage() -> None:
    text = "".join(pages().values())

    assert all(f"\n## repl {name}\n\n```\nrepl {name} " in text for name in COMMANDS)
