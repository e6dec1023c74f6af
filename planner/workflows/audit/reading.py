"""Single questions to clusters and their ledgers, of commands and of the pages of `repl ui`.

The commands are `repl read`, `clients`, `offsets`, `locate` and `doctor`. The pages also ask for the groups
of a flow and for a job's log.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from planner.config import load
from planner.graph.jobs import files_spec, launch_spec
from planner.graph.routes import reason_not_synced, router_of
from planner.kafka import ClusterFailure, run_at
from planner.model.diagnostic import Diagnostic, Failure, error, warning
from planner.model.observed import ClusterReport
from planner.model.topology import Flow, Job, Topology
from planner.observe.doctor import examine
from planner.workflows.audit.access import answered, cluster_access
from planner.workflows.flows.ending import group_losses
from planner.workflows.observing import check_stores, endpoints_of
from planner.workflows.requests import (
    ClusterRequest,
    FlowGroupsRequest,
    JobLogRequest,
    LocateRecordRequest,
    OffsetsRequest,
    TopologyRequest,
)
from planner.workflows.topology import checked, cluster_of, flow_of, launcher_home
from runtime.audit.ledger import ClusterAccess
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
from runtime.contract.results.groups import GroupLoss, GroupOffsets, LocatedRecord
from runtime.contract.results.records import ClusterClients, ClusterContent, TopicRecords
from runtime.launch.launcher import LaunchError

__all__ = [
    "ClusterRequest",
    "LocateRecordRequest",
    "OffsetsRequest",
    "ReadFromEarliest",
    "ReadFromOffset",
    "ReadFromTimestamp",
    "ReadNewest",
    "Start",
    "clients",
    "cluster_content",
    "doctor",
    "locate_record",
    "offsets",
    "records",
]


def cluster_content(request: ClusterRequest) -> ClusterContent:
    """Reads what a cluster holds, and how far each flow has copied into it."""
    return answered(read_cluster(_reading(request), request.timeout_ms / 1000))


def records(request: ClusterRequest, start: Start, limit: int) -> TopicRecords:
    """Reads committed records of a topic, each with its provenance."""
    assert request.topic is not None, "records are read of one topic"
    return answered(read_records(_reading(request), request.topic, start, limit, request.timeout_ms / 1000))


def clients(request: ClusterRequest, over_ms: int = 0) -> ClusterClients:
    """Reads which groups consume from each topic, and which producers write to it.

    `over_ms`: how far apart two readings are that give the rates; 0 reads once.
    """
    return answered(read_clients(_reading(request), request.topic, over_ms / 1000, request.timeout_ms / 1000))


def offsets(request: OffsetsRequest) -> GroupOffsets:
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
                by_time=flow.groups.mode == "timestamp",
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
    endpoint = endpoints_of([known])[request.cluster]
    timeout_s = request.timeout_ms / 1000
    try:
        return run_at(endpoint, lambda client: examine(client, timeout_s, topology), timeout_s)
    except ClusterFailure as failure:
        raise Failure(error(f"{request.cluster}: {failure.why}", failure.hint)) from None


class JobLog(Struct, frozen=True):
    """The last lines of a job's log. `where` the job runs, and `log`, its file, are empty where not known."""

    lines: tuple[str, ...]
    where: str = ""
    log: str = ""


class GroupNames(Struct, frozen=True):
    """The groups of each cluster, with Kafka's state of each. The diagnostics name the unread clusters."""

    states: dict[str, dict[str, str]]
    diagnostics: tuple[Diagnostic, ...] = ()


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
            missing += [warning(one.summary, one.hint) for one in failure.diagnostics]
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
        raise Failure(error(wrong.what, wrong.hint)) from None
    return JobLog(tuple(lines), handle.where if handle else "", handle.log if handle else "")
