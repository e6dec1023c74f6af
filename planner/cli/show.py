"""`repl show`: a saved plan again, as it was when it was made."""

from pathlib import Path

import click

from planner.cli.options import json_option
from planner.cli.plan import print_or_json
from planner.model.diagnostic import ExitCode
from planner.store import planfile


@click.command()
@click.argument("plan_file", type=click.Path(path_type=Path), metavar="PLANFILE")
@json_option
def command(plan_file: Path, as_json: bool) -> int:
    """Show a plan that repl plan --out saved. No cluster is asked."""
    print_or_json(planfile.read(plan_file), as_json=as_json)
    return ExitCode.DONE
