"""`repl pause`: a flow stops copying until repl resume."""

from pathlib import Path

import click

from planner.cli.options import (
    auto_approve_option,
    json_option,
    lock_timeout_option,
    timeout_option,
    topology_path,
    var_file_option,
)


@click.command()
@click.argument("flow")
@topology_path
@var_file_option
@auto_approve_option
@lock_timeout_option
@timeout_option
@json_option
def command(
    flow: str,
    path: Path,
    var_files: tuple[Path, ...],
    auto_approve: bool,
    lock_timeout: int,
    timeout: int,
    as_json: bool,
) -> int:
    """Stop copying FLOW until repl resume: writes state: paused into the topology, plans and applies.

    Nothing else in the file changes. The job continues with its other flows.
    """
    from planner.cli.view import TerminalView, interaction
    from planner.workflows.flows.states import pause
    from planner.workflows.topology import FlowRequest

    request = FlowRequest(path, var_files, timeout, lock_timeout_ms=lock_timeout, flow=flow)
    view = TerminalView(as_json=as_json)
    return pause(request, interaction(view, auto_approve=auto_approve)).exit_code
