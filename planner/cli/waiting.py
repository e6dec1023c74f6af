"""Which partitions wait for a decision: those of a plan's flows, as the clusters show them now.

It asks what `repl status` asks. Flows whose clusters did not answer, or whose job never ran, are left out.
"""

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from planner.cli.app import show
from planner.cli.endpoints import endpoints_of
from planner.kafka import ClusterEndpoint
from planner.model.address import flow_address
from planner.model.diagnostic import Failure, warning
from planner.model.plan import Plan, PlannedFlow
from planner.model.topology import RUNNING
from planner.observe.jobs import read_specs
from runtime.contract.records.status import PartitionState
from runtime.contract.spec.jobspec import JobSpec
from runtime.contract.views.status_view import PartitionWaits, StatusView

if TYPE_CHECKING:
    from runtime.audit.status.facts import StatusRequest

REPORTED_S = 10.0  # a job that was told how it goes on has committed that by then
_LOOK_S = 0.5
# on_source_delete has decided about what is gone at the source: such a mirror stays, or a plan deletes it.
_WAITS = frozenset(one for one in PartitionState if one.needs_someone) - {PartitionState.SOURCE_DELETED}


def waiting(
    plan: Plan, timeout_ms: int, patience_s: float = 0.0, only: Collection[str] | None = None
) -> tuple[PartitionWaits, ...]:
    """Returns the partitions that wait; those that go on within the patience are not among them.

    `only`: the names of the flows that it is about; None is every flow of the plan.
    """
    flows = [one for one in plan.flows if _asked_about(one, plan) and (only is None or one.name in only)]
    if not flows:
        return ()
    destinations = sorted({one.destination_cluster for one in flows})
    endpoints = endpoints_of(plan.connections[name] for name in destinations)
    specs = {name: _specs(endpoints[name]) for name in destinations}
    asked = _asked(plan, [one for one in flows if _has(specs[one.destination_cluster], one)], specs)
    return asyncio.run(_found(asked, timeout_ms / 1000, patience_s)) if asked.flows else ()


def _specs(endpoint: ClusterEndpoint) -> dict[str, JobSpec]:
    """Returns what the jobs there run by. A status topic that can't be read is a warning."""
    try:
        return read_specs(endpoint)
    except Failure as failure:
        unknown = f"it is not known whether a partition at {endpoint.cluster} waits for a decision"
        show([warning(f"{unknown}: {one.summary}", one.way_out) for one in failure.diagnostics])
        return {}


def _asked_about(flow: PlannedFlow, plan: Plan) -> bool:
    """Of a plan that was cut to targets, the flows that are in it."""
    reachable = {flow.source_cluster, flow.destination_cluster} <= plan.connections.keys()
    address = flow_address(flow.name)
    chosen = not plan.targets or any(one.address == address for one in plan.changes)
    return flow.state in RUNNING and reachable and chosen


def _has(specs: Mapping[str, JobSpec], flow: PlannedFlow) -> bool:
    spec = specs.get(flow.job)
    return spec is not None and any(one.name == flow.name for one in spec.flows)


def _asked(
    plan: Plan, flows: Sequence[PlannedFlow], specs: Mapping[str, Mapping[str, JobSpec]]
) -> "StatusRequest":
    from planner.cli.status_asking import reaches_of
    from runtime.audit.status.facts import FlowStatusRequest, StatusRequest
    from runtime.contract.spec.route import Router
    from runtime.contract.spec.spec_routes import routes_of

    clusters = {name for one in flows for name in (one.source_cluster, one.destination_cluster)}
    told = [specs[one.destination_cluster][one.job] for one in flows]
    routes = {route.flow: route for spec in told for route in routes_of(spec)}
    return StatusRequest(
        topology=plan.topology,
        clusters=reaches_of(plan.connections[name] for name in sorted(clusters)),
        flows=[
            FlowStatusRequest(one.name, one.source_cluster, one.destination_cluster, one.job, one.state)
            for one in flows
        ],
        router=Router(routes.values()),
    )


async def _found(asked: "StatusRequest", within_s: float, patience_s: float) -> tuple[PartitionWaits, ...]:
    from runtime.audit.status.join import join
    from runtime.audit.status.reader import StatusReader

    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience_s
    async with StatusReader(asked, within_s, times=False) as looker:
        while True:
            found = tuple(waits_of(join(asked, await looker.read())))
            if not found or loop.time() >= deadline:
                return found
            await asyncio.sleep(_LOOK_S)


def waits_of(status: StatusView) -> Iterator[PartitionWaits]:
    """Yields the partitions that go on only when the topology or an operator says how."""
    for flow in status.flows:
        for one in flow.partitions:
            if one.state in _WAITS:
                yield PartitionWaits(
                    flow=flow.name,
                    topic=one.topic,
                    partition=one.partition,
                    state=one.state,
                    why=one.why,
                    next=one.next,
                )
