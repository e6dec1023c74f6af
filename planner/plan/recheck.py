"""Checks the guards and policies of a plan against the clusters once more before it is applied.

They need only the plan and the present state of the clusters. A saved plan is refused even if its refusals
were removed, or if an object was protected after the plan was made.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from planner.diff.fields import with_added
from planner.diff.record import DestinationJobs, destination_jobs
from planner.diff.typed_values import flow_values, job_values
from planner.model.address import Address, Kind
from planner.model.desired import Declared, DesiredTopic
from planner.model.diagnostic import Diagnostic, ExitCode, error
from planner.model.observed import Observed, RegistryEntry
from planner.model.plan import Action, Plan, Value
from planner.model.step import AlterConfigs, LaunchJob, Own, ReconfigureJob, Step, StopJob
from planner.model.topology import ENDED, Policies
from planner.plan.guards import max_deletes, ownership, pinned_ids, protection, unmet_requirements
from planner.plan.job_agreement import is_shown, launch_of
from planner.plan.job_steps import launch_that_runs

PARTITIONS, REPLICATION = "partitions", "replication"


def recheck(plan: Plan, remaining: Collection[Step], observed: Observed) -> tuple[Diagnostic, ...]:
    """Returns every refusal. `remaining` are the steps that an earlier apply of this plan did not do."""
    pinned = tuple(pinned_ids(plan.connections, observed))
    if pinned:
        return pinned
    touched = {step.address for step in remaining}
    changes = tuple(change for change in plan.changes if change.address in touched)
    ended = {flow.name for flow in plan.flows if flow.state in ENDED}
    return (
        *ownership(plan.topology, observed, changes),
        *_owned_by_others(plan.topology, remaining, observed),
        *protection(observed, changes),
        *max_deletes(plan.policies.max_deletes, ended, observed, changes, plan.mode),
        *requirements(plan, remaining, observed),
        *_other_launchers(remaining, observed),
    )


def requirements(plan: Plan, steps: Iterable[Step], observed: Observed) -> Iterator[Diagnostic]:
    """Yields the unmet `policies.require` of every topic that these steps register."""
    return unmet_requirements(plan.policies.require, _topics_after(tuple(steps)), observed)


def required_keys(policies: Policies) -> frozenset[str]:
    """Returns the settings of a topic that its requirements compare."""
    return frozenset(one.subject for one in policies.require) - {PARTITIONS, REPLICATION}


def _topics_after(steps: Iterable[Step]) -> Iterator[DesiredTopic]:
    """Yields the topics as they will be, from their registry entries."""
    listed = tuple(steps)
    unset = {step.address: frozenset(step.unset) for step in listed if isinstance(step, AlterConfigs)}
    for step in listed:
        if isinstance(step, Own) and step.address.kind is Kind.TOPIC:
            yield DesiredTopic(
                cluster=step.cluster,
                name=step.address.name,
                origin=Declared(),
                partitions=_number(step.entry, PARTITIONS),
                replication=_number(step.entry, REPLICATION),
                config=step.entry.config,
                unset=unset.get(step.address, frozenset()),
            )


def _number(entry: RegistryEntry, key: str) -> int | None:
    text = entry.spec.get(key, "")
    return int(text) if text.isascii() and text.isdecimal() else None


def _owned_by_others(topology: str, steps: Iterable[Step], observed: Observed) -> Iterator[Diagnostic]:
    """Yields refusals of jobs and flows whose names another topology uses at the same cluster."""
    found = destination_jobs(observed)
    reported: set[tuple[Address, str]] = set()
    for step in steps:
        known_jobs = found.get(step.cluster)
        if step.address.cluster is not None or known_jobs is None or (step.address, step.cluster) in reported:
            continue
        reported.add((step.address, step.cluster))
        owner = _owner(step.address, known_jobs)
        if owner not in (None, topology):
            yield error(
                f"owned by the topology {owner!r} at {step.cluster}",
                f"stop it in {owner!r} first, or give it another name here",
                address=str(step.address),
                code="owned",
                exit=ExitCode.REFUSED,
            )


def _owner(address: Address, known_jobs: DestinationJobs) -> str | None:
    entry = known_jobs.entries.get(address)
    if entry is not None:
        return entry.topology
    running = known_jobs.job(address.name) if address.kind is Kind.JOB else None
    return running.topology if running is not None and running.live else None


def _other_launchers(steps: Collection[Step], observed: Observed) -> Iterator[Diagnostic]:
    """Yields an error where a job was started by another launcher than the plan's.

    A job is stopped by the launcher that started it: another one might stop another job.
    """
    found = destination_jobs(observed)
    launched = {one.id for one in steps if isinstance(one, LaunchJob)}
    for step in steps:
        known_jobs = found.get(step.cluster)
        if not isinstance(step, StopJob) or known_jobs is None or launched & set(step.needs):
            continue
        known = launch_that_runs(known_jobs, step.job)
        if known and launch_of(step.launch) != launch_of(known):
            yield _stale_at(
                step.address, "it was started by other launch settings than when the plan was made"
            )


def shown_as_running(plan: Plan, observed: Observed) -> Iterator[Diagnostic]:
    """Yields an error where a plan shows another present state of a job or flow than it runs by.

    Otherwise a forged `before` could hide that a field changes.
    """
    found = destination_jobs(observed)
    changes = {change.address: change for change in plan.changes}
    jobs = {flow.name: flow.job for flow in plan.flows}
    for step in plan.steps:
        change, known_jobs = changes.get(step.address), found.get(step.cluster)
        if (
            change is None
            or change.before is None
            or known_jobs is None
            or change.action is not Action.UPDATE
        ):
            continue
        match step:
            case ReconfigureJob():
                live = known_jobs.job(step.job)
                state = job_values(live.spec) if live is not None and live.spec is not None else None
            case Own() if step.address.kind is Kind.FLOW:
                name = step.address.name
                known = known_jobs.flow(name, jobs.get(name, ""))
                state = flow_values(known[0]) if known is not None else None
            case _:
                continue
        if state is not None and not _shows(change.before, state):
            yield _stale_at(step.address, "it runs by another spec than the plan shows")


def _shows(shown: Mapping[str, object], state: Mapping[str, Value]) -> bool:
    """Returns whether the shown values are the present state."""
    values = with_added(state, shown)
    return all(key in shown and is_shown(key, shown[key], value) for key, value in values.items())


def _stale_at(address: Address, what: str) -> Diagnostic:
    way_out = "make the plan again: repl plan --out FILE"
    return error(what, way_out, address=str(address), code="stale", exit=ExitCode.STALE)
