"""The stored reports of `repl drill`: where they are, and what they say. Nothing is run."""

import datetime
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from planner.config import load
from planner.model.drill import LAB, DrillReport
from planner.workflows.topology import TopologyRequest, launcher_home

_KEPT = "drills"


@dataclass(frozen=True, slots=True)
class StoredDrill:
    """A stored report: its file, and when the drill began."""

    file: str
    started_ms: int
    report: DrillReport


@dataclass(frozen=True, slots=True)
class DrillHistory:
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
        """The last drill on lab clusters that passed: one that only reads the live ones proves less."""
        return next((one for one in self.drills if one.report.passed and one.report.against == LAB), None)

    def overdue(self, now_ms: int) -> bool:
        """Returns whether no drill has passed for longer than `drill.every`."""
        if self.every_ms is None:
            return False
        last = self.last_passed
        return last is None or now_ms - last.started_ms > self.every_ms


def drill_history(request: TopologyRequest) -> DrillHistory:
    """Reads the reports that are stored beside the topology's jobs. Failure where the topology has errors."""
    topology = load(request.path, request.var_files)
    folder = reports_folder(request.path)
    drills, unread = [], []
    for file in sorted(folder.glob("*.json"), reverse=True):
        found = _stored(file)
        if found is None:
            unread.append(file.name)
        elif found.report.topology == topology.name:
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
