"""Flows and jobs beside what is known of them at their destination: what was applied, and what runs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from planner.diff.record import JOB, recorded_flow
from planner.model.address import Address, Kind, flow_address, job_address
from planner.model.desired import Desired, DesiredJob
from planner.model.live import LiveJob
from planner.model.observed import Observed, ObservedCluster
from planner.model.owned import Owned
from runtime.contract.jobspec import FlowSpec

JOBS = "jobs"  # the key of ObservedCluster.unreadable
REGISTRY = "registry"


@dataclass(frozen=True, slots=True)
class Standing:
    """One destination: its registry's entries of flows and jobs, and its jobs."""

    cluster: ObservedCluster
    entries: Mapping[Address, Owned]

    @staticmethod
    def at(cluster: ObservedCluster) -> "Standing":
        kinds = (Kind.FLOW, Kind.JOB)
        return Standing(cluster, {one.address: one for one in cluster.owned if one.address.kind in kinds})

    def job(self, name: str) -> LiveJob | None:
        return self.cluster.job(name)

    def job_entry(self, name: str) -> Owned | None:
        return self.entries.get(job_address(name))

    def flow_entry(self, name: str) -> Owned | None:
        return self.entries.get(flow_address(name))

    def flow(self, name: str, job: str) -> tuple[FlowSpec, str] | None:
        """The flow as it is, and its job: as a job that lives runs it, else as it was applied last, else as a
        job ran it that is gone.
        """
        entry = self.flow_entry(name)
        owner = entry.spec.get(JOB, job) if entry is not None else job
        running = self.job(owner)
        runs = running.flow(name) if running is not None else None
        if runs is not None and running is not None and running.live:
            return runs, owner
        recorded = recorded_flow(entry)
        if recorded is not None:
            return recorded, owner
        return (runs, owner) if runs is not None else None

    @property
    def unreadable(self) -> str | None:
        """Why nothing can be said of its jobs."""
        return self.cluster.unreadable.get(JOBS) or self.cluster.unreadable.get(REGISTRY)


def standings(observed: Observed) -> dict[str, Standing]:
    """Of every cluster that could be read."""
    return {name: Standing.at(one) for name in sorted(observed.clusters) if (one := observed.reachable(name))}


def wanted_jobs(desired: Desired) -> Iterator[tuple[DesiredJob, str]]:
    """Each with its destination; one that contradicts itself is an error of the topology."""
    for job in desired.jobs:
        if job.spec is not None:
            yield job, job.spec.destination
