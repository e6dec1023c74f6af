"""The commands that describe the language of topologies, and the completion of commands in a shell."""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any

import click

from planner.cli.command import Output, command
from planner.cli.output import emit, say
from planner.model.diagnostic import ExitCode
from planner.workflows.options import Argument, Option

if TYPE_CHECKING:
    from planner.config.schema.explain import KeyEntry


@command
def explain(output: Output, key: Annotated[str | None, Argument()] = None) -> int:
    """Explain a KEY of the topology: what it takes, its default, an example, and the keys below it.

    KEY is a path such as flows.topics.include, or the end of one: rpo. Names of your own may stand in it, as
    in clusters.dc1.client. Without KEY the keys at the top are listed. docs/topology.md has all of it.
    """
    from planner.config.schema.explain import find_keys, top_keys

    entries = list(top_keys()) if key is None else find_keys(key)
    if output.as_json:
        output.emit({"keys": [_tree(entry) for entry in entries]})
    elif key is not None and len(entries) == 1:
        _explain(entries[0])
    else:
        title = "The keys of a topology:" if key is None else f'Several keys are called "{key}":'
        click.echo(f"{title}\n")
        click.echo("\n".join(_table([(entry.path, entry.doc) for entry in entries])))
        example = "flows.topics.include" if key is None else entries[0].path
        click.echo(f"\nrepl explain {example} explains one of them.")
    return ExitCode.DONE


def _width() -> int:
    return min(100, shutil.get_terminal_size((100, 24)).columns)


def _explain(entry: "KeyEntry") -> None:
    from planner.config.schema.explain import same_name

    say(entry.path, bold=True)
    click.echo(
        "\n" + "\n".join(wrap(entry.doc, _width(), initial_indent="  ", subsequent_indent="  ")) + "\n"
    )
    for label, text in _facts(entry):
        click.echo("\n".join(_table([(f"{label}:", text)], width=8)))
    if entry.below:
        click.echo("\nKeys below it:\n")
        click.echo("\n".join(_table([(child.key.name, child.doc) for child in entry.below])))
    if others := same_name(entry):
        click.echo("\nAlso: " + "\n      ".join(wrap(", ".join(others), _width() - 6)))


def _facts(entry: "KeyEntry") -> Iterator[tuple[str, str]]:
    from planner.config.hints import describe
    from planner.config.schema.publish import default_text, setting_names

    key = entry.key
    yield "Takes", describe(key.shape)
    if key.required:
        yield "Default", "none: the key is required"
    elif text := default_text(key):
        yield "Default", text
    if key.example:
        yield "Example", f"{key.name}: {key.example}"
    if names := setting_names(key.shape):
        yield "Keys", ", ".join(names)


def _table(rows: Sequence[tuple[str, str]], width: int | None = None) -> Iterator[str]:
    """Yields rows of two columns; the second is wrapped."""
    width = width or max(len(name) for name, _ in rows)
    for name, text in rows:
        first, *rest = wrap(text, _width() - width - 4) or [""]
        yield f"  {name:{width}}  {first}".rstrip()
        yield from (f"{' ' * (width + 4)}{line}" for line in rest)


def _tree(entry: "KeyEntry") -> dict[str, Any]:
    from planner.config.hints import describe
    from planner.config.schema.publish import default_text

    key = entry.key
    return {
        "path": entry.path,
        "doc": entry.doc,
        "takes": describe(key.shape),
        "required": key.required,
        "default": None if key.required else default_text(key),
        "example": key.example,
        "keys": [child.key.name for child in entry.below],
    }


@command
def schema(
    markdown: Annotated[
        Path | None,
        Option(
            "--markdown",
            "Write the reference for people into a folder: docs/topology*.md.",
            path="folder",
            exists=True,
            hidden=True,
        ),
    ] = None,
    as_json: Annotated[bool, Option("--json", "No effect: the output is always JSON.")] = False,
) -> int:
    """Print the JSON Schema (draft 2020-12) of the topology's language.

    An editor completes and checks topologies with it: repl schema > topology.schema.json
    """
    from planner.config.schema import json_schema, reference

    if markdown:
        for name, page in reference().items():
            (markdown / name).write_text(page, encoding="utf-8")
    else:
        emit(json_schema())
    return ExitCode.DONE


@command
def completion(output: Output, shell: Annotated[str, Argument(choices=("bash", "zsh", "fish"))]) -> int:
    """Print the completion script of a SHELL, to be loaded at its start.

    \b
    bash:  repl completion bash > ~/.local/share/bash-completion/completions/repl
    zsh:   repl completion zsh > "${fpath[1]}/_repl"
    fish:  repl completion fish > ~/.config/fish/completions/repl.fish
    """
    from click.shell_completion import get_completion_class

    from planner.cli.app import root

    completed = get_completion_class(shell)
    assert completed is not None
    script = completed(root, {}, "repl", "_REPL_COMPLETE").source()
    if output.as_json:
        output.emit({"shell": shell, "script": script})
    else:
        click.echo(script)
    return ExitCode.DONE
