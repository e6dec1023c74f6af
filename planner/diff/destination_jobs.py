"""Flows and jobs beside what is known of them at their destination: what was applied, and what runs."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from planner.diff.record import JOB, recorded_flow
from planner.model.address import Address, Kind, flow_address, job_address
from planner.model.change import Action, Change
from planner.model.desired import Desired, DesiredJob
from planner.model.observed import LiveJob, Observed, ObservedCluster
from planner.model.owned import RegistryEntry
from runtime.contract.spec.jobspec import FlowSpec

JOBS = "jobs"  # the key of ObservedCluster.unreadable
REGISTRY = "registry"


@dataclass(frozen=True, slots=True)
class DestinationJobs:
    """One destination: its registry's entries of flows and jobs, and its jobs."""

    cluster: ObservedCluster
    entries: Mapping[Address, RegistryEntry]

    @staticmethod
    def at(cluster: ObservedCluster) -> "DestinationJobs":
        kinds = (Kind.FLOW, Kind.JOB)
        return DestinationJobs(
            cluster, {one.address: one for one in cluster.owned if one.address.kind in kinds}
        )

    def job(self, name: str) -> LiveJob | None:
        return self.cluster.job(name)

    def job_entry(self, name: str) -> RegistryEntry | None:
        return self.entries.get(job_address(name))

    def flow_entry(self, name: str) -> RegistryEntry | None:
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

    def holds(self, address: Address, topology: str) -> bool:
        """Whether this is the topology's: written down as such, or a job that lives and says so."""
        entry = self.entries.get(address)
        if entry is not None or address.kind is not Kind.JOB:
            return entry is not None and entry.topology == topology
        running = self.job(address.name)
        return running is not None and running.live and running.topology == topology

    def held(self, topology: str) -> list[Address]:
        jobs = (job_address(one.name) for one in self.cluster.jobs)
        return sorted(address for address in {*self.entries, *jobs} if self.holds(address, topology))

    def has(self, flow: str, job: str) -> bool:
        """It is written down here, or its job copies it."""
        running = self.job(job)
        copies = running is not None and running.live and running.flow(flow) is not None
        return copies or self.flow_entry(flow) is not None

    def runs(self, job: str) -> bool:
        running = self.job(job)
        return running is not None and running.live

    @property
    def unreadable(self) -> str | None:
        """Why nothing can be said of its jobs."""
        return self.cluster.unreadable.get(JOBS) or self.cluster.unreadable.get(REGISTRY)


def destination_jobs(observed: Observed) -> dict[str, DestinationJobs]:
    """Of every cluster that could be read."""
    return {
        name: DestinationJobs.at(one)
        for name in sorted(observed.clusters)
        if (one := observed.reachable(name))
    }


def elsewhere(
    address: Address, destination: str, topology: str, found: Mapping[str, DestinationJobs]
) -> tuple[DestinationJobs, ...]:
    """Other destinations that hold it: a job and its flows have one, so there it ends."""
    return tuple(one for name, one in found.items() if name != destination and one.holds(address, topology))


def left_over(
    kind: Kind, wanted: Collection[str], topology: str, found: Mapping[str, DestinationJobs]
) -> Iterator[tuple[Address, DestinationJobs]]:
    """What nothing names any more, each once: where it runs, if it does."""
    places: dict[Address, list[DestinationJobs]] = {}
    for standing in found.values():
        for address in standing.held(topology):
            if address.kind is kind and address.name not in wanted:
                places.setdefault(address, []).append(standing)
    for address, some in places.items():
        yield address, next((one for one in some if one.runs(address.name)), some[0])


def blocked(address: Address, standing: DestinationJobs, topology: str) -> Change | None:
    """What keeps anything from being said of it there: somebody else's, or unreadable."""
    entry = standing.entries.get(address)
    if entry is not None and entry.topology != topology:
        return Change(address, Action.NO_OP, f"owned by topology {entry.topology!r}")
    if standing.unreadable:
        return Change(address, Action.UNKNOWN, f"(unknown: {standing.unreadable})")
    live = standing.job(address.name) if address.kind is Kind.JOB else None
    if live is not None and live.live and live.topology != topology:
        return Change(address, Action.NO_OP, f"run by topology {live.topology!r}")
    return None


def names_of(places: Iterable[DestinationJobs]) -> str:
    return " and ".join(one.cluster.name for one in places)


def wanted_jobs(desired: Desired) -> Iterator[tuple[DesiredJob, str]]:
    """Each with its destination; one that contradicts itself is an error of the topology."""
    for job in desired.jobs:
        if job.spec is not None:
            yield job, job.spec.destination
