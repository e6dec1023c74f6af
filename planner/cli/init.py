"""`repl init`: a commented topology to begin with."""

from pathlib import Path

import click

from planner.cli import as_json as json_output
from planner.cli.options import Command, json_option
from planner.model.diagnostic import ExitCode, Failure, error

NAME = "topology.yaml"
FORMAT_VERSION = 1


def folder_argument(command: Command) -> Command:
    return click.argument("folder", type=click.Path(path_type=Path), default=Path(), metavar="[DIR]")(command)


@click.command()
@folder_argument
@json_option
def command(folder: Path, as_json: bool) -> int:
    """Write a commented starter topology into DIR (default: the current folder); overwrites nothing."""
    from planner.config.files import is_topology_file
    from planner.config.schema import starter

    file = folder / NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
        others = sorted(one for one in folder.iterdir() if is_topology_file(one))
        if others and not file.exists():
            what = f"{others[0]} is there already, and the YAML files of a folder are one topology"
            raise Failure(error(what, "name another folder: repl init DIR"))
        with file.open("x", encoding="utf-8") as opened:
            opened.write(starter())
    except FileExistsError:
        what = f"{file} is there already" if file.exists() else f"{folder} is no folder"
        raise Failure(error(what, "name another folder: repl init DIR")) from None
    except OSError as wrong:
        raise Failure(error(f"{file}: {wrong.strerror}", "name a folder that can be written to")) from None
    if as_json:
        json_output.emit({"format_version": FORMAT_VERSION, "files": [str(file)]})
        return ExitCode.DONE
    where = "" if folder == Path() else f" {folder}"
    click.echo(f"Wrote {file}. Next: edit it, then repl validate{where} and repl plan{where}.")
    return ExitCode.DONE
