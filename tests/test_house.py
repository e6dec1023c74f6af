"""The house rules of commands: help for each of them and for each option, and JSON for programs."""

from collections.abc import Iterator

import click

from planner.cli.app import root


def commands(group: click.Group, *words: str) -> Iterator[tuple[str, click.Command]]:
    """Yields every command below a group, with the words that a person types."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, f"{name} is listed and cannot be loaded"
        yield " ".join((*words, name)), command
        if isinstance(command, click.Group):
            yield from commands(command, *words, name)


COMMANDS = dict(commands(root))


def test_every_command_and_every_option_has_help() -> None:
    options = [
        (words, option)
        for words, command in COMMANDS.items()
        for option in command.params
        if isinstance(option, click.Option)
    ]
    assert [words for words, command in COMMANDS.items() if not command.help] == []
    assert [(words, option.name) for words, option in options if not option.help] == []


def test_every_command_has_json() -> None:
    without = {
        words
        for words, command in COMMANDS.items()
        if not any("--json" in parameter.opts for parameter in command.params)
    }
    groups = {words for words, command in COMMANDS.items() if type(command) is click.Group}
    # Kafka's own tools print as they do, and ending daemons prints nothing.
    assert {words for words in without - groups if not words.startswith(("lab tool", "lab spark"))} == set()
