"""A topology → what status asks of its clusters."""

import math
from collections.abc import Iterable

from planner.cli.endpoints import GIVEN_UP_S, endpoints_of
from planner.graph.routes import opposite_of, router_of
from planner.model.topology import Cluster, Flow, Topology
from runtime.audit.ledger import ClusterAccess
from runtime.audit.status.facts import FlowStatusRequest, StatusRequest


def reaches_of(clusters: Iterable[Cluster], given_up: str | None = None) -> dict[str, ClusterAccess]:
    """How to reach them, secrets resolved. Failure names every one that can't be had."""
    listed = list(clusters)
    endpoints = endpoints_of(listed)
    return {
        one.name: ClusterAccess(
            one.name,
            one.bootstrap,
            endpoints[one.name].settings,
            id=one.id,
            at_most_s=GIVEN_UP_S if one.name == given_up else math.inf,
            token_command=endpoints[one.name].token_command,
        )
        for one in listed
    }


def asked_of(topology: Topology, given_up: str | None = None) -> StatusRequest:
    """Of the clusters that a flow touches; one that is given up is not waited for long."""
    flows = [topology.flows[name] for name in sorted(topology.flows)]
    names = {name for flow in flows for name in (flow.source_cluster, flow.destination_cluster)}
    clusters = [topology.clusters[name] for name in sorted(names)]
    return StatusRequest(
        topology=topology.name,
        clusters=reaches_of(clusters, given_up),
        flows=[_asked(flow, topology) for flow in flows],
        router=router_of(topology),
    )


def _asked(flow: Flow, topology: Topology) -> FlowStatusRequest:
    opposite = opposite_of(flow, topology)
    return FlowStatusRequest(
        name=flow.name,
        source=flow.source_cluster,
        destination=flow.destination_cluster,
        job=flow.job,
        state=flow.state.value,
        rpo_ms=flow.rpo_ms,
        opposite=opposite.name if opposite is not None else None,
    )
