"""The stored reports of `repl drill`: where they are, what they say, and their signatures. Nothing is run."""

import datetime
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from planner.config import load
from planner.model.diagnostic import ExitCode, Failure, error
from planner.model.drill import LAB, DrillReport
from planner.model.plan import canonical
from planner.state.planfile import KEY, KEY_FILE, Signature, check, key_of, sign
from planner.workflows.requests import TopologyRequest
from planner.workflows.topology import launcher_home

_KEPT = "drills"
_SIGNATURE = "signature"


class StoredDrill(Struct, frozen=True):
    """A stored report: its file, and when the drill began."""

    file: str
    started_ms: int
    report: DrillReport


class DrillHistory(Struct, frozen=True):
    """The stored drills of a topology, the newest first.

    `folder` is where they are, `unread` are files that can't be read as reports. `every_ms` is `drill.every`
    and `digest` the digest of the topology as it is now.
    """

    folder: str
    drills: tuple[StoredDrill, ...]
    unread: tuple[str, ...]
    every_ms: int | None
    digest: str

    @property
    def last_passed(self) -> StoredDrill | None:
        return next((one for one in self.drills if one.report.passed), None)

    def overdue(self, now_ms: int) -> bool:
        """Returns whether no drill has passed for longer than `drill.every`."""
        if self.every_ms is None:
            return False
        last = self.last_passed
        return last is None or now_ms - last.started_ms > self.every_ms


def drill_history(request: TopologyRequest, reports: Path | None = None) -> DrillHistory:
    """Reads the reports of drills on lab clusters. Failure where the topology has errors.

    They are in the folder `reports`, by default beside the topology's jobs. Drills that only read the live
    clusters are left out: they don't show that a failover works.
    """
    topology = load(request.path, request.var_files)
    folder = reports or reports_folder(request.path)
    drills, unread = [], []
    for file in sorted(folder.glob("*.json"), reverse=True):
        found = _stored(file)
        if found is None:
            unread.append(file.name)
        elif found.report.topology == topology.name and found.report.against == LAB:
            drills.append(found)
    drills.sort(key=lambda one: one.started_ms, reverse=True)
    return DrillHistory(str(folder), tuple(drills), tuple(unread), topology.drill.every_ms, topology.digest)


def reports_folder(path: Path) -> Path:
    """Returns where the reports of a topology are stored by default: beside its jobs."""
    return launcher_home(path) / _KEPT


def kept(folder: Path) -> Iterator[dict[str, Any]]:
    """Yields the stored reports, the oldest first. A file that can't be read is left out."""
    for file in sorted(folder.glob("*.json")):
        tree = report_tree(file)
        if tree is not None:
            yield tree


def report_tree(file: Path) -> dict[str, Any] | None:
    """Returns a report as it is stored; None where the file can't be read as one."""
    try:
        tree = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return tree if isinstance(tree, dict) and "scenarios" in tree else None


def last_success_s(folder: Path) -> float | None:
    """Returns when a stored drill on lab clusters last passed, in seconds since 1970."""
    found = None
    for tree in kept(folder):
        if tree.get("against", LAB) != LAB:
            continue
        if tree.get("passed") is True and isinstance(tree.get("started_at"), str):
            found = datetime.datetime.fromisoformat(tree["started_at"]).timestamp()
    return found


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


def _stored(file: Path) -> StoredDrill | None:
    tree = report_tree(file)
    try:
        report = msgspec.convert(tree, DrillReport)
        started = datetime.datetime.fromisoformat(report.started_at)
    except (msgspec.ValidationError, ValueError):
        return None
    if started.tzinfo is None:
        return None
    return StoredDrill(file.name, int(started.timestamp() * 1000), report)
