"""`repl drift`: what changed outside the topology since it was applied."""

from pathlib import Path

import click

from planner.cli.options import json_option, path_argument, timeout_option, var_file_option
from planner.cli.pipeline import drift_plan, see
from planner.cli.plan import exit_code, print_or_json
from planner.cli.validate import checked


@click.command()
@path_argument
@var_file_option
@timeout_option
@json_option
def command(path: Path, var_files: tuple[Path, ...], timeout: int, as_json: bool) -> int:
    """Show what somebody changed at the clusters since the topology was applied. Exit 2 if anything was."""
    plan = drift_plan(see(checked(path, var_files).topology, timeout))
    print_or_json(plan, as_json=as_json)
    return exit_code(plan, detailed=True)
