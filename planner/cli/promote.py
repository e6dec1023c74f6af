"""`repl promote`: a planned switch-over. A flow copies all there is, its groups follow, and then it ends."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli.editing import How, apply_with_state, flow_of, wrong_state
from planner.cli.options import (
    Duration,
    auto_approve_option,
    json_option,
    lock_timeout_option,
    path_option,
    var_file_option,
)
from planner.cli.validate import checked
from planner.model.diagnostic import Failure, error
from planner.model.topology import Flow, FlowState, Topology

if TYPE_CHECKING:
    from runtime.contract.seen import FlowSeen, StatusSeen

SILENT_MS = 10_000
_LOOK_S = 1.0
_STATES = (FlowState.ACTIVE, FlowState.PAUSED, FlowState.PROMOTED)


@click.command()
@click.argument("flow")
@path_option
@var_file_option
@auto_approve_option
@lock_timeout_option
@click.option(
    "--timeout",
    type=Duration(),
    default="10m",
    show_default=True,
    metavar="DURATION",
    help="How long to wait until everything is copied.",
)
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
    """Make FLOW's destination the truth: copy all there is, move the groups, then end the flow.

    Stop the producers at the source first. Waits until the lag is 0, then writes state: promoted into the
    topology, plans, asks and applies; the job itself copies what came in meanwhile before it ends the flow.
    Exit code 1 where records are left at the timeout: the flow goes on copying.
    """
    topology = checked(path, var_files).topology
    known = flow_of(topology, flow)
    if known.state not in _STATES:
        raise wrong_state(known, "promoted")
    if known.state is FlowState.ACTIVE:
        asyncio.run(drained(topology, known, timeout / 1000))
    how = How(path, var_files, auto_approve, lock_timeout, SILENT_MS, as_json)
    return apply_with_state(flow, FlowState.PROMOTED, how)


async def drained(topology: Topology, flow: Flow, seconds: float) -> None:
    """Until nothing is left to copy. A job that does not run is not waited for: the plan starts it."""
    from planner.cli.status_asking import asked_of
    from runtime.audit.status_join import join
    from runtime.audit.status_look import Looker

    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    shown = ""
    async with Looker(asked_of(topology), SILENT_MS / 1000) as looker:
        before = await looker.look()
        while True:
            now = await looker.look()
            status = join(looker.asked, now, before)
            seen = next(one for one in status.flows if one.name == flow.name)
            left = _left(seen)
            if not left or not _up(status, seen):
                return
            if left != shown:
                click.echo(f"flow.{flow.name}: {left}", err=True)
                shown = left
            if loop.time() > deadline:
                raise Failure(
                    error(
                        f"flow.{flow.name} is not promoted after {seconds:.0f} s, it goes on copying: {left}",
                        "are its producers stopped? then give it more time: --timeout",
                    )
                )
            before = now
            await asyncio.sleep(_LOOK_S)


def _up(status: "StatusSeen", flow: "FlowSeen") -> bool:
    return any(job.up for job in status.jobs if job.name == flow.job and job.destination == flow.destination)


def _left(flow: "FlowSeen") -> str:
    """What is not copied yet, the most first."""
    if not flow.source_answers or not flow.destination_answers:
        return flow.why
    lags = {one.topic: one.lag_records for one in flow.topics if one.lag_records != 0}
    unknown = sorted(topic for topic, lag in lags.items() if lag is None)
    if unknown:
        return f"the lag of {', '.join(unknown[:3])} is not known yet"
    known = sorted(((lag or 0, topic) for topic, lag in lags.items()), reverse=True)
    if not known:
        return ""
    some = ", ".join(f"{topic} {lag:,}" for lag, topic in known[:3])
    more = f", and {len(known) - 3} more topics" if len(known) > 3 else ""
    return f"{sum(lag for lag, _ in known):,} records are left to copy ({some}{more})"
