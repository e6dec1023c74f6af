"""The topology of a measurement, as a file, and what an apply of its plan leaves at the destination.

python -m tests.bench.simulation.world PLAN SPEC BOOTSTRAP

It reads a saved plan, writes the spec of its job into a file, and its entries into the registry. It is a
process of its own, because a large plan takes much memory.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from planner.kafka import ClusterEndpoint, run_at
from planner.kafka.log import LogWriter
from planner.model.plan import Plan
from planner.plan.steps.jobs import LaunchJob
from planner.plan.steps.registry import Own
from planner.state import planfile
from planner.state.internal_topics import write_registry
from runtime.contract.spec import jobspec
from tests.bench.simulation.contents import ClusterSize

SOURCE, DESTINATION = "dc1", "dc2"
PARTITIONS_OF_SLOT = 5_000


def slots_of(partitions: int) -> int:
    """Returns how many slots copy so many partitions."""
    return max(2, -(-partitions // PARTITIONS_OF_SLOT))


def write_topology(file: Path, size: ClusterSize, bootstrap: Mapping[str, str]) -> None:
    """Writes a topology of flows that copy every topic of the source."""
    flows = [
        {
            "name": name,
            "from": SOURCE,
            "to": DESTINATION,
            "topics": {"include": [re.escape(name) + r"\..*"]},
            "start": "latest",
        }
        for name in size.flows
    ]
    body = {
        "apiVersion": "repl/v1",
        "name": "simulated",
        "clusters": {name: {"bootstrap": address} for name, address in bootstrap.items()},
        "jobs": {DESTINATION: {"slots": slots_of(size.partitions), "master": "local[*]"}},
        "flows": flows,
    }
    file.write_text(json.dumps(body, indent=1), encoding="utf-8")


def job_spec(plan: Plan) -> str:
    """Returns the spec of the job that a plan launches."""
    (spec,) = (step.spec for step in plan.steps if isinstance(step, LaunchJob))
    return jobspec.encode(spec).decode()


def write_entries(plan: Plan, bootstrap: str) -> int:
    """Writes the registry entries that an apply of the plan would write. Returns how many."""
    entries = [step.entry for step in plan.steps if isinstance(step, Own)]
    run_at(
        ClusterEndpoint("bench", bootstrap),
        lambda client: write_registry(LogWriter(client), own=entries),
    )
    return len(entries)


def main() -> int:
    file, spec, bootstrap = sys.argv[1:]
    plan = planfile.load(Path(file)).plan()
    Path(spec).write_text(job_spec(plan), encoding="utf-8")
    print(write_entries(plan, bootstrap))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
