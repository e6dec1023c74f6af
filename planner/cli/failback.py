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
from planner.graph.failback import Failback, pending_failbacks, resumed_failbacks
from planner.model.diagnostic import ExitCode, Failure, error
from planner.model.topology import RUNNING, FlowState, Topology
from planner.plan.guards.transitions import may_follow


@click.command()
@click.argument("cluster")
@topology_path
@var_file_option
@click.option(
    "--switch", is_flag=True, help="All records are copied back: make the original flows active again."
)
@auto_approve_option
@lock_timeout_option
@copied_within_option
@click.option("--no-wait", is_flag=True, help="Do not wait until all records are copied back.")
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
    """Copy back to CLUSTER what was written at the destinations since its flows were promoted or failed over.

    Adds a reverse flow (NAME-back) for each such flow to the topology, plans, asks, applies, and waits
    until all records are copied back. Then stop the producers at the destinations and run it again with
    --switch: the reverse flows are promoted, consumer groups move to CLUSTER, and the original flows are
    active again. Run it again after an interruption.
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
    coming = pending_failbacks(topology, cluster)
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
            click.echo(f"flow.{one.name}: all records are copied back", err=True)
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
        from planner.cli.rehearsing import show_subscriptions

        backs = [one.back for one in coming if one.back is not None]
        show_subscriptions(topology, backs, how.timeout, as_json=how.as_json)
        click.echo(f"Next: start the consumers at {cluster}, then the producers", err=True)
    return code


def _to_switch(topology: Topology, cluster: str) -> Sequence[Failback]:
    ended = [one for one in pending_failbacks(topology, cluster) if one.flow.reverse_of is None]
    coming = ended or resumed_failbacks(topology, cluster)
    if not coming:
        raise _nothing_ended(topology, cluster)
    for one in coming:
        if one.back is None:
            raise Failure(
                error(
                    f"nothing of flow.{one.flow.name} was copied back yet",
                    f"begin with repl failback {cluster}",
                    source=one.flow.source,
                    exit=ExitCode.REFUSED,
                )
            )
        if one.back.state is FlowState.FAILED_OVER:
            raise Failure(
                error(
                    f"flow.{one.back.name} failed over before all records were copied back",
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
            f"flow.{name}: records are left to copy back after {seconds:.0f} s, it goes on: {left}",
            "run the same command again to wait on, or look at repl status",
        )
    )
