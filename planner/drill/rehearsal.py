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
from planner.model.diagnostic import ExitCode, Failure, error
from planner.model.drill import LAB, DrillReport, Scenario
from planner.model.plan import canonical
from planner.model.topology import Topology
from planner.state.planfile import KEY, KEY_FILE, Signature, check, key_of, sign
from planner.workflows.audit.drills import report_tree
from planner.workflows.topology import TopologyRequest, launcher_home

_SIGNATURE = "signature"
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
        version("repl"),
        notes,
        scenarios,
        topology.drill.every_ms,
        against,
    )


def drill_folder(path: Path) -> Path:
    """Returns the folder of a topology's copy, which lives while a drill runs."""
    return launcher_home(path) / "drill"


def signed(tree: dict[str, Any]) -> dict[str, Any]:
    """Returns a report with the signature of the operator's key, which signs plans too, if there is one."""
    key = key_of()
    return tree if key is None else {**tree, _SIGNATURE: sign(key, canonical(tree))}


def signature_of(tree: dict[str, Any]) -> Signature:
    """Returns what the operator's key says about a report."""
    content = {name: value for name, value in tree.items() if name != _SIGNATURE}
    signature = tree.get(_SIGNATURE)
    return check(signature if isinstance(signature, str) else None, canonical(content), key_of())


def check_report(file: Path) -> str:
    """Returns that a stored report is signed with the operator's key. Failure if not, or if it is none."""
    tree = report_tree(file)
    if tree is None:
        raise Failure(error(f"{file} can't be read as a report", "name a file that repl drill stored"))
    match signature_of(tree):
        case Signature.VALID as found:
            return found.value
        case Signature.NOT_CHECKED as found:
            raise Failure(error(f"{file}: {found.value}", f"set {KEY} or {KEY_FILE}"))
        case Signature.NOT_SIGNED:
            what = "is not signed"
        case Signature.OTHER_KEY:
            what = "was changed, or is signed with another key"
    raise Failure(error(f"{file} {what}", "its figures are not proven", exit=ExitCode.REFUSED))


def keep(report: DrillReport, tree: dict[str, Any], folder: Path) -> Path:
    """Stores a report, and returns its file."""
    file = folder / f"{report.started_at.replace('-', '').replace(':', '')}.json"
    part = file.with_suffix(".part")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(tree, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        part.replace(file)
    except OSError as wrong:
        why = wrong.strerror or str(wrong)
        raise Failure(error(f"{file}: the report can't be stored: {why}", "name another --reports")) from None
    return file


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
