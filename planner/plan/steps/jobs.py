"""Flows and jobs: what follows from their changes, and the steps: launch, reconfigure and stop.

Jobs that are no longer desired at a destination are stopped, and their flows are disowned.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from planner.diff.jobs import with_files_of
from planner.diff.record import (
    JOB,
    LAUNCH,
    STATE,
    DestinationJobs,
    destination_jobs,
    elsewhere,
    flow_entry,
    job_entry,
)
from planner.diff.typed_values import launcher_values, new_job_values
from planner.model.address import Address, Kind, flow_address, job_address, topic_address
from planner.model.change import Action, Change, Value
from planner.model.desired import Desired, DesiredFlow, DesiredJob
from planner.model.observed import LiveJob, Observed, ObservedCluster, RegistryEntry
from planner.model.step import ApplyRecord, Milestone, Step, Undone
from planner.plan.object_kind import ObjectKind, SeenObject, applied_differently, other_owner, other_value
from planner.plan.steps.registry import NOT_READABLE, Disown, Own
from runtime.contract.spec import jobspec
from runtime.contract.spec.flow import RUNNING
from runtime.contract.spec.jobspec import JobSpec, LaunchSpec

IDLE = (Action.NO_OP, Action.UNKNOWN)


@dataclass(frozen=True, slots=True)
class JobStep(Step):
    """A step about one job."""

    job: str

    @property
    def subject(self) -> str:
        return "job"

    def undo(self, now: ObservedCluster, entry: RegistryEntry | None, applied: ApplyRecord) -> Undone:
        return Undone(
            why_not="a job's spec comes from the topology alone",
            hint="revert the edit of the topology, then apply",
        )


@dataclass(frozen=True, slots=True)
class RunJob(JobStep):
    """A step after which a job runs by `spec`, which is its job spec as JSON text.

    `topics`: how many topics the plan knows, by flow. The job copies when it has found as many.
    """

    spec: str
    topics: Mapping[str, int] = field(default_factory=dict)

    def details(self, hidden: Collection[str]) -> Iterator[str]:
        yield NOT_READABLE if self._spec() is None else ""

    def values(self) -> Mapping[str, Value]:
        spec = self._spec()
        return new_job_values(spec) if spec is not None else {}

    @property
    def depends_on(self) -> Iterable[Address]:
        """The spec follows from all of the job's flows."""
        return (self.address, *(flow_address(flow.name) for flow in jobspec.decode(self.spec).flows))

    @property
    def noted(self) -> Step:
        """Leaves out the job spec: a journal record has a size limit, and the registry holds it."""
        return replace(self, spec="{}", needs=())

    def _spec(self) -> JobSpec | None:
        try:
            return jobspec.decode(self.spec)
        except jobspec.BadJobSpec:
            return None

    def no_longer_done(
        self, now: ObservedCluster, entry: RegistryEntry | None, superseded: Collection[str]
    ) -> Iterator[str]:
        live = now.job(self.job)
        if live is None or not live.live:
            yield "does not run any more"
        elif live.spec != jobspec.decode(self.spec):
            yield "was reconfigured since"


@dataclass(frozen=True, slots=True)
class LaunchJob(RunJob):
    """Starts a job that is not running."""

    verb = "launch"
    past = "launched"
    in_progress = "launching"

    @property
    def milestone(self) -> Milestone | None:
        return Milestone.JOB_LAUNCHED

    def undo(self, now: ObservedCluster, entry: RegistryEntry | None, applied: ApplyRecord) -> Undone:
        """Stops the job. Its ledger stays, so a job that is started later continues from there."""
        live = now.job(self.job)
        if live is None or not live.live:
            return Undone()
        launch = msgspec.json.encode(live.spec.launch).decode() if live.spec is not None else ""
        stop = StopJob(f"stop:{self.address}", self.address, self.cluster, self.job, launch)
        return Undone(Change(self.address, Action.DELETE, applied.undoing), (stop,))


@dataclass(frozen=True, slots=True)
class ReconfigureJob(RunJob):
    """Sends a running job its new spec through its control topic."""

    verb = "reconfigure"
    past = "reconfigured"
    in_progress = "updating"


@dataclass(frozen=True, slots=True)
class StopJob(JobStep):
    """Stops a job. `launch` is how it was started, as JSON text: the same launcher stops it."""

    verb = "stop"
    past = "stopped"
    in_progress = "stopping"

    launch: str = ""

    def details(self, hidden: Collection[str]) -> Iterator[str]:
        yield NOT_READABLE if launch_of(self.launch) is None else ""

    def values(self) -> Mapping[str, Value]:
        launch = launch_of(self.launch)
        return launcher_values(launch) if launch is not None else {}

    def no_longer_done(
        self, now: ObservedCluster, entry: RegistryEntry | None, superseded: Collection[str]
    ) -> Iterator[str]:
        live = now.job(self.job)
        yield from ("runs again",) if live is not None and live.live else ()


class FlowKind(ObjectKind):
    """Flows, at their destination: their steps are those of their job, and their registry entry."""

    def difference(
        self, then: SeenObject, now: SeenObject, keys: Collection[str], steps: Sequence[Step]
    ) -> str:
        return other_owner(then, now) or _other_state(then.entry, now.entry) or applied_differently(then, now)


def _other_state(then: RegistryEntry | None, now: RegistryEntry | None) -> str:
    before, after = (None if entry is None else entry.spec.get(STATE) for entry in (then, now))
    return "" if before == after else other_value(STATE, before or "not set", after or "not set")


class JobKind(ObjectKind):
    """Jobs, at their destination."""

    def difference(
        self, then: SeenObject, now: SeenObject, keys: Collection[str], steps: Sequence[Step]
    ) -> str:
        """Of a job that is stopped for good it does not matter whether it runs now."""
        jobs = [step for step in steps if isinstance(step, JobStep)]
        ends = bool(jobs) and all(isinstance(step, StopJob) for step in jobs)
        return (
            ("" if ends else _runs_otherwise(_running(then), _running(now)))
            or other_owner(then, now)
            or applied_differently(then, now)
        )


def _running(seen: SeenObject) -> LiveJob | None:
    live = seen.cluster.job(seen.address.name)
    return live if live is not None and live.live else None


def _runs_otherwise(then: LiveJob | None, now: LiveJob | None) -> str:
    if then is None and now is None:
        return ""
    if then is None:
        return "runs now, and did not run when the plan was made"
    if now is None:
        return "does not run any more"
    if then.driver != now.driver:
        return "was started again since the plan was made"
    return "was reconfigured since the plan was made" if then.spec != now.spec else ""


def launch_that_runs(known_jobs: DestinationJobs, job: str) -> str:
    """Returns how the running job was started: as it reports, else as the registry recorded it."""
    live = known_jobs.job(job)
    if live is not None and live.spec is not None:
        return msgspec.json.encode(live.spec.launch).decode()
    entry = known_jobs.job_entry(job)
    return entry.spec.get(LAUNCH, "") if entry is not None else ""


def launch_of(text: str) -> LaunchSpec | None:
    """Returns how a job was started, from its JSON text; None if the text can't be read."""
    if not text:
        return LaunchSpec()
    try:
        return msgspec.json.decode(text, type=LaunchSpec)
    except (msgspec.DecodeError, RecursionError):
        return None


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
                stops.append(StopJob(f"stop:{name}", address, cluster, address.name, launch))
                needs = (f"stop:{name}",)
            if address in known_jobs.entries:
                # The object is registered somewhere at any moment.
                needs = (*needs, f"own:{address}")
                registry_steps.append(
                    Disown(f"disown:{name}", address, cluster, desired.topology, needs=needs)
                )
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
    old_job = job_address(job)
    yield from (f"reconfigure:{old_job}", f"stop:{old_job}", f"stop:{old_job}@{known_jobs.cluster.name}")


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


def job_steps(
    changes: Sequence[Change], desired: Desired, observed: Observed, others: Sequence[Step]
) -> tuple[Step, ...]:
    """Returns the steps of all jobs. `others` are the steps of topics and ACLs, which go before a job."""
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
    """Yields the steps of one desired job."""
    name, cluster, address = job.job.name, spec.destination, job.address
    text = jobspec.encode(spec).decode()
    needs = _needed_steps(spec, desired, others)
    flows = {one.flow.name: one for one in desired.flows}
    topics = {one.name: _copied(flows.get(one.name)) for one in spec.flows if one.state == "active"}
    match change.action:
        case Action.CREATE:
            yield LaunchJob(f"launch:{address}", address, cluster, name, text, topics, needs=needs)
        case Action.REPLACE:
            # A job that moves to this cluster has nothing to stop here.
            launch = launch_that_runs(known_jobs, name)
            stop = StopJob(f"stop:{address}", address, cluster, name, launch, needs=needs)
            yield from (stop,) if known_jobs.runs(name) else ()
            after = (*needs, stop.id)
            yield LaunchJob(f"launch:{address}", address, cluster, name, text, topics, needs=after)
        case Action.UPDATE if _spec_changed(spec, known_jobs):
            spec_text = _spec_to_send(spec, known_jobs)
            yield ReconfigureJob(
                f"reconfigure:{address}", address, cluster, name, spec_text, topics, needs=needs
            )
        case Action.DELETE if known_jobs.job_entry(name) is not None or known_jobs.runs(name):
            # The flows end in order, in the ledger, before the job stops: in the running job, or in a new job
            # that does nothing else.
            last: tuple[JobStep, ...] = ()
            if known_jobs.runs(name):
                spec_text = jobspec.encode(_as_running_job_knows(spec, known_jobs)).decode()
                last = (
                    ReconfigureJob(
                        f"reconfigure:{address}", address, cluster, name, spec_text, topics, needs=needs
                    ),
                )
            elif any(_ends(flow_changes.get(flow_address(one))) for one in job.flows):
                last = (LaunchJob(f"launch:{address}", address, cluster, name, text, topics, needs=needs),)
            yield from last
            launch = _launch_to_stop(last, spec, known_jobs, name)
            ended = tuple(step.id for step in last)
            yield StopJob(f"stop:{address}", address, cluster, name, launch, needs=ended)
        case _:
            pass


def _as_running_job_knows(spec: JobSpec, known_jobs: DestinationJobs) -> JobSpec:
    """Returns the spec with the clusters of the running job, which is all that it takes over before it ends.

    The job never copied a flow from a cluster that it does not know, so such a flow needs no end.
    """
    live = known_jobs.job(spec.job)
    if live is None or live.spec is None:
        return spec
    known = live.spec.clusters
    flows = [flow for flow in spec.flows if flow.source in known]
    clusters = {name: known[name] for name in spec.clusters if name in known}
    return msgspec.structs.replace(spec, flows=flows, clusters=clusters)


def _ends(change: Change | None) -> bool:
    """Returns whether this plan promotes the flow or fails it over."""
    return (
        change is not None
        and change.action is Action.UPDATE
        and any(one.path == ("state",) and one.new not in RUNNING for one in change.fields)
    )


def _launch_to_stop(before: Sequence[JobStep], spec: JobSpec, known_jobs: DestinationJobs, job: str) -> str:
    """Returns how the job that is to be stopped was started."""
    if any(isinstance(one, LaunchJob) for one in before):
        return msgspec.json.encode(spec.launch).decode()
    return launch_that_runs(known_jobs, job)


def _spec_changed(spec: JobSpec, known_jobs: DestinationJobs) -> bool:
    """Returns whether the running job has to be given a new spec."""
    live = known_jobs.job(spec.job)
    return live is not None and live.spec != with_files_of(live.spec, spec)


def _spec_to_send(spec: JobSpec, known_jobs: DestinationJobs) -> str:
    """Returns the spec for a running job: it keeps the paths that exist on its machine."""
    live = known_jobs.job(spec.job)
    return jobspec.encode(with_files_of(live.spec if live is not None else None, spec)).decode()


def _copied(flow: DesiredFlow | None) -> int:
    return len(flow.topics) if flow is not None and flow.selection_known else 0


def _needed_steps(spec: JobSpec, desired: Desired, others: Sequence[Step]) -> tuple[str, ...]:
    """Returns the steps before a job: the topics at both ends of its flows, every ACL there, and the
    rules that are replaced at the destination."""
    own = {flow.name for flow in spec.flows}
    addresses: set[Address] = set()
    for one in desired.flows:
        if one.flow.name in own:
            for source_topic, mirror in one.topics:
                addresses.add(topic_address(one.flow.source_cluster, source_topic))
                addresses.add(topic_address(one.flow.destination_cluster, mirror))
    return tuple(step.id for step in others if step.precedes_job(spec.clusters, spec.destination, addresses))


def _job_registry_steps(
    job: DesiredJob,
    spec: JobSpec,
    change: Change,
    own: Sequence[JobStep],
    known_jobs: DestinationJobs,
    topology: str,
) -> Iterator[Step]:
    """Yields the step that registers or disowns a job."""
    needs = tuple(step.id for step in own if change.action is not Action.CREATE)
    if change.action is Action.DELETE:
        if known_jobs.job_entry(job.job.name) is not None:
            yield Disown(f"disown:{job.address}", job.address, spec.destination, topology, needs=needs)
    elif change.action not in IDLE or change.adopted:
        entry = job_entry(spec, topology)
        yield Own(f"own:{job.address}", job.address, spec.destination, entry, needs=needs)


def _own_before_launch(steps: Sequence[JobStep], registry_steps: Sequence[Step]) -> list[JobStep]:
    """Makes a launch wait for the job's registry entry.

    An apply that is cut short then leaves no job that a later plan, or destroy, does not know.
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
    """Yields the steps that register flows, after their job has them."""
    for flow in spec.flows:
        address = flow_address(flow.name)
        change = by_address.get(address)
        if change is None or (change.action in IDLE and not change.adopted):
            continue
        entry = flow_entry(flow, job.job.name, topology)
        needs = tuple(step.id for step in own)
        yield Own(f"own:{address}", address, spec.destination, entry, needs=needs)


def _start_reversed_flows_last(steps: Sequence[JobStep], desired: Desired) -> Iterable[JobStep]:
    """Makes a job that starts a flow wait for the job that ends the opposite flow.

    Jobs that wait for each other in a ring are reconfigured at the same time. That loses nothing: a driver
    starts such a flow only after its opposite ended by the ledger.
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
    """Returns, for each job, the jobs that end the opposite of a flow which starts in it."""
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
    """Returns, for each job, the jobs whose steps its own steps need already."""
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
