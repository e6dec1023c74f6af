"""A topology → requests to its clusters and their ledgers, and how such a request is carried out."""

import asyncio
import math
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from planner.graph.routes import file_route, opposite_of, router_of
from planner.model.diagnostic import ExitCode, Failure, error
from planner.model.topology import DEFAULT_EVERY_MS, Cluster, Flow, Topology
from planner.workflows.clusters import GIVEN_UP_S, endpoints_of
from runtime.audit.ledger import AuditFailure, ClusterAccess, UnexpectedClusterId
from runtime.audit.status.facts import FlowStatusRequest, StatusRequest
from runtime.contract.spec.route import Router

Answer = TypeVar("Answer")


def answered(question: Coroutine[Any, Any, Answer]) -> Answer:
    """Carries out a request. Failure says what to do. Another cluster than the pinned one is refused."""
    try:
        return asyncio.run(question)
    except AuditFailure as failure:
        code = ExitCode.REFUSED if isinstance(failure, UnexpectedClusterId) else ExitCode.ERROR
        raise Failure(error(str(failure), failure.hint, exit=code)) from None


def cluster_access(clusters: Iterable[Cluster], given_up: str | None = None) -> dict[str, ClusterAccess]:
    """Returns how each cluster is reached, secrets resolved. Failure names every secret that is missing.

    `given_up` is a cluster that a failover abandons: it is waited for only briefly.
    """
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


def status_request(topology: Topology, given_up: str | None = None) -> StatusRequest:
    """Returns the request for the status of every cluster that a flow touches."""
    flows = [flow for _, flow in sorted(topology.job_flows.items())]
    names = {name for flow in flows for name in (flow.source_cluster, flow.destination_cluster)}
    clusters = [topology.clusters[name] for name in sorted(names)]
    return StatusRequest(
        topology=topology.name,
        clusters=cluster_access(clusters, given_up),
        flows=[_flow_request(flow, topology) for flow in flows],
        router=_status_router(topology),
        standbys={name: job.standby for name, job in topology.jobs.items() if job.standby},
    )


def _status_router(topology: Topology) -> Router:
    """Returns a router that knows the flows into files too."""
    routes = [one.route for one in router_of(topology).routes.values()]
    return Router([*routes, *(file_route(flow) for flow in topology.file_flows.values())])


def _flow_request(flow: Flow, topology: Topology) -> FlowStatusRequest:
    opposite = opposite_of(flow, topology)
    into_files = flow.name in topology.file_flows
    return FlowStatusRequest(
        name=flow.name,
        source=flow.source_cluster,
        destination=flow.destination_cluster,
        job=flow.job,
        state=flow.state.value,
        rpo_ms=flow.rpo_ms,
        opposite=opposite.name if opposite is not None else None,
        endpoint=topology.file_flows[flow.name].destination_cluster if into_files else "",
        every_ms=(flow.every_ms or DEFAULT_EVERY_MS) if into_files else 0,
    )
