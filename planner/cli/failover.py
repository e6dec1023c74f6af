"""`repl failover`: a cluster is given up; its flows end with what arrived, and groups go on over there."""

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli.editing import FlowCommandOptions, apply_with_states
from planner.cli.known import cluster_of
from planner.cli.options import (
    auto_approve_option,
    json_option,
    lock_timeout_option,
    timeout_option,
    topology_path,
    var_file_option,
)
from planner.cli.validate import checked
from planner.model.diagnostic import ExitCode, Failure, error
from planner.model.topology import Flow, FlowState, Topology
from planner.plan.guards.transitions import may_follow

if TYPE_CHECKING:
    from runtime.contract.views.loss_view import FlowLoss
    from runtime.contract.views.status_view import StatusView

LOOK_S = 3.5  # a job that died together with the cluster misses some beats meanwhile: the plan sees it dead
_LEFT = (FlowState.ACTIVE, FlowState.PAUSED, FlowState.FAILED_OVER)


@click.command()
@click.argument("cluster")
@topology_path
@var_file_option
@click.option("--rehearse", is_flag=True, help="Only tell what it would cost and take; touch nothing.")
@auto_approve_option
@lock_timeout_option
@timeout_option
@json_option
def command(
    cluster: str,
    path: Path,
    var_files: tuple[Path, ...],
    rehearse: bool,
    auto_approve: bool,
    lock_timeout: int,
    timeout: int,
    as_json: bool,
) -> int:
    """Fail over from the lost CLUSTER: end its flows, and move their consumer groups to the destinations.

    Shows what is lost and the plan, asks, and applies. Writes state: failed_over into the topology.
    CLUSTER need not answer, and is waited for 3 s at most. Run it again after an interruption: it
    finishes the rest. Consumers at a destination need isolation.level=read_committed.
    """
    topology = checked(path, var_files).topology
    flows = leaving(topology, cluster)
    status = show_losses(topology, flows, timeout, as_json=as_json)
    if rehearse:
        from planner.cli.rehearsing import show_groups

        return show_groups(topology, flows, status, timeout, as_json=as_json)
    how = FlowCommandOptions(path, var_files, auto_approve, lock_timeout, timeout, as_json, given_up=cluster)
    code = apply_with_states({flow.name: FlowState.FAILED_OVER for flow in flows}, how)
    if code == ExitCode.DONE:
        from planner.cli.rehearsing import show_subscriptions

        show_lost(topology, flows, status, how)
        show_subscriptions(topology, flows, timeout, as_json=as_json)
    return code


def leaving(topology: Topology, cluster: str) -> list[Flow]:
    """The flows out of a cluster that a failover ends, or has ended."""
    cluster_of(topology, cluster)
    out = [flow for _, flow in sorted(topology.flows.items()) if flow.source_cluster == cluster]
    flows = [flow for flow in out if flow.state in _LEFT]
    if not flows:
        raise _none(cluster, promoted=bool(out))
    return flows


def _none(cluster: str, *, promoted: bool) -> Failure:
    cannot = f"no flow out of {cluster} can fail over"
    if not promoted:
        return Failure(error(f"{cannot}: there are none", "look at repl status"))
    may = may_follow(FlowState.PROMOTED)
    return Failure(error(f"{cannot}: they are promoted already", may, exit=ExitCode.REFUSED))


def show_losses(topology: Topology, flows: list[Flow], timeout: int, *, as_json: bool) -> "StatusView":
    """Before: as far as the source was heard of, with what is still on its way counted as lost."""
    from runtime.contract.views.loss_view import loss_of

    given_up, names = flows[0].source_cluster, _new(flows)
    status = _looked(topology, given_up, timeout, LOOK_S)
    losses = [loss_of(flow, status.at_ms) for flow in status.flows if flow.name in names]
    _say(f"What the failover of {given_up} costs:", "loss", losses, status.at_ms, as_json)
    return status


def show_lost(topology: Topology, flows: list[Flow], before: "StatusView", how: FlowCommandOptions) -> None:
    """Afterwards: what had arrived when the last transaction had ended."""
    from runtime.contract.views.loss_view import loss_of, with_ends_of

    after = _looked(topology, flows[0].source_cluster, how.timeout, 0)
    names, older = _new(flows), {flow.name: flow for flow in before.flows}
    lost = [
        loss_of(with_ends_of(flow, older[flow.name], before.at_ms), before.at_ms)
        for flow in after.flows
        if flow.name in names
    ]
    _say("\nWhat did not arrive:", "lost", lost, after.at_ms, how.as_json)


def _new(flows: list[Flow]) -> set[str]:
    """What failed over before is no news."""
    return {flow.name for flow in flows if flow.state is not FlowState.FAILED_OVER}


def _looked(topology: Topology, given_up: str, timeout: int, over_s: float) -> "StatusView":
    from planner.cli.status_asking import asked_of
    from runtime.audit.status.reader import read_status

    return asyncio.run(read_status(asked_of(topology, given_up), over_s, timeout / 1000))


def _say(title: str, event: str, losses: "list[FlowLoss]", at_ms: int, as_json: bool) -> None:
    import msgspec

    from planner.cli.printing import print_lines
    from planner.render.reports.loss import flow_lines

    if as_json:
        for one in losses:
            told = {"version": 1, "event": event, **msgspec.to_builtins(one)}
            click.echo(json.dumps(told, ensure_ascii=False))
    elif losses:
        click.echo(title)
        print_lines(lambda _: flow_lines(losses, at_ms))
        click.echo()
