"""Writes docs/cli.md and the pages of its groups from the commands: python -m tests.docs.cli_page"""

import re
from collections.abc import Iterator
from pathlib import Path

import click

from planner.cli.app import GROUPS, root

INTRODUCTION = Path(__file__).with_name("cli_introduction.md")
DOCS = Path(__file__).parents[2] / "docs"
INDEX = "cli.md"


def pages() -> dict[str, str]:
    """Returns the pages by file name: the index, and one for each group with a section for each command."""
    context = click.Context(root, info_name="repl")
    index = [INTRODUCTION.read_text(encoding="utf-8").rstrip()]
    written = {}
    for title, commands in GROUPS.items():
        name = f"cli-{title.lower().replace(' ', '-')}.md"
        index += ["", f"**{title}**", "", "| command | does |", "| --- | --- |"]
        index += [
            f"| [`repl {word}`]({name}#repl-{word}) | {entry.help} |" for word, entry in commands.items()
        ]
        lines = [
            f"# Commands: {title.lower()}",
            "",
            f"What all commands share is in [every command]({INDEX}).",
        ]
        for word in commands:
            command = root.get_command(context, word)
            assert command is not None
            lines += _section(command, click.Context(command, context, info_name=word), "##")
        written[name] = "\n".join(lines) + "\n"
    return {INDEX: "\n".join(index) + "\n", **written}


def _section(command: click.Command, context: click.Context, level: str) -> Iterator[str]:
    usage = " ".join(command.collect_usage_pieces(context))
    yield from ("", f"{level} {context.command_path}", "")
    yield from ("```", f"{context.command_path} {usage}".rstrip(), "```", "")
    yield from _paragraphs(command.help or "")
    options = [row for one in command.get_params(context) if (row := _option(one, context)) is not None]
    if options:
        yield from ("", "| option | |", "| --- | --- |", *options)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _section(inner, click.Context(inner, context, info_name=name), f"{level}#")


def _paragraphs(text: str) -> Iterator[str]:
    """Yields the help as click shows it: lines are joined, but not those of a paragraph marked with \\b."""
    for number, paragraph in enumerate(re.split(r"\n[ \t]*\n", text.split("\f")[0].strip())):
        if number:
            yield ""
        lines = [line.strip() for line in paragraph.splitlines()]
        if lines[0] == "\b":
            yield from ("```", *(line.rstrip() for line in paragraph.splitlines()[1:]), "```")
        else:
            yield _escaped(" ".join(lines))


def _option(parameter: click.Parameter, context: click.Context) -> str | None:
    record = parameter.get_help_record(context)
    if record is None or not isinstance(parameter, click.Option) or "--help" in parameter.opts:
        return None
    names, text = record
    return f"| `{names.replace('|', chr(92) + '|')}` | {_cell(text)} |"


def _cell(text: str) -> str:
    return _escaped(" ".join(text.split())).replace("|", "\\|")


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;").replace("*", "\\*")


if __name__ == "__main__":
    for name, page in pages().items():
        (DOCS / name).write_text(page, encoding="utf-8")
