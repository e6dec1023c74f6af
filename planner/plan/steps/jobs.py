"""Changes of flows and jobs → steps: launch, reconfigure, stop, and what the registry then remembers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import msgspec

from planner.diff.destination_jobs import DestinationJobs, destination_jobs
from planner.diff.record import flow_entry, job_entry
from planner.diff.spec_fields import with_files_of
from planner.model.address import Address, flow_address, topic_address
from planner.model.change import Action, Change
from planner.model.desired import Desired, DesiredFlow, DesiredJob
from planner.model.observed import Observed
from planner.model.step import (
    RESTORE,
    AlterConfigs,
    CreateAcl,
    CreateTopic,
    Disown,
    GrowPartitions,
    LaunchJob,
    Own,
    ReconfigureJob,
    Step,
    StopJob,
)
from planner.model.topology import RUNNING
from planner.plan.steps.leaving import IDLE, JobStep, jobs_to_stop, launch_that_runs, stops_before_starts
from runtime.contract.spec import jobspec
from runtime.contract.spec.jobspec import JobSpec


def job_steps(
    changes: Sequence[Change], desired: Desired, observed: Observed, others: Sequence[Step]
) -> tuple[Step, ...]:
    """`others` are the steps of topics and ACLs: what a job copies into is there before the job."""
    found = destination_jobs(observed)
    by_address = {change.address: change for change in changes}
    steps: list[JobStep] = []
    registry_steps: list[Step] = []
    for job in desired.jobs:
        change = by_address.get(job.address)
        if job.spec is None or job.spec.destination not in found:
            continue
        own: list[JobStep] = []
        if change is not None:
            known_jobs = found[job.spec.destination]
            own += _job_steps(job, job.spec, change, known_jobs, desired, others, by_address)
            registry_steps += _job_registry_steps(job, job.spec, change, own, known_jobs, desired.topology)
            own = _own_before_launch(own, registry_steps) if change.action is Action.CREATE else own
        steps += own
        registry_steps += _flow_registry_steps(job, job.spec, by_address, own, desired.topology)
    stops, disowned = jobs_to_stop(by_address, desired, found)
    ordered = list(stops_before_starts(steps, stops, desired, found))
    made = [*stops, *_start_reversed_flows_last(ordered, desired), *registry_steps, *disowned]
    known = {step.id for step in (*made, *others)}
    return tuple(replace(step, needs=tuple(need for need in step.needs if need in known)) for step in made)


def _job_steps(
    job: DesiredJob,
    spec: JobSpec,
    change: Change,
    known_jobs: DestinationJobs,
    desired: Desired,
    others: Sequence[Step],
    flow_changes: Mapping[Address, Change],
) -> Iterator[JobStep]:
    name, cluster, address = job.job.name, spec.destination, job.address
    text = jobspec.encode(spec).decode()
    needs = _needed_steps(spec, desired, others)
    flows = {one.flow.name: one for one in desired.flows}
    topics = {one.name: _copied(flows.get(one.name)) for one in spec.flows if one.state == "active"}
    match change.action:
        case Action.CREATE:
            yield LaunchJob(f"launch:{address}", address, cluster, name, text, needs, topics)
        case Action.REPLACE:
            # One that moves here has nothing to stop here.
            stop = StopJob(
                f"stop:{address}", address, cluster, name, needs, launch_that_runs(known_jobs, name)
            )
            yield from (stop,) if known_jobs.runs(name) else ()
            yield LaunchJob(f"launch:{address}", address, cluster, name, text, (*needs, stop.id), topics)
        case Action.UPDATE if _spec_changed(spec, known_jobs):
            spec_text = _spec_to_send(spec, known_jobs)
            yield ReconfigureJob(f"reconfigure:{address}", address, cluster, name, spec_text, needs, topics)
        case Action.DELETE if known_jobs.job_entry(name) is not None or known_jobs.runs(name):
            # Its flows end in order, and their ledger says so, before the job goes: by the one that runs, or
            # by a new one that does nothing else.
            last: tuple[JobStep, ...] = ()
            if known_jobs.runs(name):
                spec_text = jobspec.encode(_as_running_job_knows(spec, known_jobs)).decode()
                last = (
                    ReconfigureJob(
                        f"reconfigure:{address}", address, cluster, name, spec_text, needs, topics
                    ),
                )
            elif any(_ends(flow_changes.get(flow_address(one))) for one in job.flows):
                last = (LaunchJob(f"launch:{address}", address, cluster, name, text, needs, topics),)
            yield from last
            ended = tuple(one.id for one in last)
            yield StopJob(
                f"stop:{address}",
                address,
                cluster,
                name,
                ended,
                _launch_to_stop(last, spec, known_jobs, name),
            )
        case _:
            pass


def _as_running_job_knows(spec: JobSpec, known_jobs: DestinationJobs) -> JobSpec:
    """The spec with clusters as the running job reaches them, which is all that it takes over before it ends.

    A flow from a cluster that it does not know was never copied by it: nothing of that flow is to be ended.
    """
    live = known_jobs.job(spec.job)
    if live is None or live.spec is None:
        return spec
    known = live.spec.clusters
    flows = [flow for flow in spec.flows if flow.source in known]
    clusters = {name: known[name] for name in spec.clusters if name in known}
    return msgspec.structs.replace(spec, flows=flows, clusters=clusters)


def _ends(change: Change | None) -> bool:
    """It is promoted or failed over by this plan."""
    return (
        change is not None
        and change.action is Action.UPDATE
        and any(one.path == ("state",) and one.new not in RUNNING for one in change.fields)
    )


def _launch_to_stop(before: Sequence[JobStep], spec: JobSpec, known_jobs: DestinationJobs, job: str) -> str:
    """The launcher that the job to stop was started by."""
    if any(isinstance(one, LaunchJob) for one in before):
        return msgspec.json.encode(spec.launch).decode()
    return launch_that_runs(known_jobs, job)


def _spec_changed(spec: JobSpec, known_jobs: DestinationJobs) -> bool:
    live = known_jobs.job(spec.job)
    return live is not None and live.spec != with_files_of(live.spec, spec)


def _spec_to_send(spec: JobSpec, known_jobs: DestinationJobs) -> str:
    """Returns the spec for a job that runs: it keeps the paths that exist on its machine."""
    live = known_jobs.job(spec.job)
    return jobspec.encode(with_files_of(live.spec if live is not None else None, spec)).decode()


def _copied(flow: DesiredFlow | None) -> int:
    return len(flow.topics) if flow is not None and flow.selection_known else 0


def _needed_steps(spec: JobSpec, desired: Desired, others: Sequence[Step]) -> tuple[str, ...]:
    """The topics at both ends of its flows, and every ACL there: settings come before data."""
    own = {flow.name for flow in spec.flows}
    addresses: set[Address] = set()
    for one in desired.flows:
        if one.flow.name in own:
            for here, there in one.topics:
                addresses.add(topic_address(one.flow.source_cluster, here))
                addresses.add(topic_address(one.flow.destination_cluster, there))
    return tuple(
        step.id
        for step in others
        if (
            isinstance(step, CreateTopic | GrowPartitions | AlterConfigs)
            and step.address in addresses
            and not step.id.startswith(RESTORE)
        )
        or (isinstance(step, CreateAcl) and step.cluster in spec.clusters)
    )


def _job_registry_steps(
    job: DesiredJob,
    spec: JobSpec,
    change: Change,
    own: Sequence[JobStep],
    known_jobs: DestinationJobs,
    topology: str,
) -> Iterator[Step]:
    needs = tuple(step.id for step in own if change.action is not Action.CREATE)
    if change.action is Action.DELETE:
        if known_jobs.job_entry(job.job.name) is not None:
            yield Disown(f"disown:{job.address}", job.address, spec.destination, topology, needs)
    elif change.action not in IDLE or change.adopted:
        entry = job_entry(spec, topology)
        yield Own(f"own:{job.address}", job.address, spec.destination, entry, needs)


def _own_before_launch(steps: Sequence[JobStep], registry_steps: Sequence[Step]) -> list[JobStep]:
    """A job is this topology's before it begins: an apply that is cut short leaves none that a later plan, or
    destroy, does not know of.
    """
    known = {one.address: one.id for one in registry_steps if isinstance(one, Own)}
    return [
        replace(step, needs=(*step.needs, known[step.address]))
        if isinstance(step, LaunchJob) and step.address in known
        else step
        for step in steps
    ]


def _flow_registry_steps(
    job: DesiredJob,
    spec: JobSpec,
    by_address: Mapping[Address, Change],
    own: Sequence[JobStep],
    topology: str,
) -> Iterator[Step]:
    """A flow is remembered once its job has it."""
    for flow in spec.flows:
        address = flow_address(flow.name)
        change = by_address.get(address)
        if change is None or (change.action in IDLE and not change.adopted):
            continue
        entry = flow_entry(flow, job.job.name, topology)
        yield Own(f"own:{address}", address, spec.destination, entry, tuple(step.id for step in own))


def _start_reversed_flows_last(steps: Sequence[JobStep], desired: Desired) -> Iterable[JobStep]:
    """A flow that comes back begins where its opposite ended, so the job that ends the opposite goes first.

    Where jobs wait for each other in a ring none can be the first: those are told at the same time. Nothing
    is lost by that: a driver starts a flow that comes back only once its opposite ended by the ledger.
    """
    by_job: dict[str, list[JobStep]] = {}
    for step in steps:
        by_job.setdefault(step.job, []).append(step)
    reversal_order = _reversal_order(desired)
    waits = _waiting_jobs(by_job)
    for job, others in reversal_order.items():
        waits.setdefault(job, set()).update(others)
    for step in steps:
        before = [
            job for job in sorted(reversal_order.get(step.job, ())) if not _reaches(job, step.job, waits)
        ]
        needs = [one.id for job in before for one in by_job.get(job, ())]
        yield replace(step, needs=(*step.needs, *needs)) if needs else step


def _reversal_order(desired: Desired) -> dict[str, set[str]]:
    """For each job the jobs that end a flow whose opposite comes back in it."""
    jobs = {name: job.job.name for job in desired.jobs for name in job.flows}
    flows = {one.flow.name: one.flow for one in desired.flows}
    reversal_order: dict[str, set[str]] = {}
    for flow in flows.values():
        original = flows.get(flow.reverse_of or "")
        if original is None or (flow.state in RUNNING) == (original.state in RUNNING):
            continue
        ends, comes = (original, flow) if flow.state in RUNNING else (flow, original)
        if jobs[comes.name] != jobs[ends.name]:
            reversal_order.setdefault(jobs[comes.name], set()).add(jobs[ends.name])
    return reversal_order


def _waiting_jobs(by_job: Mapping[str, Sequence[JobStep]]) -> dict[str, set[str]]:
    """For each job those whose steps its own steps need already."""
    owner = {step.id: job for job, steps in by_job.items() for step in steps}
    return {
        job: {owner[need] for step in steps for need in step.needs if need in owner} - {job}
        for job, steps in by_job.items()
    }


def _reaches(start: str, end: str, waits: Mapping[str, Iterable[str]]) -> bool:
    """Returns whether `start` waits for `end`, directly or over other jobs."""
    seen, pending = {start}, [start]
    while pending:
        for job in waits.get(pending.pop(), ()):
            if job == end:
                return True
            if job not in seen:
                seen.add(job)
                pending.append(job)
    return False
