"""The status of replication: `repl status`, `repl status --watch`, and the pages of `repl ui`."""

import asyncio
from collections.abc import AsyncGenerator, Hashable, Sequence
from pathlib import Path

from msgspec.structs import replace

from planner.config.files import topology_files
from planner.graph.jobs import flow_spec, launch_spec
from planner.graph.routes import file_route, route_of
from planner.model.diagnostic import Failure
from planner.model.topology import Topology
from planner.workflows.audit.access import endpoints_of
from planner.workflows.audit.waves import WaveReader
from planner.workflows.edge import Workflow
from planner.workflows.requests import ReplicationStatusRequest, TopologyRequest
from planner.workflows.topology import load_and_lint, load_topology
from runtime.audit.status.facts import StatusRequest
from runtime.audit.status.reader import StatusReader, read_status
from runtime.contract.results.status import DOWN, JobHealth, ReplicationStatus
from runtime.contract.spec.route import Router


def status_request(topology: Topology, given_up: str | None = None) -> StatusRequest:
    """Returns the request for the status of every cluster that a flow touches."""
    flows = [flow for _, flow in sorted(topology.job_flows.items())]
    names = {name for flow in flows for name in flow.ends}
    clusters = [topology.clusters[name] for name in sorted(names)]
    routes = [route_of(flow, topology) for flow in topology.flows.values()]
    routes += [file_route(flow) for flow in topology.file_flows.values()]
    return StatusRequest(
        topology=topology.name,
        clusters=endpoints_of(clusters, given_up=given_up),
        flows=[flow_spec(flow, topology, Path.cwd()) for flow in flows],
        router=Router(routes),
        jobs={flow.name: flow.job for flow in flows},
        standbys={name: job.standby for name, job in topology.jobs.items() if job.standby},
    )


_LATER_WITHIN_S = 3.0  # a cluster that is down must not delay what the others show


@Workflow
async def status(request: ReplicationStatusRequest) -> ReplicationStatus:
    """Reads the status once. It is right also when a job is dead or a datacenter is down."""
    topology = load_topology(request)
    over_s, within_s = request.over_ms / 1000, request.timeout_s
    wanted = status_request(topology)
    seen = await read_status(wanted, over_s, within_s, retention=True, every_offset=request.every_offset)
    seen = replace(seen, jobs=await with_launchers(topology, seen.jobs))
    return replace(seen, waves=await WaveReader(topology, within_s).progress(seen))


async def with_launchers(topology: Topology, jobs: Sequence[JobHealth]) -> list[JobHealth]:
    """Returns the jobs; one on Kubernetes that is down says what Kubernetes says of its driver."""

    async def seen(job: JobHealth) -> JobHealth:
        return await asyncio.to_thread(_with_launcher, topology, job) if job.state == DOWN else job

    return list(await asyncio.gather(*map(seen, jobs)))


def _with_launcher(topology: Topology, job: JobHealth) -> JobHealth:
    from runtime.launch.choose import launcher_for  # most jobs need no launcher here

    declared = topology.jobs.get(job.name)
    if declared is None or (launch := launch_spec(declared)).launcher != "kubernetes":
        return job
    launched = launcher_for(launch, Path()).find(job.name)
    return (
        replace(job, why="; ".join(filter(None, (job.why, launched.why))))
        if launched.handle is not None
        else job
    )


async def watch_status(
    request: TopologyRequest, every_ms: int, *, every_offset: bool = True
) -> AsyncGenerator[ReplicationStatus, None]:
    """Yields the status again and again, each with the rates since the one before."""
    topology = load_topology(request)
    wanted = status_request(topology)
    within_s = request.timeout_s
    waves = WaveReader(topology, within_s)
    async with StatusReader(
        wanted, within_s, retention=True, traffic=True, every_offset=every_offset
    ) as reader:
        await reader.status()
        reader.within_s = min(within_s, _LATER_WITHIN_S)
        while True:
            await asyncio.sleep(every_ms / 1000)
            seen = await reader.status()
            seen = replace(seen, jobs=await with_launchers(topology, seen.jobs))
            yield replace(seen, waves=await waves.progress(seen))


def watched_topology(request: TopologyRequest) -> Topology:
    """Returns the topology whose status can be followed. Failure holds its errors, and missing secrets."""
    topology = load_and_lint(request).topology
    endpoints_of(topology.clusters.values())
    return topology


def topology_stamp(request: TopologyRequest) -> Hashable:
    """Returns a value that changes when a file of the topology does."""
    stamps = []
    try:
        files = topology_files(request.path, request.var_files)
    except Failure as failure:
        return str(failure)
    for file in (*files, *request.var_files):
        try:
            seen = file.stat()
        except OSError:
            stamps.append((str(file), 0, 0))
        else:
            stamps.append((str(file), seen.st_mtime_ns, seen.st_size))
    return tuple(stamps)
