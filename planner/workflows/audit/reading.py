"""Single questions to clusters and their ledgers, of commands and of the pages of `repl ui`.

The commands are `repl read`, `clients`, `offsets`, `locate`, `doctor` and `status`. The pages also ask for
the groups of a flow and for a job's log.
"""

import asyncio
import math
from collections.abc import AsyncGenerator, Coroutine, Hashable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from planner.config import load
from planner.config.files import topology_files
from planner.graph.jobs import files_spec, launch_spec
from planner.graph.routes import file_route, opposite_of, reason_not_synced, router_of
from planner.kafka.connection_errors import WireFailure
from planner.model.diagnostic import Diagnostic, ExitCode, Failure, error, warning
from planner.model.observed import ClusterReport
from planner.model.topology import DEFAULT_EVERY_MS, DEFAULT_LOOK_MS, Cluster, Flow, GroupMode, Job, Topology
from planner.observe.doctor import examine
from planner.workflows.flows.ending import group_losses
from planner.workflows.observing import GIVEN_UP_S, check_stores, endpoints_of
from planner.workflows.topology import TopologyRequest, checked, cluster_of, flow_of, launcher_home
from runtime.audit.ledger import AuditFailure, ClusterAccess, UnexpectedClusterId
from runtime.audit.offsets.locate import LocateRequest, locate
from runtime.audit.offsets.locate_file import LocateInFilesRequest, locate_in_files
from runtime.audit.offsets.offsets import GroupOffsetsRequest, group_offsets
from runtime.audit.read.clients import read_clients, read_groups
from runtime.audit.read.record_tracer import KnownCluster
from runtime.audit.read.records import (
    ReadFromEarliest,
    ReadFromOffset,
    ReadFromTimestamp,
    ReadNewest,
    ReadRecordsRequest,
    Start,
    read_cluster,
    read_records,
)
from runtime.audit.status.facts import FlowStatusRequest, StatusRequest
from runtime.audit.status.join import join
from runtime.audit.status.reader import StatusReader, read_status
from runtime.contract.spec.route import Router
from runtime.contract.views.groups_view import GroupLoss, GroupOffsetsView, LocatedRecord
from runtime.contract.views.records_view import ClientsView, ClusterContentView, RecordsView
from runtime.contract.views.status_view import StatusView
from runtime.launch.launcher import LaunchError

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
    """Returns a router that knows the flows with files too."""
    routes = [one.route for one in router_of(topology).routes.values()]
    return Router([*routes, *(file_route(flow) for flow in topology.file_flows.values())])


def _flow_request(flow: Flow, topology: Topology) -> FlowStatusRequest:
    opposite = opposite_of(flow, topology)
    declared = topology.file_flows.get(flow.name)
    usual_ms = DEFAULT_LOOK_MS if flow.from_files else DEFAULT_EVERY_MS
    return FlowStatusRequest(
        name=flow.name,
        source=flow.source_cluster,
        destination=flow.destination_cluster,
        job=flow.job,
        state=flow.state.value,
        rpo_ms=flow.rpo_ms,
        opposite=opposite.name if opposite is not None else None,
        endpoint=declared.destination_cluster if declared is not None and not flow.from_files else "",
        source_endpoint=declared.source_cluster if declared is not None and flow.from_files else "",
        lines_topic=flow.topics.to or "",
        every_ms=(flow.every_ms or usual_ms) if declared is not None else 0,
    )


__all__ = [
    "ClusterRequest",
    "LocateRecordRequest",
    "OffsetsRequest",
    "ReadFromEarliest",
    "ReadFromOffset",
    "ReadFromTimestamp",
    "ReadNewest",
    "ReplicationStatusRequest",
    "Start",
    "clients",
    "cluster_content",
    "doctor",
    "locate_record",
    "offsets",
    "records",
    "status",
    "watch_status",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRequest(TopologyRequest):
    """A request about one cluster of a topology, and about one of its topics or all."""

    cluster: str
    topic: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsRequest(TopologyRequest):
    """A request for a group's offsets at both sides of a flow."""

    flow: str
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LocateRecordRequest(TopologyRequest):
    """A request for a record at the other side of a flow, by its offset or by its timestamp.

    The record is at the source, with `reverse` at the destination; `topic` is its name there.
    """

    flow: str
    topic: str
    partition: int
    offset: int | None = None
    timestamp_ms: int | None = None
    reverse: bool = False


def cluster_content(request: ClusterRequest) -> ClusterContentView:
    """Reads what a cluster holds, and how far each flow has copied into it."""
    return answered(read_cluster(_reading(request), request.timeout_ms / 1000))


def records(request: ClusterRequest, start: Start, limit: int) -> RecordsView:
    """Reads committed records of a topic, each with its provenance."""
    assert request.topic is not None, "records are read of one topic"
    return answered(read_records(_reading(request), request.topic, start, limit, request.timeout_ms / 1000))


def clients(request: ClusterRequest, over_ms: int = 0) -> ClientsView:
    """Reads which groups consume from each topic, and which producers write to it.

    `over_ms`: how far apart two readings are that give the rates; 0 reads once.
    """
    return answered(read_clients(_reading(request), request.topic, over_ms / 1000, request.timeout_ms / 1000))


def offsets(request: OffsetsRequest) -> GroupOffsetsView:
    """Reads a group's offsets at the source, translated by the ledger to the destination."""
    topology = load(request.path, request.var_files)
    flow = flow_of(topology, request.flow)
    source, destination = _sides(topology, flow)
    return answered(
        group_offsets(
            GroupOffsetsRequest(
                flow=flow.name,
                group=request.group,
                unsynced=reason_not_synced(flow, request.group),
                by_time=flow.groups.mode is GroupMode.TIMESTAMP,
                router=router_of(topology),
                source=source,
                destination=destination,
                within_s=request.timeout_ms / 1000,
            )
        )
    )


def locate_record(request: LocateRecordRequest) -> LocatedRecord:
    """Finds a record at the other side of a flow: at the destination, at the source, or in a file."""
    topology = load(request.path, request.var_files)
    into = topology.file_flows.get(request.flow)
    if into is not None and not into.from_files:
        return _located_in_files(topology, into, request)
    flow = flow_of(topology, request.flow)
    source, destination = _sides(topology, flow)
    return answered(
        locate(
            LocateRequest(
                flow=flow.name,
                topic=request.topic,
                partition=request.partition,
                offset=request.offset,
                timestamp_ms=request.timestamp_ms,
                reverse=request.reverse,
                source=source,
                destination=destination,
                within_s=request.timeout_ms / 1000,
            )
        )
    )


def _located_in_files(topology: Topology, flow: Flow, request: LocateRecordRequest) -> LocatedRecord:
    if request.reverse:
        what = f"the records in the files of {flow.destination_cluster} have their offsets at the source"
        raise Failure(error(what, "leave --reverse out", source=flow.source))
    check_stores(topology)
    files = files_spec(flow, topology, Path.cwd())
    assert files is not None, "the flow goes into files"
    source = topology.clusters[flow.source_cluster]
    return answered(
        locate_in_files(
            LocateInFilesRequest(
                flow=flow.name,
                topic=request.topic,
                partition=request.partition,
                offset=request.offset,
                timestamp_ms=request.timestamp_ms,
                source=cluster_access([source])[source.name],
                files=files,
                within_s=request.timeout_ms / 1000,
            )
        )
    )


def _sides(topology: Topology, flow: Flow) -> tuple[ClusterAccess, ClusterAccess]:
    """Returns the access to a flow's source and to its destination."""
    names = (flow.source_cluster, flow.destination_cluster)
    access = cluster_access(topology.clusters[name] for name in names)
    return access[names[0]], access[names[1]]


def _reading(request: ClusterRequest) -> ReadRecordsRequest:
    topology = load(request.path, request.var_files)
    cluster = cluster_of(topology, request.cluster)
    pinned = {one.id: one.name for one in topology.clusters.values() if one.id is not None}
    others = dict(_others(topology, cluster.name))
    access = cluster_access([cluster])[cluster.name]
    return ReadRecordsRequest(access, _flows_into(topology, cluster.name), pinned, others)


def _flows_into(topology: Topology, name: str) -> dict[str, str]:
    """Returns the flows into a cluster, each with the name of its source."""
    return {
        flow.name: flow.source_cluster for flow in topology.flows.values() if flow.destination_cluster == name
    }


def _others(topology: Topology, name: str) -> Iterator[tuple[str, KnownCluster]]:
    """Yields the clusters that records may have come through.

    One whose secrets are not available here is left out: it only adds to the answer.
    """
    for other in topology.clusters.values():
        if other.name != name:
            with suppress(Failure):
                yield (
                    other.name,
                    KnownCluster(cluster_access([other])[other.name], _flows_into(topology, other.name)),
                )


def doctor(request: ClusterRequest) -> ClusterReport:
    """Examines a cluster; nothing is changed. Raises Failure where no broker answers."""
    topology = load(request.path, request.var_files)
    known = cluster_of(topology, request.cluster)
    try:
        return examine(endpoints_of([known])[request.cluster], request.timeout_ms / 1000, topology)
    except WireFailure as failure:
        raise Failure(error(f"{request.cluster}: {failure.why}", failure.way_out)) from None


_LATER_WITHIN_S = 3.0  # a cluster that is down must not delay what the others show


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationStatusRequest(TopologyRequest):
    """A request for the status of every flow. `over_ms`: how long rates are measured; 0 measures none."""

    over_ms: int = 1_000


def status(request: ReplicationStatusRequest) -> StatusView:
    """Reads the status once. It is right also when a job is dead or a datacenter is down."""
    topology = load(request.path, request.var_files)
    over_s, within_s = request.over_ms / 1000, request.timeout_ms / 1000
    return asyncio.run(read_status(status_request(topology), over_s, within_s, retention=True))


async def watch_status(request: TopologyRequest, every_ms: int) -> AsyncGenerator[StatusView, None]:
    """Yields the status again and again, each with the rates since the one before."""
    asked = status_request(load(request.path, request.var_files))
    within_s = request.timeout_ms / 1000
    async with StatusReader(asked, within_s, retention=True, traffic=True) as reader:
        before = await reader.read()
        reader.within_s = min(within_s, _LATER_WITHIN_S)
        while True:
            await asyncio.sleep(every_ms / 1000)
            now = await reader.read()
            yield join(asked, now, before)
            before = now


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowGroupsRequest(TopologyRequest):
    """A request for where each group of a flow would continue at its destination."""

    flow: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLogRequest(TopologyRequest):
    """A request for the last lines of a job's log, where this machine has it."""

    job: str
    lines: int = 100


@dataclass(frozen=True, slots=True)
class JobLog:
    """The last lines of a job's log. `where` the job runs, and `log`, its file, are empty where not known."""

    lines: tuple[str, ...]
    where: str = ""
    log: str = ""


@dataclass(frozen=True, slots=True)
class GroupNames:
    """The groups of each cluster, with Kafka's state of each. The diagnostics name the unread clusters."""

    states: dict[str, dict[str, str]]
    diagnostics: tuple[Diagnostic, ...] = ()


def watched_topology(request: TopologyRequest) -> Topology:
    """Returns the topology whose status can be followed. Failure holds its errors, and missing secrets."""
    topology = checked(request.path, request.var_files).topology
    cluster_access(topology.clusters.values())
    return topology


def topology_stamp(request: TopologyRequest) -> Hashable:
    """Returns a value that changes when a file of the topology does."""
    found = []
    try:
        files = topology_files(request.path, request.var_files)
    except Failure as failure:
        return str(failure)
    for file in (*files, *request.var_files):
        try:
            seen = file.stat()
        except OSError:
            found.append((str(file), 0, 0))
        else:
            found.append((str(file), seen.st_mtime_ns, seen.st_size))
    return tuple(found)


def flow_groups(request: FlowGroupsRequest) -> tuple[GroupLoss, ...]:
    """Returns where each group that the flow syncs would continue at its destination. It changes nothing."""
    topology = checked(request.path, request.var_files).topology
    flow = flow_of(topology, request.flow)
    return tuple(group_losses(topology, [flow], request.timeout_ms / 1000))


def group_names(request: TopologyRequest) -> GroupNames:
    """Lists the groups of every cluster. One that does not answer is left out and named."""
    topology = checked(request.path, request.var_files).topology
    states: dict[str, dict[str, str]] = {}
    missing: list[Diagnostic] = []
    for name, access in cluster_access(topology.clusters.values()).items():
        try:
            states[name] = answered(read_groups(access, request.timeout_ms / 1000))
        except Failure as failure:
            missing += [warning(one.summary, one.way_out) for one in failure.diagnostics]
    return GroupNames(states, tuple(missing))


def job_log(request: JobLogRequest) -> JobLog:
    """Returns the last lines of a job's log. Failure where the launcher has none to show from here."""
    from runtime.launch.choose import launcher_for  # the other questions need no launcher

    topology = checked(request.path, request.var_files).topology
    job = topology.jobs.get(request.job, Job(request.job))
    try:
        launcher = launcher_for(launch_spec(job), launcher_home(request.path) / "jobs")
        handle = launcher.find(request.job).handle
        lines = launcher.tail(request.job, request.lines)
    except LaunchError as wrong:
        raise Failure(error(wrong.what, wrong.way_out)) from None
    return JobLog(tuple(lines), handle.where if handle else "", handle.log if handle else "")
