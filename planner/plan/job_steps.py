"""Changes of flows and jobs → steps: launch, reconfigure, stop, and what the registry then remembers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import msgspec

from planner.diff.record import JOB, LAUNCH, flow_entry, job_entry
from planner.diff.running import Standing, standings
from planner.model.address import Address, Kind, flow_address, topic_address
from planner.model.change import Action, Change
from planner.model.desired import RUNNING, Desired, DesiredFlow, DesiredJob
from planner.model.observed import Observed
from planner.model.step import (
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
from runtime.contract import jobspec
from runtime.contract.jobspec import JobSpec

JobStep = LaunchJob | ReconfigureJob | StopJob
_IDLE = (Action.NO_OP, Action.UNKNOWN)


def job_steps(
    changes: Sequence[Change], desired: Desired, observed: Observed, others: Sequence[Step]
) -> tuple[Step, ...]:
    """`others` are the steps of topics and ACLs: what a job copies into is there before the job."""
    found = standings(observed)
    by_address = {change.address: change for change in changes}
    steps: list[JobStep] = []
    book: list[Step] = []
    for job in desired.jobs:
        change = by_address.get(job.address)
        if job.spec is None or job.spec.destination not in found:
            continue
        own: list[JobStep] = []
        if change is not None:
            standing = found[job.spec.destination]
            own += _of_wanted(job, job.spec, change, standing, desired, others, by_address)
            book += _book(job, job.spec, change, own, standing, desired.topology)
        steps += own
        book += _flow_book(job, job.spec, by_address, own, desired.topology)
    left, forgotten = _left(by_address, desired, found)
    ordered = _losing_first([*steps, *left], desired, found)
    made = [*_turning_last(list(ordered), desired), *book, *forgotten]
    known = {step.id for step in (*made, *others)}
    return tuple(replace(step, needs=tuple(need for need in step.needs if need in known)) for step in made)


def _of_wanted(
    job: DesiredJob,
    spec: JobSpec,
    change: Change,
    standing: Standing,
    desired: Desired,
    others: Sequence[Step],
    flow_changes: Mapping[Address, Change],
) -> Iterator[JobStep]:
    name, cluster, address = job.job.name, spec.destination, job.address
    text = jobspec.encode(spec).decode()
    needs = _needed(spec, desired, others)
    flows = {one.flow.name: one for one in desired.flows}
    topics = {one.name: _copied(flows.get(one.name)) for one in spec.flows if one.state == "active"}
    match change.action:
        case Action.CREATE:
            yield LaunchJob(f"launch:{address}", address, cluster, name, text, needs, topics)
        case Action.REPLACE:
            stop = StopJob(f"stop:{address}", address, cluster, name, needs, _launch(standing, name))
            yield stop
            yield LaunchJob(f"launch:{address}", address, cluster, name, text, (*needs, stop.id), topics)
        case Action.UPDATE if _is_told(change):
            yield ReconfigureJob(f"reconfigure:{address}", address, cluster, name, text, needs, topics)
        case Action.DELETE:
            # Its flows end in order, and their ledger says so, before the job goes: by the one that runs, or
            # by a new one that does nothing else.
            live = standing.job(name)
            last: tuple[JobStep, ...] = ()
            if live is not None and live.live:
                last = (
                    ReconfigureJob(f"reconfigure:{address}", address, cluster, name, text, needs, topics),
                )
            elif any(_ends(flow_changes.get(flow_address(one))) for one in job.flows):
                last = (LaunchJob(f"launch:{address}", address, cluster, name, text, needs, topics),)
            yield from last
            told = tuple(one.id for one in last)
            yield StopJob(
                f"stop:{address}", address, cluster, name, told, _stop_by(last, spec, standing, name)
            )
        case _:
            pass


def _ends(change: Change | None) -> bool:
    """It is promoted or failed over by this plan."""
    return (
        change is not None
        and change.action is Action.UPDATE
        and any(one.path == ("state",) and one.new not in RUNNING for one in change.fields)
    )


def _stop_by(before: Sequence[JobStep], spec: JobSpec, standing: Standing, job: str) -> str:
    """The launcher that the job to stop was started by."""
    if any(isinstance(one, LaunchJob) for one in before):
        return msgspec.json.encode(spec.launch).decode()
    return _launch(standing, job)


def _is_told(change: Change) -> bool:
    return not change.fields or any(one.path[0] != "recorded" for one in change.fields)


def _copied(flow: DesiredFlow | None) -> int:
    return len(flow.topics) if flow is not None and flow.selection_known else 0


def _launch(standing: Standing, job: str) -> str:
    """How the job that runs was started: as it says, else as it was recorded."""
    live = standing.job(job)
    if live is not None and live.spec is not None:
        return msgspec.json.encode(live.spec.launch).decode()
    entry = standing.job_entry(job)
    return entry.spec.get(LAUNCH, "") if entry is not None else ""


def _needed(spec: JobSpec, desired: Desired, others: Sequence[Step]) -> tuple[str, ...]:
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
        if (isinstance(step, CreateTopic | GrowPartitions | AlterConfigs) and step.address in addresses)
        or (isinstance(step, CreateAcl) and step.cluster in spec.clusters)
    )


def _book(
    job: DesiredJob,
    spec: JobSpec,
    change: Change,
    own: Sequence[JobStep],
    standing: Standing,
    topology: str,
) -> Iterator[Step]:
    needs = tuple(step.id for step in own)
    if change.action is Action.DELETE:
        if standing.job_entry(job.job.name) is not None:
            yield Disown(f"disown:{job.address}", job.address, spec.destination, topology, needs)
    elif change.action not in _IDLE or change.adopted:
        entry = job_entry(spec, topology)
        yield Own(f"own:{job.address}", job.address, spec.destination, entry, needs)


def _flow_book(
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
        if change is None or (change.action in _IDLE and not change.adopted):
            continue
        entry = flow_entry(flow, job.job.name, topology)
        yield Own(f"own:{address}", address, spec.destination, entry, tuple(step.id for step in own))


def _left(
    by_address: Mapping[Address, Change], desired: Desired, found: Mapping[str, Standing]
) -> tuple[list[JobStep], list[Step]]:
    """Jobs that nothing names any more are stopped, and flows that left are forgotten after them."""
    wanted = {job.address for job in desired.jobs}
    steps: list[JobStep] = []
    book: list[Step] = []
    for cluster, standing in found.items():
        for address, entry in sorted(standing.entries.items()):
            change = by_address.get(address)
            if entry.topology != desired.topology or change is None or address in wanted:
                continue
            if change.action is not Action.DELETE:
                continue
            needs: tuple[str, ...] = ()
            if address.kind is Kind.JOB:
                stop = StopJob(
                    f"stop:{address}", address, cluster, address.name, (), _launch(standing, address.name)
                )
                steps.append(stop)
                needs = (stop.id,)
            else:
                needs = tuple(_lets_go(entry.spec.get(JOB, ""), by_address))
            book.append(Disown(f"disown:{address}", address, cluster, entry.topology, needs))
    return steps, book


def _lets_go(job: str, by_address: Mapping[Address, Change]) -> Iterator[str]:
    """The step after which the job no longer has the flow; one that is not planned is no need."""
    for address, change in by_address.items():
        if address.kind is Kind.JOB and address.name == job:
            match change.action:
                case Action.UPDATE:
                    yield f"reconfigure:{address}"
                case Action.DELETE | Action.REPLACE:
                    yield f"stop:{address}"
                case _:
                    pass


def _losing_first(
    steps: Sequence[JobStep], desired: Desired, found: Mapping[str, Standing]
) -> Iterable[JobStep]:
    """A flow that moves leaves its old job before another one takes it over (R3)."""
    ends = {step.job: step for step in steps if isinstance(step, ReconfigureJob | StopJob)}
    moving = _moving(desired, found)
    for step in steps:
        if isinstance(step, StopJob):
            yield step
            continue
        losing = [ends[old].id for old in moving.get(step.job, ()) if old in ends]
        gives = any(step.job in old for old in moving.values())
        more = [one for one in losing if not (gives and one.startswith("reconfigure:"))]
        yield replace(step, needs=(*step.needs, *more)) if more else step


def _turning_last(steps: Sequence[JobStep], desired: Desired) -> Iterable[JobStep]:
    """A flow that comes back begins where its opposite ended: that ends first, with its job if it must."""
    jobs = {name: job.job.name for job in desired.jobs for name in job.flows}
    flows = {one.flow.name: one.flow for one in desired.flows}
    by_job: dict[str, list[JobStep]] = {}
    for step in steps:
        by_job.setdefault(step.job, []).append(step)
    after: dict[str, set[str]] = {}
    for flow in flows.values():
        original = flows.get(flow.reverse_of or "")
        if original is None or (flow.state in RUNNING) == (original.state in RUNNING):
            continue
        ends, comes = (original, flow) if flow.state in RUNNING else (flow, original)
        if jobs[comes.name] not in after.get(jobs[ends.name], ()):
            after.setdefault(jobs[comes.name], set()).add(jobs[ends.name])
    for step in steps:
        needs = [one.id for job in sorted(after.get(step.job, ())) for one in by_job.get(job, ())]
        yield replace(step, needs=(*step.needs, *needs)) if needs else step


def _moving(desired: Desired, found: Mapping[str, Standing]) -> dict[str, set[str]]:
    """For each job the jobs that its flows come from."""
    moving: dict[str, set[str]] = {}
    for job in desired.jobs:
        standing = found.get(job.spec.destination) if job.spec is not None else None
        for name in job.flows if standing is not None else ():
            known = standing.flow(name, job.job.name) if standing is not None else None
            if known is not None and known[1] != job.job.name:
                moving.setdefault(job.job.name, set()).add(known[1])
    return moving
