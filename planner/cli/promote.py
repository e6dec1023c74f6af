"""`repl promote`: a planned switch-over. A flow copies all there is, its groups follow, and then it ends."""

import asyncio
from pathlib import Path

import click

from planner.cli.editing import FlowCommandOptions, apply_with_state, wrong_state
from planner.cli.known import flow_of
from planner.cli.options import (
    auto_approve_option,
    copied_within_option,
    json_option,
    lock_timeout_option,
    topology_path,
    var_file_option,
)
from planner.cli.promote_topics import promote_topics
from planner.cli.promote_wait import SILENT_MS, drained
from planner.cli.validate import checked
from planner.cli.verify import PatternParam
from planner.model.diagnostic import ExitCode
from planner.model.topology import FlowState

_STATES = (FlowState.ACTIVE, FlowState.PAUSED, FlowState.PROMOTED)


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
    help="Only these topics of the flow; the others go on being copied.",
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
    topology = checked(path, var_files).topology
    known = flow_of(topology, flow)
    how = FlowCommandOptions(path, var_files, auto_approve, lock_timeout, SILENT_MS, as_json)
    if topics is not None:
        return promote_topics(topology, known, topics, timeout / 1000, how)
    if known.state not in _STATES:
        raise wrong_state(known, "promoted")
    if known.state is FlowState.ACTIVE:
        asyncio.run(drained(topology, known, timeout / 1000))
    code = apply_with_state(flow, FlowState.PROMOTED, how)
    if code == ExitCode.DONE:
        from planner.cli.rehearsing import show_subscriptions

        show_subscriptions(topology, [known], how.timeout, as_json=as_json)
    return code
