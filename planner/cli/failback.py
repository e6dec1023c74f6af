"""`repl failback`: what the other side wrote comes home, and then the flows run as they did before."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import click

from planner.cli.editing import FlowCommandOptions, apply_edited, apply_with_states
from planner.cli.failback_edit import really_home, with_ways_home, without_others
from planner.cli.failback_view import show_left
from planner.cli.known import cluster_of
from planner.cli.options import (
    auto_approve_option,
    copied_within_option,
    json_option,
    lock_timeout_option,
    topology_path,
    var_file_option,
)
from planner.cli.promote_wait import SILENT_MS, copied, drained
from planner.cli.validate import checked
from planner.graph.failback import Failback, came_home, homecomings
from planner.model.diagnostic import ExitCode, Failure, error
from planner.model.topology import RUNNING, FlowState, Topology
from planner.plan.guards.transitions import may_follow


@click.command()
@click.argument("cluster")
@topology_path
@var_file_option
@click.option("--switch", is_flag=True, help="Everything is home: the flows out of CLUSTER run again.")
@auto_approve_option
@lock_timeout_option
@copied_within_option
@click.option("--no-wait", is_flag=True, help="Do not wait until everything is home.")
@json_option
def command(
    cluster: str,
    path: Path,
    var_files: tuple[Path, ...],
    switch: bool,
    auto_approve: bool,
    lock_timeout: int,
    timeout: int,
    no_wait: bool,
    as_json: bool,
) -> int:
    """Bring home to CLUSTER what was written at the other side since its flows were promoted or failed over.

    Writes a way home beside each such flow (NAME-back), plans, asks, applies, and waits until everything is
    home. Then stop the producers at the other side and run it again with --switch: the ways home are
    promoted, groups move, and the flows out of CLUSTER are active again. Run it again after an interruption.
    """
    topology = checked(path, var_files).topology
    cluster_of(topology, cluster)
    how = FlowCommandOptions(
        path, var_files, auto_approve, lock_timeout, SILENT_MS, as_json, wait=not no_wait
    )
    if switch:
        return _switch(topology, cluster, how, timeout / 1000)
    return _bring_home(topology, cluster, how, timeout / 1000)


def _bring_home(topology: Topology, cluster: str, how: FlowCommandOptions, seconds: float) -> int:
    coming = homecomings(topology, cluster)
    if not coming:
        raise _nothing_ended(topology, cluster)
    show_left(topology, coming, how)
    coming = without_others(topology, coming, how.timeout)
    code = apply_edited(
        with_ways_home(topology, coming),
        [one.name for one in coming],
        how,
        lambda edited: really_home(edited, coming),
    )
    if code != ExitCode.DONE:
        return code
    if how.wait:
        after = checked(how.path, how.var_files).topology
        for one in coming:
            asyncio.run(copied(after, after.flows[one.name], seconds, _not_home))
            click.echo(f"flow.{one.name}: everything is home", err=True)
    if any(one.flow.reverse_of is None for one in coming):
        other = coming[0].flow.destination_cluster
        click.echo(f"Next: stop the producers at {other}, then repl failback {cluster} --switch", err=True)
    return code


def _switch(topology: Topology, cluster: str, how: FlowCommandOptions, seconds: float) -> int:
    coming = _to_switch(topology, cluster)
    states: dict[str, FlowState] = {}
    for one in coming:
        assert one.back is not None
        if one.back.state is FlowState.ACTIVE:
            asyncio.run(drained(topology, one.back, seconds))
        states |= {one.back.name: FlowState.PROMOTED, one.flow.name: FlowState.ACTIVE}
    code = apply_with_states(states, how)
    if code == ExitCode.DONE:
        click.echo(f"Next: start the consumers at {cluster}, then the producers", err=True)
    return code


def _to_switch(topology: Topology, cluster: str) -> Sequence[Failback]:
    ended = [one for one in homecomings(topology, cluster) if one.flow.reverse_of is None]
    coming = ended or came_home(topology, cluster)
    if not coming:
        raise _nothing_ended(topology, cluster)
    for one in coming:
        if one.back is None:
            raise Failure(
                error(
                    f"nothing of flow.{one.flow.name} was brought home yet",
                    f"begin with repl failback {cluster}",
                    source=one.flow.source,
                    exit=ExitCode.REFUSED,
                )
            )
        if one.back.state is FlowState.FAILED_OVER:
            raise Failure(
                error(
                    f"flow.{one.back.name} failed over before everything was home",
                    f"once {one.back.source_cluster} is back: repl failback {one.back.source_cluster}",
                    source=one.back.source,
                    exit=ExitCode.REFUSED,
                )
            )
    return coming


def _nothing_ended(topology: Topology, cluster: str) -> Failure:
    runs = any(flow.source_cluster == cluster and flow.state in RUNNING for flow in topology.flows.values())
    why = f"no flow out of {cluster} was promoted or failed over"
    if not runs:
        return Failure(error(why, "look at repl status"))
    return Failure(error(why, may_follow(FlowState.ACTIVE), exit=ExitCode.REFUSED))


def _not_home(name: str, seconds: float, left: str) -> Failure:
    return Failure(
        error(
            f"flow.{name}: not everything is home after {seconds:.0f} s, it goes on: {left}",
            "run the same command again to wait on, or look at repl status",
        )
    )
