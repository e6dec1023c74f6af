"""The stored reports of `repl drill`: where they are, what they say, and their signatures. Nothing is run."""

import json
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from planner.model.diagnostic import ExitCode, Failure, error
from planner.model.drill import LAB, DrillReport, StoredDrill
from planner.model.plan import canonical
from planner.state.planfile import KEY, KEY_FILE, Signature, check, key_of, sign
from planner.workflows.requests import TopologyRequest
from planner.workflows.topology import launcher_home, load_topology
from runtime.contract.whole_file import write_whole

_SIGNATURE = "signature"


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
        return last_passed(self.drills)

    def overdue(self, now_ms: int) -> bool:
        """Returns whether no drill has passed for longer than `drill.every`."""
        if self.every_ms is None:
            return False
        last = self.last_passed
        return last is None or now_ms - last.report.started_ms > self.every_ms


def drill_history(request: TopologyRequest, reports: Path | None = None) -> DrillHistory:
    """Reads the reports of drills on lab clusters. Failure where the topology has errors.

    They are in the folder `reports`, by default beside the topology's jobs. Drills that only read the live
    clusters are left out: they don't show that a failover works.
    """
    topology = load_topology(request)
    folder = reports or reports_folder(request.path)
    drills, unread = lab_drills(folder, topology.name)
    return DrillHistory(
        str(folder), tuple(drills), tuple(reversed(unread)), topology.drill.every_ms, topology.digest
    )


def lab_drills(folder: Path, topology: str) -> tuple[list[StoredDrill], list[str]]:
    """Returns a topology's drills on lab clusters, the newest first, and the files that are no reports."""
    stored, unread = stored_drills(folder)
    drills = [drill for drill in stored if drill.report.topology == topology and drill.report.against == LAB]
    return sorted(drills, key=lambda drill: drill.report.started_ms, reverse=True), unread


def last_passed(drills: Iterable[StoredDrill]) -> StoredDrill | None:
    """Returns the first of these drills that passed."""
    return next((drill for drill in drills if drill.report.passed), None)


def reports_folder(path: Path) -> Path:
    """Returns where the reports of a topology are stored by default: beside its jobs."""
    return launcher_home(path) / "drills"


def stored_drills(folder: Path, *, checked: bool = False) -> tuple[list[StoredDrill], list[str]]:
    """Returns the stored reports by the names of their files, and the files that can't be read as reports.

    With `checked` their signatures are checked with the operator's key.
    """
    key = key_of() if checked else None
    drills: list[StoredDrill] = []
    unread: list[str] = []
    for file in sorted(folder.glob("*.json")):
        tree = _tree(file)
        try:
            report = msgspec.convert(tree, DrillReport)
            if datetime.fromisoformat(report.started_at).tzinfo is None:
                raise ValueError("the time of its start has no time zone")
        except (msgspec.ValidationError, ValueError):
            unread.append(file.name)
        else:
            drills.append(StoredDrill(file.name, report, tree, _signature(tree, key)))
    return drills, unread


def _tree(file: Path) -> dict[str, Any]:
    """Returns what a file holds; nothing where it is no report."""
    try:
        tree = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return tree if isinstance(tree, dict) and "scenarios" in tree else {}


def _signature(tree: dict[str, Any], key: bytes | None) -> Signature:
    content = {name: value for name, value in tree.items() if name != _SIGNATURE}
    signature = tree.get(_SIGNATURE)
    return check(signature if isinstance(signature, str) else None, canonical(content), key)


def check_report(file: Path) -> str:
    """Returns that a stored report is signed with the operator's key. Failure if not, or if it is none."""
    tree = _tree(file)
    if not tree:
        raise Failure(error(f"{file} can't be read as a report", "name a file that repl drill stored"))
    signature = _signature(tree, key_of())
    match signature:
        case Signature.VALID:
            return signature.value
        case Signature.NOT_CHECKED:
            raise Failure(error(f"{file}: {signature.value}", f"set {KEY} or {KEY_FILE}"))
        case Signature.NOT_SIGNED:
            what = "is not signed"
        case Signature.OTHER_KEY:
            what = "was changed, or is signed with another key"
    raise Failure(error(f"{file} {what}", "its figures are not proven", exit=ExitCode.REFUSED))


def store_drill(report: DrillReport, document: dict[str, Any], folder: Path) -> StoredDrill:
    """Stores a report, with the signature of the operator's key, which signs plans too, if there is one."""
    key = key_of()
    if key is not None:
        document = {**document, _SIGNATURE: sign(key, canonical(document))}
    file = folder / f"{report.started_at.replace('-', '').replace(':', '')}.json"
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(file, text.encode())
    except OSError as wrong:
        why = wrong.strerror or str(wrong)
        raise Failure(error(f"{file}: the report can't be stored: {why}", "name another --reports")) from None
    return StoredDrill(file.name, report, document, _signature(document, key))
