"""`repl pause`: a flow stops copying, and goes on later where it stood."""

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
from planner.cli.validate import checked
from planner.model.topology import RUNNING, FlowState
from planner.workflows.flows.editing import FlowCommandOptions, apply_with_state, wrong_state
from planner.workflows.topology import flow_of


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

    Nothing else in the file changes. The job goes on with its other flows.
    """
    known = flow_of(checked(path, var_files).topology, flow)
    if known.state not in RUNNING:
        raise wrong_state(known, "paused")
    how = FlowCommandOptions(path, var_files, auto_approve, lock_timeout, timeout, as_json)
    return apply_with_state(flow, FlowState.PAUSED, how)
