"""Wiring: a topology's path → its plan. Every command that plans goes through here."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from planner.cli.observing import observe
from planner.diff import diff, diff_destroy, drift
from planner.expand import expand
from planner.model.desired import Desired
from planner.model.observed import Observed
from planner.model.plan import Mode, Plan
from planner.model.topology import Topology
from planner.plan import make_plan


@dataclass(frozen=True, slots=True)
class Seen:
    """The topology beside what the clusters hold and should hold."""

    topology: Topology
    observed: Observed
    desired: Desired


def see(topology: Topology, timeout_ms: int) -> Seen:
    observed = observe(topology, timeout_ms)
    return Seen(topology, observed, expand(topology, observed))


def apply_plan(seen: Seen, targets: Sequence[str] = ()) -> Plan:
    changes = diff(seen.desired, seen.observed, seen.topology)
    return make_plan(
        seen.desired, seen.observed, changes, seen.topology, Mode.APPLY, now_text(), tuple(targets)
    )


def drift_plan(seen: Seen) -> Plan:
    """What the registry remembers against what is there: shown like a plan, and never applied."""
    changes = drift(seen.desired, seen.observed)
    plan = make_plan(
        Desired(seen.topology.name), seen.observed, changes, seen.topology, Mode.DRIFT, now_text()
    )
    return replace(plan, steps=(), fingerprints=())


def destroy_plan(topology: Topology, observed: Observed) -> Plan:
    """Everything that the topology owns leaves it; what it still declares is not looked at."""
    changes = diff_destroy(observed, topology)
    return make_plan(Desired(topology.name), observed, changes, topology, Mode.DESTROY, now_text())


def now_text() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def folder_of(path: Path) -> Path:
    return path if path.is_dir() else path.parent
