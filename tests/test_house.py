"""The house rules: every command helped and documented, only Gherkin in features."""

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from planner.cli.app import root

HERE = Path(__file__).resolve().parent.parent


def commands(group: click.Group, words: tuple[str, ...]) -> Iterator[tuple[str, click.Command]]:
    """Every command below a group, with the words a person types."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, f"{name} is listed and cannot be loaded"
        yield " ".join((*words, name)), command
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))


COMMANDS = dict(commands(root, ("repl",)))


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_has_help(words: str) -> None:
    assert COMMANDS[words].help, f"{words} has no help"


@pytest.mark.parametrize("words", COMMANDS)
def test_every_option_has_help(words: str) -> None:
    silent = [
        parameter.name
        for parameter in COMMANDS[words].params
        if isinstance(parameter, click.Option) and not parameter.help
    ]
    assert not silent, f"{words} has options without help: {silent}"


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_stands_in_the_docs(words: str) -> None:
    assert any(words in page.read_text() for page in (HERE / "docs").glob("**/*.md")), (
        f"{words} stands in no page of docs/"
    )


def test_features_holds_gherkin_only() -> None:
    others = [
        str(path.relative_to(HERE))
        for path in (HERE / "features").rglob("*")
        if path.is_file() and path.suffix != ".feature"
    ]
    assert not others, f"steps belong in tests/bdd: {others}"
