"""`repl init`: writes a commented topology to start with."""

from pathlib import Path

import click

from planner.cli.options import json_option
from planner.cli.output import emit
from planner.model.diagnostic import ExitCode

FORMAT_VERSION = 1


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), default=Path(), metavar="[DIR]")
@json_option
def command(folder: Path, as_json: bool) -> int:
    """Write a commented starter topology into DIR (default: the current folder); overwrites nothing."""
    from planner.workflows.topology import write_starter

    file = write_starter(folder)
    if as_json:
        emit({"format_version": FORMAT_VERSION, "files": [str(file)]})
        return ExitCode.DONE
    where = "" if folder == Path() else f" {folder}"
    click.echo(f"Wrote {file}. Next: edit it, then repl validate{where} and repl plan{where}.")
    return ExitCode.DONE
