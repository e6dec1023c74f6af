"""`repl resume`: a paused flow continues; with --accept-loss also one that stopped over lost records."""

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
@click.option(
    "--accept-loss",
    is_flag=True,
    help="Continue without lost records: partitions in data_loss, recreated or diverged.",
)
@auto_approve_option
@lock_timeout_option
@timeout_option
@json_option
def command(
    flow: str,
    path: Path,
    var_files: tuple[Path, ...],
    accept_loss: bool,
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
    from planner.cli.view import TerminalView, interaction
    from planner.workflows.flows.states import ResumeRequest, resume

    request = ResumeRequest(
        path, var_files, timeout, lock_timeout_ms=lock_timeout, flow=flow, accept_loss=accept_loss
    )
    view = TerminalView(as_json=as_json)
    return resume(request, interaction(view, auto_approve=auto_approve)).exit_code
