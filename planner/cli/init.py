"""`repl init`: writes a commented topology to start with."""

from pathlib import Path

import click

from planner.cli.options import json_option
from planner.cli.output import emit
from planner.model.diagnostic import ExitCode

FORMAT_VERSION = 1


@click.command()
@click.argument("place", type=click.Path(path_type=Path), default=Path(), metavar="[PATH]")
@json_option
def command(place: Path, as_json: bool) -> int:
    """Write a commented starter topology; it overwrites nothing.

    PATH is a folder (default: the current one), or a file whose name ends with .yaml or .yml.
    """
    from planner.workflows.topology import write_starter

    file = write_starter(place)
    if as_json:
        emit({"format_version": FORMAT_VERSION, "files": [str(file)]})
        return ExitCode.DONE
    where = "" if place == Path() else f" {place}"
    click.echo(f"Wrote {file}. Next: edit it, then repl validate{where} and repl plan{where}.")
    return ExitCode.DONE
