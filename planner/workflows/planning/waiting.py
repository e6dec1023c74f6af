"""The partitions of a plan's flows that wait for a decision, as the clusters show them now.

It reads what `repl status` reads. Flows whose clusters did not answer, or whose job never ran, are left out.
"""

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from planner.kafka import ClusterEndpoint
from planner.model.address import flow_address
from planner.model.diagnostic import Failure, warning
from planner.model.plan import Plan, PlannedFlow
from planner.model.topology import RUNNING
from planner.observe.jobs import read_specs
from planner.workflows.clusters import endpoints_of
from planner.workflows.interaction import Noticed, ProgressHandler, silent
from runtime.contract.records.status import PartitionState
from runtime.contract.spec.jobspec import JobSpec
from runtime.contract.views.status_view import PartitionWaits, StatusView

if TYPE_CHECKING:
    from runtime.audit.status.facts import StatusRequest

REPORTED_S = 10.0  # by then a job has committed a command that it received
_LOOK_S = 0.5
# on_source_delete has decided about what is gone at the source: such a mirror stays, or a plan deletes it.
_WAITS = frozenset(one for one in PartitionState if one.needs_someone) - {PartitionState.SOURCE_DELETED}


def waiting(
    plan: Plan,
    timeout_ms: int,
    wait_s: float = 0.0,
    only: Collection[str] | None = None,
    progress: ProgressHandler = silent,
) -> tuple[PartitionWaits, ...]:
    """Returns the partitions that wait, without those that continue within `wait_s`.

    `only` names the flows to read; None is every flow of the plan.
    """
    flows = [one for one in plan.flows if _asked_about(one, plan) and (only is None or one.name in only)]
    if not flows:
        return ()
    destinations = sorted({one.destination_cluster for one in flows})
    endpoints = endpoints_of(plan.connections[name] for name in destinations)
    specs = {name: _specs(endpoints[name], progress) for name in destinations}
    asked = _asked(plan, [one for one in flows if _has(specs[one.destination_cluster], one)], specs)
    return asyncio.run(_found(asked, timeout_ms / 1000, wait_s)) if asked.flows else ()


def _specs(endpoint: ClusterEndpoint, progress: ProgressHandler) -> dict[str, JobSpec]:
    """Returns the specs of the jobs that run there. A status topic that can't be read is a warning."""
    try:
        return read_specs(endpoint)
    except Failure as failure:
        unknown = f"it is not known whether a partition at {endpoint.cluster} waits for a decision"
        for one in failure.diagnostics:
            progress(Noticed(warning(f"{unknown}: {one.summary}", one.way_out)))
        return {}


def _asked_about(flow: PlannedFlow, plan: Plan) -> bool:
    """Whether the flow copies, both its clusters are reachable, and the plan's targets include it."""
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
    from planner.workflows.audit.requests import cluster_access
    from runtime.audit.status.facts import FlowStatusRequest, StatusRequest
    from runtime.contract.spec.route import Router, routes_of

    clusters = {name for one in flows for name in (one.source_cluster, one.destination_cluster)}
    told = [specs[one.destination_cluster][one.job] for one in flows]
    routes = {route.flow: route for spec in told for route in routes_of(spec)}
    return StatusRequest(
        topology=plan.topology,
        clusters=cluster_access(plan.connections[name] for name in sorted(clusters)),
        flows=[
            FlowStatusRequest(one.name, one.source_cluster, one.destination_cluster, one.job, one.state)
            for one in flows
        ],
        router=Router(routes.values()),
    )


async def _found(asked: "StatusRequest", within_s: float, wait_s: float) -> tuple[PartitionWaits, ...]:
    from runtime.audit.status.join import join
    from runtime.audit.status.reader import StatusReader

    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_s
    async with StatusReader(asked, within_s, times=False) as looker:
        while True:
            found = tuple(waits_of(join(asked, await looker.read())))
            if not found or loop.time() >= deadline:
                return found
            await asyncio.sleep(_LOOK_S)


def waits_of(status: StatusView) -> Iterator[PartitionWaits]:
    """Yields the partitions that continue only when the topology or an operator says how."""
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
