"""Single questions to clusters and their ledgers, of commands and of the pages of `repl ui`.

The commands are `repl read`, `clients`, `offsets`, `locate` and `doctor`. The pages also ask for the groups
of a flow and for a job's log.
"""

from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from planner.graph.jobs import files_spec, launch_spec
from planner.graph.routes import reason_not_synced
from planner.kafka import ClusterClient, ClusterFailure
from planner.model.diagnostic import Diagnostic, Failure, error, warning
from planner.model.managed_services import service_at
from planner.model.observed import ClusterReport
from planner.model.topology import Flow, Topology
from planner.observe.doctor import examine
from planner.workflows.audit.access import answered, cluster_endpoint, endpoints_of, flow_accesses
from planner.workflows.edge import Workflow
from planner.workflows.flows.ending import group_losses
from planner.workflows.preflight import check_allowed
from planner.workflows.requests import (
    ClusterRequest,
    LocateRecordRequest,
    OffsetsRequest,
    TopologyRequest,
)
from planner.workflows.topology import (
    cluster_of,
    flow_of,
    job_flow_of,
    launcher_home,
    load_and_lint,
    load_topology,
)
from runtime.audit.offsets.locate import locate
from runtime.audit.offsets.locate_file import locate_in_files
from runtime.audit.offsets.offsets import group_offsets
from runtime.audit.read.clients import read_clients, read_groups
from runtime.audit.read.record_tracer import KnownCluster
from runtime.audit.read.records import (
    Start,
    read_cluster,
    read_records,
)
from runtime.contract.launching import LaunchError
from runtime.contract.results.groups import GroupLoss, GroupOffsets, LocatedRecord
from runtime.contract.results.records import ClusterClients, ClusterContent, TopicRecords


@Workflow
async def cluster_content(request: ClusterRequest) -> ClusterContent:
    """Reads what a cluster holds, and how far each flow has copied into it."""
    topology = load_topology(request)
    return await answered(read_cluster(_known(topology, request.cluster), request.timeout_s))


@Workflow
async def records(request: ClusterRequest, start: Start, limit: int) -> TopicRecords:
    """Reads committed records of a topic, each with its provenance."""
    assert request.topic is not None, "records are read of one topic"
    topology = load_topology(request)
    known_cluster = _known(topology, request.cluster)
    pinned = {cluster.id: name for name, cluster in topology.clusters.items() if cluster.id is not None}
    others: dict[str, KnownCluster] = {}
    for name in topology.clusters.keys() - {request.cluster}:
        with suppress(Failure):  # a secret that is not here: this cluster would only add to the answer
            others[name] = _known(topology, name)
    within_s = request.timeout_s
    return await answered(read_records(known_cluster, request.topic, start, limit, within_s, pinned, others))


@Workflow
async def clients(request: ClusterRequest, over_ms: int = 0) -> ClusterClients:
    """Reads which groups consume from each topic, and which producers write to it.

    `over_ms`: how far apart two readings are that give the rates; 0 reads once.
    """
    access = _known(load_topology(request), request.cluster).reach
    return await answered(read_clients(access, request.topic, over_ms / 1000, request.timeout_s))


def _known(topology: Topology, name: str) -> KnownCluster:
    """Returns how to reach a cluster, and the flows into it, each with the name of its source."""
    access = cluster_endpoint(cluster_of(topology, name))
    flows = [flow for flow in topology.flows.values() if flow.destination_cluster == name]
    return KnownCluster(access, {flow.name: flow.source_cluster for flow in flows})


@Workflow
async def offsets(request: OffsetsRequest) -> GroupOffsets:
    """Reads a group's offsets at the source, translated by the ledger to the destination."""
    topology = load_topology(request)
    flow = flow_of(topology, request.flow)
    (access,) = flow_accesses(topology, [flow], request.timeout_s)
    return await answered(group_offsets(access, request.group, reason_not_synced(flow, request.group)))


@Workflow
async def locate_record(request: LocateRecordRequest) -> LocatedRecord:
    """Finds a record at the other side of a flow: at the destination, at the source, or in a file."""
    topology = load_topology(request)
    within_s = request.timeout_s
    into_files = topology.file_flows.get(job_flow_of(topology, request.flow).name)
    if into_files is None or into_files.from_files:
        flow = flow_of(topology, request.flow)
        (access,) = flow_accesses(topology, [flow], within_s)
        return await answered(locate(access, _sought(request, flow)))
    if request.reverse:
        what = (
            f"the records in the files of {into_files.destination_cluster} have their offsets at the source"
        )
        raise Failure(error(what, "leave --reverse out", source=into_files.source))
    check_allowed(topology)
    files = files_spec(into_files, topology, Path.cwd())
    assert files is not None, "the flow goes into files"
    source = topology.clusters[into_files.source_cluster]
    return await answered(
        locate_in_files(_sought(request, into_files), cluster_endpoint(source), files, within_s)
    )


def _sought(request: LocateRecordRequest, flow: Flow) -> LocatedRecord:
    """Returns what the request says of the record, and of the flow that copied it."""
    here, other = flow.ends
    if request.reverse:
        here, other = other, here
    return LocatedRecord(
        flow=flow.name,
        reverse=request.reverse,
        cluster=here,
        topic=request.topic,
        partition=request.partition,
        offset=request.offset,
        timestamp_ms=request.timestamp_ms,
        other_cluster=other,
        other_topic=request.topic,
    )


@Workflow
async def doctor(request: ClusterRequest) -> ClusterReport:
    """Examines a cluster; nothing is changed. Raises Failure where no broker answers."""
    topology = load_topology(request)
    cluster = cluster_of(topology, request.cluster)
    endpoint = cluster_endpoint(cluster)
    timeout_s = request.timeout_s
    try:
        async with ClusterClient(endpoint, timeout_s) as client:
            return await examine(client, timeout_s, topology)
    except ClusterFailure as failure:
        service = service_at(cluster.bootstrap.split(","))
        login = service.login if service is not None else None
        hints = "; ".join(filter(None, (failure.hint, login)))
        raise Failure(error(f"{request.cluster}: {failure.why}", hints)) from None


LOG_LINES = 100


class JobLog(Struct, frozen=True):
    """The last lines of a job's log. `where` the job runs, and `log`, its file, are empty where not known."""

    lines: tuple[str, ...]
    where: str = ""
    log: str = ""


class GroupNames(Struct, frozen=True):
    """The groups of each cluster, with Kafka's state of each. The diagnostics name the unread clusters."""

    states: dict[str, dict[str, str]]
    diagnostics: tuple[Diagnostic, ...] = ()


@Workflow
async def flow_groups(request: TopologyRequest, flow: str) -> tuple[GroupLoss, ...]:
    """Returns where each group that the flow syncs would continue at its destination. It changes nothing."""
    topology = load_and_lint(request).topology
    flows = [candidate for candidate in (flow_of(topology, flow),) if candidate.state != "failed_over"]
    return tuple(await group_losses(topology, flows, request.timeout_s))


@Workflow
async def group_names(request: TopologyRequest) -> GroupNames:
    """Lists the groups of every cluster. One that does not answer is left out and named."""
    topology = load_and_lint(request).topology
    states: dict[str, dict[str, str]] = {}
    missing: list[Diagnostic] = []
    for name, access in endpoints_of(topology.clusters.values()).items():
        try:
            states[name], unlisted = await answered(read_groups(access, request.timeout_s))
            missing += [warning(f"{name}: {why}", f"reload once {name} answers") for why in unlisted]
        except Failure as failure:
            missing += [warning(diagnostic.summary, diagnostic.hint) for diagnostic in failure.diagnostics]
    return GroupNames(states, tuple(missing))


def job_log(request: TopologyRequest, name: str) -> JobLog:
    """Returns the last lines of a job's log. Failure where the launcher has none to show from here."""
    from runtime.launch.choose import launcher_for  # the other questions need no launcher

    topology = load_and_lint(request).topology
    job = topology.job(name)
    try:
        launcher = launcher_for(launch_spec(job), launcher_home(request.path) / "jobs")
        handle = launcher.find(name).handle
        lines = launcher.tail(name, LOG_LINES)
    except LaunchError as wrong:
        raise Failure(error(wrong.what, wrong.hint)) from None
    return JobLog(tuple(lines), handle.where if handle else "", handle.log if handle else "")
