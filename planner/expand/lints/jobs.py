"""Jobs: one destination each, for a transaction cannot span clusters."""

from collections.abc import Iterator

from planner.model.address import job_address
from planner.model.diagnostic import Diagnostic, error
from planner.model.topology import Topology


def jobs(topology: Topology) -> Iterator[Diagnostic]:
    destinations: dict[str, dict[str, str]] = {}
    for flow in sorted(topology.flows.values(), key=lambda one: one.name):
        destinations.setdefault(flow.job, {}).setdefault(flow.destination_cluster, flow.name)
    for name, found in sorted(destinations.items()):
        if len(found) > 1:
            (one, first), (other, second), *_ = found.items()
            yield error(
                f"job {name} would write to {one} (flow.{first}) and to {other} (flow.{second}): a job"
                " has one destination",
                f"give flow.{second} another job, or leave job out: then it is {other}",
                address=str(job_address(name)),
                source=topology.flows[second].source,
                code="job-destinations",
            )
