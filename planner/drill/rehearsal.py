"""`repl drill`: rehearses a topology on lab clusters."""

import datetime
import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from planner.config import load
from planner.drill.replica import Progress, Replica, clusters_to_lose
from planner.drill.standard import DrillLimits, StandardDrill
from planner.model.diagnostic import Failure, error
from planner.model.drill import LAB, DrillReport, Scenario
from planner.model.topology import Topology
from planner.workflows.requests import TopologyRequest
from planner.workflows.topology import launcher_home
from runtime.contract.extras import DISTRIBUTION

_TIME = "%Y-%m-%dT%H:%M:%SZ"


class DrillRequest(TopologyRequest, frozen=True, kw_only=True):
    """A request for the standard drill. A limit that is None is the topology's own (`drill`).

    `canaries`: a live drill writes canary records to scratch topics.
    """

    max_rto_ms: int | None = None
    max_rpo: int | None = None
    canaries: bool = False


def rehearse(request: DrillRequest, progress: Progress) -> DrillReport:
    """Rehearses the loss of each cluster on this machine. The topology's own clusters are not touched.

    Failure: the topology has errors, or the lab can't be started.
    """
    topology = load(request.path, request.var_files)
    if not clusters_to_lose(topology):
        raise Failure(error("no flow runs, so there is nothing to rehearse", "declare a flow, or resume one"))
    started = now()
    folder = drill_folder(request.path)
    replica = Replica(topology, folder, progress)
    progress("clusters are started on this machine")
    with alone(folder), replica.running():
        scenarios = StandardDrill(replica, limits_of(request, topology), progress).run()
        progress("the clusters are removed")
    return drill_report(topology, started, replica.notes, scenarios)


def drill_report(
    topology: Topology,
    started: datetime.datetime,
    notes: tuple[str, ...],
    scenarios: tuple[Scenario, ...],
    against: str = LAB,
) -> DrillReport:
    """Returns the report of a drill that began then and has just ended."""
    return DrillReport(
        topology.name,
        topology.digest,
        started.strftime(_TIME),
        version(DISTRIBUTION),
        notes,
        scenarios,
        topology.drill.every_ms,
        against,
    )


def drill_folder(path: Path) -> Path:
    """Returns the folder of a topology's copy, which lives while a drill runs."""
    return launcher_home(path) / "drill"


def limits_of(request: DrillRequest, topology: Topology) -> DrillLimits:
    """Returns the limits of the request, else those of the topology."""
    rto_ms = topology.drill.max_rto_ms if request.max_rto_ms is None else request.max_rto_ms
    rpo = topology.drill.max_rpo if request.max_rpo is None else request.max_rpo
    return DrillLimits(None if rto_ms is None else rto_ms / 1000, rpo)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Refuses a second drill of the same topology. The lock ends with the process."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "drill.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Failure(
                error("another drill of this topology runs on this machine", "wait until it has ended")
            ) from None
        yield


def now() -> datetime.datetime:
    """Returns the time in UTC."""
    return datetime.datetime.now(datetime.UTC)
