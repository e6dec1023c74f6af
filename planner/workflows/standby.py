"""`repl standby`: this machine watches a job, and starts it here when the job's machine is lost."""

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

from planner.graph.jobs import destination_spec, standby_spec
from planner.model.diagnostic import Failure, error
from planner.model.topology import Topology
from planner.workflows.audit.access import endpoints_of
from planner.workflows.edge import Workflow
from planner.workflows.requests import StandbyRequest
from planner.workflows.topology import launcher_home, load_and_lint
from runtime.contract.spec.jobspec import JobSpec
from runtime.standby import Standby, StandbyRefused


@Workflow
async def standby(request: StandbyRequest, say: Callable[[str], None]) -> None:
    """Stands by until SIGTERM or SIGINT. `say` is called with each line of news.

    Failure: the topology has no such job, it declares no standby for it, or one runs here already.
    """
    topology = load_and_lint(request).topology
    destination = topology.clusters[_destination(topology, request.job)]
    endpoints_of([destination])  # names missing secrets before anything is watched
    watching = Standby(
        job=request.job,
        destination=destination.name,
        cluster=destination_spec(destination, Path.cwd()),
        home=launcher_home(request.path) / "jobs",
        spec=lambda running: _spec(request, running),
        say=say,
    )

    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    try:
        await watching.run(stopping)
    except StandbyRefused as refused:
        raise Failure(error(str(refused))) from None


def _destination(topology: Topology, name: str) -> str:
    """Returns the destination of a job that declares standbys. Raises Failure."""
    destinations = {flow.destination_cluster for flow in topology.job_flows.values() if flow.job == name}
    if not destinations:
        jobs = ", ".join(sorted({flow.job for flow in topology.job_flows.values()})) or "none"
        raise Failure(error(f"no flow of this topology runs in a job {name}", f"its jobs: {jobs}"))
    job = topology.job(name)
    if not job.standby:
        what = f"the job {name} declares no standby"
        raise Failure(error(what, f"add jobs: {{{name}: {{standby: 1}}}} to the topology", source=job.source))
    return min(destinations)


def _spec(request: StandbyRequest, running: JobSpec) -> JobSpec:
    """Returns the spec by which the running job would be started here, by the topology as it is now."""
    try:
        topology = load_and_lint(request).topology
        _destination(topology, request.job)
        if running.topology != topology.name:
            raise StandbyRefused(
                f"the job {running.job} belongs to the topology {running.topology!r}, and this one is "
                f"{topology.name!r} — name its file: repl standby {running.job} PATH"
            )
        return standby_spec(running, topology, Path.cwd())
    except Failure as failure:
        raise StandbyRefused("; ".join(str(diagnostic) for diagnostic in failure.diagnostics)) from failure
    except KeyError as missing:
        raise StandbyRefused(
            f"the running job reaches {missing.args[0]}, which this topology does not declare — bring the"
            " topology of this machine up to date"
        ) from missing
