"""What all drills share: the request, the limits, the report, and the lock that lets one run at a time."""

import datetime
import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from planner.model.diagnostic import Failure, error
from planner.model.drill import LAB, DrillReport, Scenario
from planner.model.topology import Topology
from planner.workflows.requests import TopologyRequest
from planner.workflows.topology import launcher_home
from runtime.contract.extras import DISTRIBUTION

_TIME = "%Y-%m-%dT%H:%M:%SZ"


class DrillRequest(TopologyRequest, frozen=True, kw_only=True):
    """A request for a drill. A limit, or a time of load, that is None is the topology's own (`drill`).

    `canaries`: a live drill writes canary records to scratch topics.
    """

    max_rto_ms: int | None = None
    max_rpo: int | None = None
    load_ms: int | None = None
    canaries: bool = False


@dataclass(frozen=True, slots=True)
class DrillLimits:
    """What a drill must keep: None is no limit."""

    rto_s: float | None = None
    rpo_records: int | None = None


def limits_of(request: DrillRequest, topology: Topology | None = None) -> DrillLimits:
    """Returns the limits of the request, else those of the topology."""
    rto_ms, rpo = request.max_rto_ms, request.max_rpo
    if topology is not None:
        rto_ms = topology.drill.max_rto_ms if rto_ms is None else rto_ms
        rpo = topology.drill.max_rpo if rpo is None else rpo
    return DrillLimits(None if rto_ms is None else rto_ms / 1000, rpo)


def drill_report(
    topology: Topology,
    started: datetime.datetime,
    notes: tuple[str, ...],
    scenarios: tuple[Scenario, ...],
    against: str = LAB,
    features: str = "",
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
        features,
    )


def drill_folder(path: Path) -> Path:
    """Returns the folder of a topology's copy, which lives while a drill runs."""
    return launcher_home(path) / "drill"


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
