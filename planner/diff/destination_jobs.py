"""The flows and jobs of a destination: what the registry there recorded, and what runs."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from planner.diff.record import JOB, recorded_flow
from planner.model.address import Address, Kind, flow_address, job_address
from planner.model.change import Action, Change, FieldChange
from planner.model.desired import Desired, DesiredJob
from planner.model.observed import LiveJob, Observed, ObservedCluster
from planner.model.owned import RegistryEntry
from runtime.contract.spec.jobspec import FlowSpec

JOBS = "jobs"  # the key of ObservedCluster.unreadable
REGISTRY = "registry"
DESTINATION = "destination"


@dataclass(frozen=True, slots=True)
class DestinationJobs:
    """A destination with its registry's entries of flows and jobs, and with its jobs."""

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
        """Returns the flow as it is now, and the name of its job.

        A job that runs is believed first, then the registry, then a job that no longer runs.
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
        """Returns whether the topology owns this object, by the registry or by a running job."""
        entry = self.entries.get(address)
        if entry is not None or address.kind is not Kind.JOB:
            return entry is not None and entry.topology == topology
        running = self.job(address.name)
        return running is not None and running.live and running.topology == topology

    def held(self, topology: str) -> list[Address]:
        """Returns the flows and jobs that the topology owns here."""
        jobs = (job_address(one.name) for one in self.cluster.jobs)
        return sorted(address for address in {*self.entries, *jobs} if self.holds(address, topology))

    def has(self, flow: str, job: str) -> bool:
        """Returns whether the flow is recorded here, or copied by its job."""
        running = self.job(job)
        copies = running is not None and running.live and running.flow(flow) is not None
        return copies or self.flow_entry(flow) is not None

    def runs(self, job: str) -> bool:
        """Returns whether the job's heartbeat is fresh."""
        running = self.job(job)
        return running is not None and running.live

    @property
    def unreadable(self) -> str | None:
        """Why the jobs of this destination could not be read; None where they could."""
        return self.cluster.unreadable.get(JOBS) or self.cluster.unreadable.get(REGISTRY)


def destination_jobs(observed: Observed) -> dict[str, DestinationJobs]:
    """Returns the flows and jobs of every cluster that could be read, by its name."""
    return {
        name: DestinationJobs.at(one)
        for name in sorted(observed.clusters)
        if (one := observed.reachable(name))
    }


def elsewhere(
    address: Address, destination: str, topology: str, found: Mapping[str, DestinationJobs]
) -> tuple[DestinationJobs, ...]:
    """Returns the other destinations that hold the object. It ends at those: a flow has one destination."""
    return tuple(one for name, one in found.items() if name != destination and one.holds(address, topology))


def left_over(
    kind: Kind, wanted: Collection[str], topology: str, found: Mapping[str, DestinationJobs]
) -> Iterator[tuple[Address, DestinationJobs]]:
    """Yields each object that is no longer desired, with the destination where it runs or is recorded."""
    places: dict[Address, list[DestinationJobs]] = {}
    for known_jobs in found.values():
        for address in known_jobs.held(topology):
            if address.kind is kind and address.name not in wanted:
                places.setdefault(address, []).append(known_jobs)
    for address, some in places.items():
        yield address, next((one for one in some if one.runs(address.name)), some[0])


def blocked(address: Address, known_jobs: DestinationJobs, topology: str) -> Change | None:
    """Returns the change of an object that another topology owns, or that could not be read; else None."""
    entry = known_jobs.entries.get(address)
    if entry is not None and entry.topology != topology:
        return Change(address, Action.NO_OP, f"owned by topology {entry.topology!r}")
    if known_jobs.unreadable:
        return Change(address, Action.UNKNOWN, f"(unknown: {known_jobs.unreadable})")
    live = known_jobs.job(address.name) if address.kind is Kind.JOB else None
    if live is not None and live.live and live.topology != topology:
        return Change(address, Action.NO_OP, f"run by topology {live.topology!r}")
    return None


def names_of(places: Iterable[DestinationJobs]) -> str:
    return " and ".join(one.cluster.name for one in places)


def forgotten_at_destination(change: Change, before: Sequence[DestinationJobs], destination: str) -> Change:
    """Adds to a change that other destinations forget the object, which an interrupted apply left undone."""
    note = f"no longer remembered at {names_of(before)}"
    field = FieldChange(("recorded", DESTINATION), names_of(before), destination, note=note)
    idle = change.action is Action.NO_OP
    return replace(
        change,
        action=Action.UPDATE if idle else change.action,
        reason="only what is remembered of it changes" if idle else change.reason,
        fields=(*change.fields, field),
    )


def wanted_jobs(desired: Desired) -> Iterator[tuple[DesiredJob, str]]:
    """Yields each job with its destination. A job without a spec is reported as an error elsewhere."""
    for job in desired.jobs:
        if job.spec is not None:
            yield job, job.spec.destination
