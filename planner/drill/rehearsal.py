"""`repl drill`: rehearses a topology on lab clusters, and keeps the reports."""

import datetime
import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from planner.config import load
from planner.drill.replica import Progress, Replica, clusters_to_lose
from planner.drill.standard import DrillLimits, StandardDrill
from planner.model.diagnostic import Failure, error
from planner.model.drill import DrillReport
from planner.model.topology import Topology
from planner.workflows.spark import launcher_home
from planner.workflows.topology import TopologyRequest

_KEPT = "drills"
_TIME = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillRequest(TopologyRequest):
    """A request for the standard drill. A limit that is None is the topology's own (`drill`)."""

    max_rto_ms: int | None = None
    max_rpo: int | None = None


def rehearse(request: DrillRequest, progress: Progress) -> DrillReport:
    """Rehearses the loss of each cluster on this machine. The topology's own clusters are not touched.

    Failure: the topology has errors, or the lab can't be started.
    """
    topology = load(request.path, request.var_files)
    if not clusters_to_lose(topology):
        raise Failure(error("no flow runs, so there is nothing to rehearse", "declare a flow, or resume one"))
    started = _now()
    folder = drill_folder(request.path)
    replica = Replica(topology, folder, progress)
    progress("clusters are started on this machine")
    with alone(folder), replica.running():
        scenarios = StandardDrill(replica, _limits(request, topology), progress).run()
        progress("the clusters are removed")
    return DrillReport(
        topology.name,
        topology.digest,
        started.strftime(_TIME),
        version("repl"),
        replica.notes,
        scenarios,
    )


def drill_folder(path: Path) -> Path:
    """Returns the folder of a topology's copy, which lives while a drill runs."""
    return launcher_home(path) / "drill"


def keep(report: DrillReport, tree: dict[str, Any], path: Path) -> Path:
    """Stores a report beside the topology's jobs, and returns its file."""
    folder = launcher_home(path) / _KEPT
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{report.started_at.replace('-', '').replace(':', '')}.json"
    part = file.with_suffix(".part")
    part.write_text(json.dumps(tree, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    part.replace(file)
    return file


def kept(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the stored reports, the oldest first. A file that can't be read is left out."""
    for file in sorted((launcher_home(path) / _KEPT).glob("*.json")):
        try:
            tree = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(tree, dict):
            yield tree


def last_success_s(path: Path) -> float | None:
    """Returns when a stored drill last passed, in seconds since 1970."""
    found = None
    for tree in kept(path):
        if tree.get("passed") is True and isinstance(tree.get("started_at"), str):
            found = datetime.datetime.fromisoformat(tree["started_at"]).timestamp()
    return found


def limits_of(request: DrillRequest) -> tuple[DrillLimits, int | None]:
    """Returns the limits that count, and how often a drill must pass, in ms."""
    topology = load(request.path, request.var_files)
    return _limits(request, topology), topology.drill.every_ms


def _limits(request: DrillRequest, topology: Topology) -> DrillLimits:
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


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
