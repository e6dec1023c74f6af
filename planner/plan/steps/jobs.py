"""Flows and jobs: what follows from their changes, and the steps: launch, reconfigure and stop.

Jobs that are no longer desired at a destination are stopped, and their flows are disowned.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec import field
from msgspec.structs import replace

from planner.diff.jobs import with_files_of
from planner.diff.record import (
    JOB,
    STATE,
    DestinationJobs,
    destination_jobs,
    elsewhere,
    flow_entry,
    job_entry,
    recorded_launch,
    wanted_jobs,
)
from planner.diff.typed_values import launcher_values, new_job_values
from planner.model.address import Address, Kind, flow_address, job_address, topic_address
from planner.model.change import Action, Change, Facts, Value
from planner.model.desired import Desired, DesiredJob
from planner.model.observed import Observed, ObservedCluster, RegistryEntry
from planner.model.step import Milestone, Step
from planner.plan.object_kind import RUNS, ObjectKind, owner, recorded
from planner.plan.steps.registry import NOT_READABLE, Disown, Own
from runtime.contract.spec.flow import RUNNING
from runtime.contract.spec.jobspec import JobSpec
from runtime.contract.spec.launch import LaunchSpec

IDLE = (Action.NO_OP, Action.UNKNOWN)


class JobStep(Step, frozen=True):
    """A step about one job."""

    not_undone = "a job's spec comes from the topology alone", "revert the edit of the topology, then apply"

    job: str

    @property
    def subject(self) -> str:
        return "job"


class RunJob(JobStep, frozen=True):
    """A step after which a job runs by `spec`.

    `topics`: how many topics the plan knows, by flow. The job copies when it has found as many.
    """

    spec: JobSpec
    topics: Mapping[str, int] = field(default_factory=dict)

    def details(self, hidden: Collection[str]) -> Iterator[str]:
        yield ""

    def values(self) -> Mapping[str, Value]:
        return new_job_values(self.spec)

    @property
    def depends_on(self) -> Iterable[Address]:
        """The spec follows from all of the job's flows."""
        return (self.address, *(flow_address(flow.name) for flow in self.spec.flows))

    @property
    def noted(self) -> Step:
        """Leaves out most of the job spec: a journal record has a size limit, and the registry holds it."""
        job, topology, destination = self.job, self.spec.topology, self.spec.destination
        spec = JobSpec(job=job, topology=topology, destination=destination, clusters={}, flows=[])
        return replace(self, spec=spec, needs=())

    @property
    def left(self) -> Facts:
        return {RUNS: True, ("spec",): self.spec}


class LaunchJob(RunJob, frozen=True):
    """Starts a job that is not running."""

    verb = "launch"
    past = "launched"
    in_progress = "launching"

    @property
    def milestone(self) -> Milestone | None:
        return Milestone.JOB_LAUNCHED


class ReconfigureJob(RunJob, frozen=True):
    """Sends a running job its new spec through its control topic."""

    verb = "reconfigure"
    past = "reconfigured"
    in_progress = "updating"


class StopJob(JobStep, frozen=True):
    """Stops a job. `launch` is how it was started: the same launcher stops it. None: only a newer release
    can read that.
    """

    verb = "stop"
    past = "stopped"
    in_progress = "stopping"

    launch: LaunchSpec | None = LaunchSpec()

    @property
    def noted(self) -> Step:
        """Leaves out how the job was started: an older release could not read what a newer one notes."""
        return replace(self, launch=LaunchSpec())

    def details(self, hidden: Collection[str]) -> Iterator[str]:
        yield NOT_READABLE if self.launch is None else ""

    def values(self) -> Mapping[str, Value]:
        return launcher_values(self.launch) if self.launch is not None else {}

    @property
    def left(self) -> Facts:
        return {RUNS: False}


class FlowKind(ObjectKind):
    """Flows, at their destination: their steps are those of their job, and their registry entry."""

    def facts(
        self,
        name: str,
        cluster: ObservedCluster,
        entry: RegistryEntry | None,
        keys: Collection[str],
        steps: Sequence[Step],
    ) -> Facts:
        state = entry.spec.get(STATE) if entry is not None else None
        return {**owner(entry), (STATE,): state, **recorded(entry)}


class JobKind(ObjectKind):
    """Jobs, at their destination."""

    def facts(
        self,
        name: str,
        cluster: ObservedCluster,
        entry: RegistryEntry | None,
        keys: Collection[str],
        steps: Sequence[Step],
    ) -> Facts:
        """Of a job that is stopped for good it does not matter whether it runs."""
        jobs = [step for step in steps if isinstance(step, JobStep)]
        live = cluster.job(name)
        runs: Facts = {}
        if not jobs or not all(isinstance(step, StopJob) for step in jobs):
            runs = {RUNS: False}
            if live is not None and live.live:
                runs = {RUNS: True, ("driver",): live.driver, ("spec",): live.spec}
        return {**runs, **recorded(entry)}


def launch_that_runs(known_jobs: DestinationJobs, job: str) -> LaunchSpec | None:
    """Returns how the running job was started: as it reports, else as the registry recorded it."""
    live = known_jobs.job(job)
    if live is not None and live.spec is not None:
        return live.spec.launch
    return recorded_launch(known_jobs.job_entry(job))


def job_steps(
    changes: Sequence[Change], desired: Desired, observed: Observed, others: Sequence[Step]
) -> tuple[Step, ...]:
    """Returns the steps of all jobs. `others` are the steps of topics and ACLs, which go before a job."""
    planner = _JobPlanner(changes, desired, observed, others)
    steps: list[JobStep] = []
    registry_steps: list[Step] = []
    for job, spec in planner.jobs:
        steps_of_job = list(planner.steps_of(job, spec))
        steps += steps_of_job
        registry_steps += planner.registered(job, spec, tuple(step.id for step in steps_of_job))
    stops = list(planner.stops_left_behind())
    disowned = list(planner.disowned_left_behind([*stops, *steps], registry_steps))
    ordered = planner.in_reversal_order(list(planner.stops_before_starts(steps, stops)))
    return (*stops, *ordered, *registry_steps, *disowned)


class _JobPlanner:
    """Makes the steps of jobs and flows from their changes, at the destinations that could be read."""

    def __init__(
        self, changes: Sequence[Change], desired: Desired, observed: Observed, others: Sequence[Step]
    ) -> None:
        self._changes = {change.address: change for change in changes}
        self._others = others
        self._topology = desired.topology
        self._selected = {flow.flow.name: flow for flow in desired.flows}
        self._at = destination_jobs(observed)
        self._wanted = {
            address: spec.destination for job, spec in wanted_jobs(desired) for address in job.addresses
        }
        self.jobs = [(job, spec) for job, spec in wanted_jobs(desired) if spec.destination in self._at]

    def steps_of(self, job: DesiredJob, spec: JobSpec) -> Iterator[JobStep]:
        """Yields the steps of one desired job."""
        name, cluster, address = job.job.name, spec.destination, job.address
        change, here = self._changes.get(address), self._at[spec.destination]

        def run(kind: type[RunJob], by: JobSpec, *more: str) -> RunJob:
            topics = {
                flow.name: len(selected.topics) if selected is not None and selected.selection_known else 0
                for flow in spec.flows
                if flow.state == "active"
                for selected in (self._selected.get(flow.name),)
            }
            needs = self._needed_steps(spec)
            step_id = f"{kind.verb}:{address}"
            return kind(step_id, address, cluster, name, by, topics, needs=(*needs, *more))

        def stop(launch: LaunchSpec | None, *needs: str) -> StopJob:
            return StopJob(f"stop:{address}", address, cluster, name, launch, needs=needs)

        match change.action if change is not None else Action.NO_OP:
            case Action.CREATE:
                # Its registry entry goes first: an apply that is cut short then leaves no job that a later
                # plan, or destroy, does not know.
                yield run(LaunchJob, spec, Own.id_of(address))
            case Action.REPLACE if here.runs(name):
                yield (end := stop(launch_that_runs(here, name), *self._needed_steps(spec)))
                yield run(LaunchJob, spec, end.id)
            case Action.REPLACE:  # it moves to this cluster, where it has nothing to stop
                yield run(LaunchJob, spec)
            case Action.UPDATE if (live := here.job(name)) is not None:
                sent = with_files_of(live.spec, spec)
                if live.spec != sent or live.ending:
                    yield run(ReconfigureJob, sent)
            case Action.DELETE if here.job_entry(name) is not None or here.runs(name):
                # The flows end in order, in the ledger, before the job stops: in the running job, or in a new
                # job that does nothing else.
                launch = launch_that_runs(here, name)
                last: RunJob | None = None
                if here.runs(name):
                    last = run(ReconfigureJob, _as_running_job_knows(spec, here))
                elif any(self._ends(flow) for flow in job.flows):
                    last, launch = run(LaunchJob, spec), spec.launch
                if last is not None:
                    yield last
                yield stop(launch, *((last.id,) if last is not None else ()))

    def registered(self, job: DesiredJob, spec: JobSpec, job_step_ids: tuple[str, ...]) -> Iterator[Step]:
        """Yields the steps that register or disown the job, and register its flows once the job has them.

        `job_step_ids` are the ids of the job's own steps.
        """
        change, cluster = self._changes.get(job.address), spec.destination
        if change is not None and change.action is Action.DELETE:
            if self._at[cluster].job_entry(job.job.name) is not None:
                yield Disown.of(job.address, cluster, self._topology, job_step_ids)
        elif _is_planned(change):
            entry = job_entry(spec, self._topology)
            first = change is not None and change.action is Action.CREATE
            yield Own.of(entry, cluster, () if first else job_step_ids)
        for flow in spec.flows:
            if _is_planned(self._changes.get(flow_address(flow.name))):
                yield Own.of(flow_entry(flow, job.job.name, self._topology), cluster, job_step_ids)

    def stops_left_behind(self) -> Iterator[StopJob]:
        """Yields the stops of jobs that leave a destination, also of those that move to another one."""
        for cluster, address, name in self._left_behind():
            if address.kind is Kind.JOB and self._changes[address].action is not Action.UPDATE:
                launch = launch_that_runs(self._at[cluster], address.name)
                yield StopJob(f"stop:{name}", address, cluster, address.name, launch)

    def disowned_left_behind(
        self, job_steps: Sequence[JobStep], registry_steps: Sequence[Step]
    ) -> Iterator[Disown]:
        """Yields the steps that forget jobs and flows at a destination which they leave.

        A flow is forgotten after its job no longer has it. What moves is registered first at its new
        destination: it is registered somewhere at any moment.
        """
        owns = {step.address: step.id for step in registry_steps if isinstance(step, Own)}
        for cluster, address, name in self._left_behind():
            entry = self._at[cluster].entries.get(address)
            if entry is None:
                continue
            job = address if address.kind is Kind.JOB else job_address(entry.spec.get(JOB, ""))
            ends = [
                step.id
                for step in job_steps
                if (step.address, step.cluster) == (job, cluster) and not isinstance(step, LaunchJob)
            ]
            registered = (owns[address],) if address in owns else ()
            yield Disown.of(address, cluster, self._topology, (*ends, *registered), name=name)

    def _left_behind(self) -> Iterator[tuple[str, Address, str]]:
        """Yields what leaves a destination: the cluster, the job or flow, and its name in the ids of steps.

        The plain name belongs to the steps where the object is desired, or else to the first cluster.
        """
        named: set[Address] = set(self._wanted)
        for cluster, there in self._at.items():
            for address in there.held(self._topology):
                change = self._changes.get(address)
                if self._wanted.get(address) == cluster or change is None or change.action in IDLE:
                    continue
                yield cluster, address, f"{address}@{cluster}" if address in named else str(address)
                named.add(address)

    def stops_before_starts(self, steps: Sequence[JobStep], stops: Sequence[StopJob]) -> Iterator[JobStep]:
        """Makes a flow leave its old job before another job takes it over (R3).

        A job that moves ends at its old destination before it starts at the new one.
        """
        ends = {
            (step.cluster, step.job): step for step in (*steps, *stops) if not isinstance(step, LaunchJob)
        }
        moving = {job.job.name: self._moved_from(job, spec) for job, spec in self.jobs}
        runs = {step.id for step in steps if isinstance(step, RunJob)}
        for step in steps:
            if isinstance(step, StopJob):
                yield step
                continue
            losing = [ends[old] for old in sorted(moving.get(step.job, ())) if old in ends]
            # Of two jobs that hand flows to each other, neither can go first.
            gives = any((step.cluster, step.job) in old for old in moving.values())
            if gives:
                losing = [end for end in losing if isinstance(end, StopJob) and runs.isdisjoint(end.needs)]
            more = [end.id for end in losing]
            yield replace(step, needs=(*step.needs, *more)) if more else step

    def in_reversal_order(self, steps: Sequence[JobStep]) -> Iterator[JobStep]:
        """Makes a job that starts a flow wait for the job that ends the opposite flow.

        Jobs that wait for each other in a ring are reconfigured at the same time. That loses nothing: a
        driver starts such a flow only after its opposite ended by the ledger.
        """
        by_job: dict[str, list[JobStep]] = {}
        for step in steps:
            by_job.setdefault(step.job, []).append(step)
        owner = {step.id: step.job for step in steps}
        order = self._reversal_order()
        # For each job, the jobs whose steps its own steps need.
        waits = {
            job: {owner[need] for step in steps_of_job for need in step.needs if need in owner} - {job}
            for job, steps_of_job in by_job.items()
        }
        for job, others in order.items():
            waits.setdefault(job, set()).update(others)
        for step in steps:
            before = [job for job in sorted(order.get(step.job, ())) if not _reaches(job, step.job, waits)]
            needs = [end.id for job in before for end in by_job.get(job, ())]
            yield replace(step, needs=(*step.needs, *needs)) if needs else step

    def _ends(self, flow: str) -> bool:
        """Returns whether this plan promotes the flow or fails it over."""
        change = self._changes.get(flow_address(flow))
        if change is None or change.action is not Action.UPDATE:
            return False
        state = change.field("state")
        return state is not None and state.new not in RUNNING

    def _needed_steps(self, spec: JobSpec) -> tuple[str, ...]:
        """Returns the steps before a job: the topics at both ends of its flows, every ACL there, and the
        rules that are replaced at the destination."""
        addresses: set[Address] = set()
        for flow in (self._selected[flow.name] for flow in spec.flows if flow.name in self._selected):
            for source_topic, mirror in flow.topics:
                addresses.add(topic_address(flow.flow.source_cluster, source_topic))
                addresses.add(topic_address(flow.flow.destination_cluster, mirror))
        return tuple(
            step.id for step in self._others if step.precedes_job(spec.clusters, spec.destination, addresses)
        )

    def _moved_from(self, job: DesiredJob, spec: JobSpec) -> set[tuple[str, str]]:
        """Returns the jobs that a job or its flows come from, with their destinations."""
        name, destination = job.job.name, spec.destination
        old = set()
        for flow in job.flows:
            running = self._at[destination].flow(flow, name)
            if running is not None and running.job != name:
                old.add((destination, running.job))
            for place in elsewhere(flow_address(flow), destination, self._topology, self._at):
                entry = place.flow_entry(flow)
                old.add((place.cluster.name, entry.spec.get(JOB, name) if entry is not None else name))
        places = elsewhere(job.address, destination, self._topology, self._at)
        return old | {(place.cluster.name, name) for place in places}

    def _reversal_order(self) -> dict[str, set[str]]:
        """Returns, for each job, the jobs that end the opposite of a flow which starts in it."""
        order: dict[str, set[str]] = {}
        flows = {name: selected.flow for name, selected in self._selected.items()}
        for flow in flows.values():
            original = flows.get(flow.reverse_of or "")
            if original is None or flow.runs == original.runs:
                continue
            ends, comes = (original, flow) if flow.runs else (flow, original)
            if comes.job != ends.job:
                order.setdefault(comes.job, set()).add(ends.job)
        return order


def _is_planned(change: Change | None) -> bool:
    return change is not None and (change.action not in IDLE or change.adopted)


def _as_running_job_knows(spec: JobSpec, here: DestinationJobs) -> JobSpec:
    """Returns the spec with the clusters of the running job, which is all that it takes over before it ends.

    The job never copied a flow from a cluster that it does not know, so such a flow needs no end.
    """
    live = here.job(spec.job)
    if live is None or live.spec is None:
        return spec
    running_clusters = live.spec.clusters
    flows = [flow for flow in spec.flows if flow.source in running_clusters]
    clusters = {name: running_clusters[name] for name in spec.clusters if name in running_clusters}
    return msgspec.structs.replace(spec, flows=flows, clusters=clusters)


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
