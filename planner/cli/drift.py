"""`repl drift`: what changed outside the topology since it was applied."""

from pathlib import Path

import click

from planner.cli.options import json_option, timeout_option, topology_path, var_file_option


@click.command()
@topology_path
@var_file_option
@timeout_option
@json_option
def command(path: Path, var_files: tuple[Path, ...], timeout: int, as_json: bool) -> int:
    """Show what changed outside the topology since it was applied.

    Compares what each cluster remembers as applied with what is there now. Exit code: 0 nothing,
    2 something changed, 1 an error or a cluster that could not be read.
    """
    from planner.cli.view import TerminalView, exit_code, failing_as_json, output
    from planner.workflows.plans import drift
    from planner.workflows.topology import TopologyRequest

    with failing_as_json(as_json):
        plan = drift(TopologyRequest(path, var_files, timeout), TerminalView(as_json=as_json))
        output(plan, as_json=as_json)
    return exit_code(plan)
