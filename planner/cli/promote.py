"""`repl promote`: a planned switch-over of a flow, or of some of its topics."""

from pathlib import Path

import click

from planner.cli.options import (
    PatternParam,
    auto_approve_option,
    copied_within_option,
    json_option,
    lock_timeout_option,
    topology_path,
    var_file_option,
)


@click.command()
@click.argument("flow")
@topology_path
@var_file_option
@auto_approve_option
@lock_timeout_option
@copied_within_option
@click.option(
    "--topics",
    type=PatternParam(),
    metavar="RE",
    help="Only these topics of the flow; the others keep being copied.",
)
@json_option
def command(
    flow: str,
    path: Path,
    var_files: tuple[Path, ...],
    auto_approve: bool,
    lock_timeout: int,
    timeout: int,
    topics: str | None,
    as_json: bool,
) -> int:
    """Promote FLOW: copy the rest, move its consumer groups, stop copying, and make the destination writable.

    Stop the producers at the source first. Waits until the lag is 0, then writes state: promoted into the
    topology, plans, asks and applies; the job itself copies what came in meanwhile before it ends the flow.
    Exit code 1 where records are left at the timeout: the flow goes on copying. Last it prints which topics
    the consumers of each group subscribe to at the destination. With --topics it is the topics whose whole
    names match RE at the source, and they are written under promoted.
    """
    from planner.cli.view import TerminalView, interaction
    from planner.workflows.flows.states import PromoteRequest, promote

    request = PromoteRequest(
        path,
        var_files,
        lock_timeout_ms=lock_timeout,
        flow=flow,
        topics=topics,
        copied_within_ms=timeout,
    )
    view = TerminalView(as_json=as_json)
    return promote(request, interaction(view, auto_approve=auto_approve)).applied.exit_code
