"""Stops jobs that are no longer desired at a destination, and disowns their flows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import msgspec

from planner.diff.destination_jobs import DestinationJobs, elsewhere
from planner.diff.record import JOB, LAUNCH
from planner.model.address import Address, Kind, flow_address, job_address
from planner.model.change import Action, Change
from planner.model.desired import Desired
from planner.model.step import Disown, LaunchJob, ReconfigureJob, Step, StopJob

JobStep = LaunchJob | ReconfigureJob | StopJob
IDLE = (Action.NO_OP, Action.UNKNOWN)


def launch_that_runs(known_jobs: DestinationJobs, job: str) -> str:
    """Returns how the running job was started: as it reports, else as the registry recorded it."""
    live = known_jobs.job(job)
    if live is not None and live.spec is not None:
        return msgspec.json.encode(live.spec.launch).decode()
    entry = known_jobs.job_entry(job)
    return entry.spec.get(LAUNCH, "") if entry is not None else ""


def jobs_to_stop(
    by_address: Mapping[Address, Change], desired: Desired, found: Mapping[str, DestinationJobs]
) -> tuple[list[StopJob], list[Step]]:
    """Returns the stops and registry steps of jobs and flows that leave a destination.

    Jobs that only move to another destination are among them.
    """
    wanted = _destinations(desired)
    stops: list[StopJob] = []
    registry_steps: list[Step] = []
    named: set[Address] = set(wanted)
    for cluster, known_jobs in found.items():
        for address in known_jobs.held(desired.topology):
            change = by_address.get(address)
            if wanted.get(address) == cluster or change is None or change.action in IDLE:
                continue
            # The plain name belongs to the step where the object is desired, or to the first one.
            name = f"{address}@{cluster}" if address in named else str(address)
            named.add(address)
            needs = tuple(_steps_that_release(address, known_jobs))
            if address.kind is Kind.JOB and change.action is not Action.UPDATE:
                launch = launch_that_runs(known_jobs, address.name)
                stops.append(StopJob(f"stop:{name}", address, cluster, address.name, (), launch))
                needs = (f"stop:{name}",)
            if address in known_jobs.entries:
                # The object is registered somewhere at any moment.
                needs = (*needs, f"own:{address}")
                registry_steps.append(Disown(f"disown:{name}", address, cluster, desired.topology, needs))
    return stops, registry_steps


def _destinations(desired: Desired) -> dict[Address, str]:
    found: dict[Address, str] = {}
    for job in desired.jobs:
        if job.spec is not None:
            found[job.address] = job.spec.destination
            found.update((flow_address(name), job.spec.destination) for name in job.flows)
    return found


def _steps_that_release(address: Address, known_jobs: DestinationJobs) -> Iterator[str]:
    """Yields the ids of steps after which the flow's job no longer has it. They may not be planned."""
    entry = known_jobs.entries.get(address)
    job = entry.spec.get(JOB, "") if entry is not None else ""
    here = job_address(job)
    yield from (f"reconfigure:{here}", f"stop:{here}", f"stop:{here}@{known_jobs.cluster.name}")


def stops_before_starts(
    steps: Sequence[JobStep], stops: Sequence[StopJob], desired: Desired, found: Mapping[str, DestinationJobs]
) -> Iterator[JobStep]:
    """Makes a flow leave its old job before another job takes it over (R3).

    A job that moves ends at its old destination before it starts at the new one.
    """
    ends = {(one.cluster, one.job): one for one in (*steps, *stops) if not isinstance(one, LaunchJob)}
    moving = _jobs_moved_from(desired, found)
    for step in steps:
        if isinstance(step, StopJob):
            yield step
            continue
        losing = [ends[old] for old in sorted(moving.get(step.job, ())) if old in ends]
        # Of two jobs that hand flows to each other, neither can go first.
        gives = any((step.cluster, step.job) in old for old in moving.values())
        more = [one.id for one in losing if not (gives and _waits_for_own_job(one))]
        yield replace(step, needs=(*step.needs, *more)) if more else step


def _waits_for_own_job(step: JobStep) -> bool:
    """Returns whether the step waits for an earlier step of its own job."""
    return not isinstance(step, StopJob) or any(
        need.startswith(("reconfigure:", "launch:")) for need in step.needs
    )


def _jobs_moved_from(
    desired: Desired, found: Mapping[str, DestinationJobs]
) -> dict[str, set[tuple[str, str]]]:
    """Returns, for each job, the jobs that it or its flows come from, with their destinations."""
    moving: dict[str, set[tuple[str, str]]] = {}
    for job in desired.jobs:
        if job.spec is None or job.spec.destination not in found:
            continue
        name, destination = job.job.name, job.spec.destination
        old = moving.setdefault(name, set())
        for flow in job.flows:
            known = found[destination].flow(flow, name)
            if known is not None and known[1] != name:
                old.add((destination, known[1]))
            for place in elsewhere(flow_address(flow), destination, desired.topology, found):
                entry = place.flow_entry(flow)
                old.add((place.cluster.name, entry.spec.get(JOB, name) if entry is not None else name))
        for place in elsewhere(job.address, destination, desired.topology, found):
            old.add((place.cluster.name, name))
    return moving
