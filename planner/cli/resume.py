"""`repl resume`: a paused flow goes on; with --accept-loss one that stopped over lost records, too."""

from pathlib import Path

import click

from planner.cli.accept_loss import go_on_over_loss
from planner.cli.editing import FlowCommandOptions, apply_with_state, wrong_state
from planner.cli.known import flow_of
from planner.cli.options import (
    auto_approve_option,
    json_option,
    lock_timeout_option,
    timeout_option,
    topology_path,
    var_file_option,
)
from planner.cli.validate import checked
from planner.model.diagnostic import ExitCode
from planner.model.topology import RUNNING, FlowState


@click.command()
@click.argument("flow")
@topology_path
@var_file_option
@click.option(
    "--accept-loss",
    "accept",
    is_flag=True,
    help="Go on over records that are lost: partitions in data_loss, recreated or diverged.",
)
@auto_approve_option
@lock_timeout_option
@timeout_option
@json_option
def command(
    flow: str,
    path: Path,
    var_files: tuple[Path, ...],
    accept: bool,
    auto_approve: bool,
    lock_timeout: int,
    timeout: int,
    as_json: bool,
) -> int:
    """Resume FLOW at the offsets where it stopped: writes state: active into the topology, plans and applies.

    With --accept-loss, partitions that stopped because records were lost continue behind the loss. It
    holds for the partitions that are stopped now, and for no later loss. Partitions that stopped for
    another reason are named with their next step and left as they are.
    """
    known = flow_of(checked(path, var_files).topology, flow)
    if known.state not in RUNNING:
        raise wrong_state(known, "resumed")
    how = FlowCommandOptions(
        path, var_files, auto_approve, lock_timeout, timeout, as_json, must_copy=not accept
    )
    code = apply_with_state(flow, FlowState.ACTIVE, how)
    if not accept or code != ExitCode.DONE:
        return code
    go_on_over_loss(checked(path, var_files).topology, known, auto_approve=auto_approve)
    return ExitCode.DONE
