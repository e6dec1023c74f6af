"""What the pages of `repl ui` ask beside the commands: groups of a flow, groups of all clusters, a job's log.

And what they need to begin: the topology, checked, and a stamp that changes with its files.
"""

from collections.abc import Hashable
from dataclasses import dataclass

from planner.config.files import topology_files
from planner.graph.jobs import launch_spec
from planner.model.diagnostic import Diagnostic, Failure, error, warning
from planner.model.topology import Job, Topology
from planner.workflows.audit.requests import answered, cluster_access
from planner.workflows.flows.ending import group_losses
from planner.workflows.spark import launcher_home
from planner.workflows.topology import TopologyRequest, checked, flow_of
from runtime.audit.read.clients import read_groups
from runtime.contract.views.groups_view import GroupLoss
from runtime.launch.choose import launcher_for
from runtime.launch.launcher import LaunchError


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
    topology = checked(request.path, request.var_files).topology
    job = topology.jobs.get(request.job, Job(request.job))
    try:
        launcher = launcher_for(launch_spec(job), launcher_home(request.path) / "jobs")
        handle = launcher.find(request.job).handle
        lines = launcher.tail(request.job, request.lines)
    except LaunchError as wrong:
        raise Failure(error(wrong.what, wrong.way_out)) from None
    return JobLog(tuple(lines), handle.where if handle else "", handle.log if handle else "")
