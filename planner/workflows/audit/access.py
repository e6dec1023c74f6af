"""How clusters are reached for requests, and how a failed request becomes a diagnostic."""

from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from planner.config.secrets import resolved_endpoints
from planner.graph.routes import router_of
from planner.model.diagnostic import ExitCode, Failure, error
from planner.model.topology import Cluster, Flow, Topology
from runtime.audit.ledger import AuditFailure, FlowAccess, UnexpectedClusterId
from runtime.contract.client.endpoint import ClusterEndpoint

GIVEN_UP_S = 3.0  # how long a cluster is waited for that a failover abandons
Answer = TypeVar("Answer")


def endpoints_of(
    clusters: Iterable[Cluster], trusted: Sequence[Path] | None = None, given_up: str | None = None
) -> dict[str, ClusterEndpoint]:
    """Returns how each cluster is reached. Failure names every secret that is missing, of all clusters.

    `trusted` is for clusters that a plan file names: see `resolve`. `given_up` is a cluster that a failover
    abandons: it is waited for only briefly.
    """
    endpoints = resolved_endpoints(clusters, trusted)
    if given_up in endpoints:
        endpoints[given_up] = replace(endpoints[given_up], at_most_s=GIVEN_UP_S)
    return endpoints


def cluster_endpoint(cluster: Cluster) -> ClusterEndpoint:
    """Returns how a cluster is reached. Failure names every secret that is missing."""
    return endpoints_of([cluster])[cluster.name]


async def answered(question: Awaitable[Answer]) -> Answer:
    """Returns an audit's answer. Failure says what to do. Another cluster than the pinned one is refused."""
    try:
        return await question
    except AuditFailure as failure:
        code = ExitCode.REFUSED if isinstance(failure, UnexpectedClusterId) else ExitCode.ERROR
        raise Failure(error(str(failure), failure.hint, exit=code)) from None


def flow_accesses(
    topology: Topology,
    flows: Sequence[Flow],
    within_s: float,
    *,
    source_may_be_gone: bool = False,
    every_group: bool = False,
) -> list[FlowAccess]:
    """Returns how both sides of each flow are reached, and which groups it syncs, or `every_group`.

    Failure names every secret that is missing, of all clusters. Groups in which flows commit their own
    progress are left out: no consumer belongs to them.
    """
    names = {name for flow in flows for name in flow.ends}
    endpoints = endpoints_of(topology.clusters[name] for name in sorted(names))
    router = router_of(topology)
    own_groups = topology.own_groups

    def access_of(flow: Flow) -> FlowAccess:
        source = endpoints[flow.source_cluster]
        if source_may_be_gone:
            source = replace(source, at_most_s=GIVEN_UP_S)
        selector = flow.groups.selector
        return FlowAccess(
            flow=flow.name,
            router=router,
            source=source,
            destination=endpoints[flow.destination_cluster],
            within_s=within_s,
            by_time=flow.groups.mode == "timestamp",
            selects=lambda group: group not in own_groups and (every_group or selector.answer(group).taken),
        )

    return [access_of(flow) for flow in flows]
