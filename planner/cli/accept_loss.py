"""`repl resume FLOW --accept-loss`: what is lost is gone over, and nothing else is."""

from collections.abc import Iterable, Sequence
from itertools import groupby

import click

from planner.apply.commands import StoppedPartitions, accept_loss
from planner.cli.app import show
from planner.cli.apply import ask
from planner.cli.endpoints import endpoints_of
from planner.graph.messages import few
from planner.model.address import flow_address
from planner.model.diagnostic import Diagnostic, ExitCode, Failure, error, warning
from planner.model.topology import Flow, Topology
from runtime.contract.records.states import next_step
from runtime.contract.records.status import PartitionState, PartitionStatus


def go_on_over_loss(topology: Topology, flow: Flow, *, auto_approve: bool) -> None:
    """It asks by itself: a flow that is active has no plan that could be approved."""
    destination = topology.clusters[flow.destination_cluster]

    def approve(lost: Sequence[PartitionStatus]) -> None:
        if not auto_approve:
            ask(
                f"flow.{flow.name} has lost records ({_names(lost)}). Do you want it to go on without them?",
                f"add --auto-approve, and it goes on without what {_names(lost)} lost",
            )

    told(accept_loss(endpoints_of([destination])[destination.name], flow.job, flow.name, approve), flow)


def told(said: StoppedPartitions, flow: Flow) -> None:
    """Raises Failure where nothing went on."""
    others = [*_others(said.others, flow)]
    if said.problem:
        raise Failure(error(f"flow.{flow.name}: {said.problem}", "look at repl status"))
    if not said.over_loss:
        nothing = error(
            f"flow.{flow.name}: no partition of it stands still over lost records", "look at repl status"
        )
        raise Failure(others or nothing)
    click.echo(f"flow.{flow.name}: goes on over what was lost: {_names(said.over_loss)}", err=True)
    show([warning(one.summary, one.way_out, address=one.address) for one in others])


def _others(stopped: tuple[PartitionStatus, ...], flow: Flow) -> list[Diagnostic]:
    """One for each state."""
    by_state = sorted(stopped, key=lambda one: one.state)
    return [_other(state, list(found), flow) for state, found in groupby(by_state, lambda one: one.state)]


def _other(state: PartitionState, stopped: list[PartitionStatus], flow: Flow) -> Diagnostic:
    first = stopped[0]
    why = f" ({_name(first)}: {first.why})" if first.why else ""
    return error(
        f"{few([_name(one) for one in stopped])}: {state} is no loss that can be accepted{why}",
        next_step(state, flow.name, first.topic, first.partition),
        address=str(flow_address(flow.name)),
        exit=ExitCode.REFUSED,
    )


def _names(lost: Iterable[PartitionStatus]) -> str:
    return few([f"{_name(one)} ({one.state})" for one in lost])


def _name(one: PartitionStatus) -> str:
    return f"{one.topic}-{one.partition}"
