"""A topology → what status asks of its clusters."""

from collections.abc import Iterable

from planner.cli.endpoints import endpoints_of
from planner.expand.routes import opposite_of, router_of
from planner.model.topology import Cluster, Flow, Topology
from runtime.audit.ledger import Reach
from runtime.audit.status_facts import FlowAsked, StatusAsked


def reaches_of(clusters: Iterable[Cluster]) -> dict[str, Reach]:
    """How to reach them, secrets resolved. Failure names every one that can't be had."""
    return {
        name: Reach(name, endpoint.bootstrap, endpoint.settings)
        for name, endpoint in endpoints_of(clusters).items()
    }


def asked_of(topology: Topology) -> StatusAsked:
    """Of the clusters that a flow touches."""
    flows = [topology.flows[name] for name in sorted(topology.flows)]
    names = {name for flow in flows for name in (flow.source_cluster, flow.destination_cluster)}
    clusters = [topology.clusters[name] for name in sorted(names)]
    return StatusAsked(
        topology=topology.name,
        clusters=reaches_of(clusters),
        flows=[_asked(flow, topology) for flow in flows],
        router=router_of(topology),
        pins={cluster.name: cluster.id for cluster in clusters if cluster.id is not None},
    )


def _asked(flow: Flow, topology: Topology) -> FlowAsked:
    opposite = opposite_of(flow, topology)
    return FlowAsked(
        name=flow.name,
        source=flow.source_cluster,
        destination=flow.destination_cluster,
        job=flow.job,
        state=flow.state.value,
        rpo_ms=flow.rpo_ms,
        opposite=opposite.name if opposite is not None else None,
    )
