"""Topology → what the live clusters hold, and the partitions of a plan's flows that wait for a decision.

Clusters of a topology or of a plan are reached with their secrets resolved. Names are read first, then the
details that expanding asks for. Waiting partitions are read as `repl status` reads them. Flows whose clusters
did not answer, or whose job never ran, are left out.
"""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import structs

from planner.diff.record import JOBS
from planner.graph.expansion import read_requests
from planner.graph.routes import opposite_of
from planner.kafka import ClusterClient, ClusterEndpoint
from planner.model.address import flow_address
from planner.model.diagnostic import Diagnostic, Failure, error, warning
from planner.model.observed import (
    Observed,
    ObservedCluster,
    ObservedTopic,
    Request,
    Unreachable,
)
from planner.model.plan import Plan
from planner.model.topology import Cluster, Flow, Topology
from planner.observe.cluster import ReadOptions
from planner.observe.jobs import read_specs
from planner.observe.observer import DEFAULT_OPTIONS, Wanted, named_topics, names_only
from planner.observe.observer import observe as observe_clusters
from planner.state.internal_topics import read_registry
from planner.workflows.audit.access import endpoints_of
from planner.workflows.interaction import ProgressHandler, silent, under_way
from planner.workflows.preflight import schema_registries
from runtime.contract.records.job_status import NEEDS_DECISION, PartitionState
from runtime.contract.results.status import PartitionWaits, ReplicationStatus
from runtime.contract.spec.jobspec import JobSpec


async def read_clusters(
    clusters: Mapping[str, Cluster],
    timeout_s: float,
    wanted: Wanted = names_only,
    progress: ProgressHandler = silent,
    options: ReadOptions = DEFAULT_OPTIONS,
    named: Mapping[str, Collection[str]] | None = None,
    given_up: str | None = None,
) -> Observed:
    """Reads the names of these clusters, and then the details that are `wanted`.

    Failure: a secret is missing, or a cluster is not the pinned one.
    """
    endpoints = endpoints_of(clusters.values(), given_up=given_up)
    reading = structs.replace(options, timeout_s=timeout_s, progress=progress)
    with under_way(progress, clusters, "connecting"):
        return await observe_clusters(clusters, endpoints, wanted, reading, named)


def answering(observed: Observed, *names: str) -> list[ObservedCluster]:
    """Returns these clusters, or all. Failure names each that could not be read."""
    clusters = [observed.clusters[name] for name in names or observed.clusters]
    if silent := [cluster for cluster in clusters if isinstance(cluster, Unreachable)]:
        raise Failure(
            [
                error(
                    f"{cluster.name} can't be read: {cluster.why}",
                    cluster.hint or f"bring {cluster.name} back",
                )
                for cluster in silent
            ]
        )
    return [cluster for cluster in clusters if isinstance(cluster, ObservedCluster)]


async def observe(
    topology: Topology,
    timeout_s: float,
    given_up: str | None = None,
    progress: ProgressHandler = silent,
) -> Observed:
    """Reads every cluster. One that is silent for `timeout_s` is Unreachable, `given_up` after 3 s.

    Only what a plan reads is returned: of topics that it is not about, their names. Names alone matter where
    a pattern selects nothing, and where a rule covers other topics. Failure as of `read_clusters`.
    """
    request: Request = {}

    def wanted(names: Observed) -> Request:
        nonlocal request
        request = read_requests(topology, names)
        return request

    flows: dict[str, set[str]] = defaultdict(set)
    for flow in topology.job_flows.values():
        flows[flow.destination_cluster].add(flow.name)
    options = ReadOptions(
        read_registry=read_registry,
        jobs_of=topology.name,
        flows=flows,
        registries=schema_registries(topology, Path.cwd()),
        failing_back=[name for name, flow in topology.flows.items() if opposite_of(flow, topology)],
    )
    observed = await read_clusters(
        topology.clusters, timeout_s, wanted, progress, options, named_topics(topology), given_up
    )
    clusters = dict(observed.clusters)
    for name, cluster in observed.live.items():
        if name in request:
            topics = {
                topic: live if topic in request[name].configs else ObservedTopic(topic, "", ())
                for topic, live in cluster.topics.items()
            }
            clusters[name] = structs.replace(cluster, topics=topics)
    return Observed(clusters, observed.diagnostics)


REPORTED_S = 10.0  # by then a job has committed a command that it received
_LOOK_S = 0.5
# on_source_delete has decided about what is gone at the source: such a mirror stays, or a plan deletes it.
_WAITS = NEEDS_DECISION - {PartitionState.SOURCE_DELETED}


async def read_waiting_partitions(
    plan: Plan,
    timeout_s: float,
    wait_s: float = 0.0,
    only: Collection[str] | None = None,
    progress: ProgressHandler = silent,
    *,
    observed: bool = False,
) -> tuple[PartitionWaits, ...]:
    """Returns the partitions that wait, without those that continue within `wait_s`.

    `only` names the flows to read; None is every flow of the plan. The specs of the jobs at the destinations
    are read, or those that the plan was made from are used with `observed`. Specs that can't be read, or
    could not be, are a warning.
    """
    chosen = {change.address for change in plan.changes} if plan.inputs.targets else None
    flows = [
        flow
        for flow in plan.job_flows
        if flow.runs
        and set(flow.ends) <= plan.connections.keys()
        and (chosen is None or flow_address(flow.name) in chosen)
        and (only is None or flow.name in only)
    ]
    if not flows:
        return ()
    destinations = sorted({flow.destination_cluster for flow in flows})
    if observed:
        clusters = plan.inputs.observed.clusters
        jobs = {name: _observed_specs(clusters.get(name), progress) for name in destinations}
    else:
        endpoints = endpoints_of(plan.connections[name] for name in destinations)
        jobs = {name: await _specs(endpoints[name], timeout_s, progress) for name in destinations}
    running = [
        (spec, flow)
        for flow in flows
        if (spec := jobs.get(flow.destination_cluster, {}).get(flow.job)) is not None
        and any(copied.name == flow.name for copied in spec.flows)
    ]
    return await _waits(plan, running, timeout_s, wait_s) if running else ()


async def _specs(
    endpoint: ClusterEndpoint, timeout_s: float, progress: ProgressHandler
) -> dict[str, JobSpec]:
    """Returns the specs of the jobs that run there."""
    try:
        async with ClusterClient(endpoint, timeout_s) as client:
            return await read_specs(client)
    except Failure as failure:
        for diagnostic in failure.diagnostics:
            progress(_unknown(endpoint.cluster, diagnostic.summary, diagnostic.hint))
        return {}


def _observed_specs(
    cluster: ObservedCluster | Unreachable | None, progress: ProgressHandler
) -> dict[str, JobSpec]:
    """Returns the specs of the jobs that ran there when the cluster was observed."""
    if not isinstance(cluster, ObservedCluster):
        return {}
    if (why := cluster.unreadable.get(JOBS)) is not None:
        progress(_unknown(cluster.name, why, "correct that, and plan again"))
    return {job.name: job.spec for job in cluster.jobs if job.spec is not None}


def _unknown(cluster: str, why: str, hint: str) -> Diagnostic:
    return warning(f"it is not known whether a partition at {cluster} waits for a decision: {why}", hint)


async def _waits(
    plan: Plan, running: Sequence[tuple[JobSpec, Flow]], within_s: float, wait_s: float
) -> tuple[PartitionWaits, ...]:
    """Returns the partitions that wait of these flows, each with the spec of its job."""
    from runtime.audit.status.facts import StatusRequest
    from runtime.audit.status.reader import StatusReader
    from runtime.contract.spec.route import Router, routes_of

    clusters = {name for _, flow in running for name in flow.ends}
    request = StatusRequest(
        topology=plan.topology.name,
        clusters=endpoints_of(plan.connections[name] for name in sorted(clusters)),
        flows=[structs.replace(job.flow(flow.name), state=flow.state) for job, flow in running],
        router=Router({route.name: route for job, _ in running for route in routes_of(job)}.values()),
        jobs={flow.name: flow.job for _, flow in running},
    )
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_s
    async with StatusReader(request, within_s, times=False) as reader:
        while True:
            waits = tuple(waits_of(await reader.status()))
            if not waits or loop.time() >= deadline:
                return waits
            await asyncio.sleep(_LOOK_S)


def waits_of(status: ReplicationStatus) -> Iterator[PartitionWaits]:
    """Yields the partitions that continue only when the topology or an operator says how."""
    for flow in status.flows:
        for partition in flow.partitions:
            if partition.state in _WAITS:
                yield PartitionWaits(
                    flow=flow.name,
                    topic=partition.topic,
                    partition=partition.partition,
                    state=partition.state,
                    why=partition.why,
                    next=partition.next,
                )
