"""docs/cli.md is what the commands say of themselves."""

from pathlib import Path

from planner.cli.app import COMMANDS
from tests.docs.cli_page import page

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: make docs"


def test_every_command_has_a_section_with_its_usage() -> None:
    text = page()

    assert all(f"\n## repl {name}\n\n```\nrepl {name} " in text for name in COMMANDS)
