"""`repl fmt`: one order and one style for the files of a topology."""

from pathlib import Path

import click

from planner.cli.options import json_option, topology_path
from planner.cli.output import emit
from planner.model.diagnostic import ExitCode

FORMAT_VERSION = 1


@click.command()
@topology_path
@click.option("--check", is_flag=True, help="Write nothing; exit 2 where a file is not formatted.")
@json_option
def command(path: Path, check: bool, as_json: bool) -> int:
    """Rewrite the files of a topology in one order and style, and print the names of those that changed.

    Keys come in the order of docs/topology.md, indents are two spaces, a blank line stands around each
    section, and what is in braces and longer than 110 columns goes to lines of its own. Your own names and
    the items of lists stay in your order. A comment moves with its key. What the topology says never
    changes: each result is read again and compared before it is written.
    """
    from planner.workflows.topology import format_files

    changed = format_files(path, write=not check)
    if as_json:
        emit({"format_version": FORMAT_VERSION, "check": check, "files": [str(file) for file in changed]})
    else:
        for file in changed:
            click.echo(file)
    if check and changed:
        if not as_json:
            where = "" if path == Path() else f" {path}"
            click.echo(f"Not formatted. Run: repl fmt{where}", err=True)
        return ExitCode.DIFFERENT
    return ExitCode.DONE
