"""The guards and policies of a plan, held against the clusters once more before it is applied.

They need nothing but the plan and what the clusters hold now, so a saved plan that lost its refusals, or that
was made before an object was protected, is refused all the same.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from planner.diff.running import Standing, standings
from planner.model.address import Address, Kind
from planner.model.change import Action, Change, Value
from planner.model.desired import Declared, DesiredTopic
from planner.model.diagnostic import Diagnostic, ExitCode, error
from planner.model.observed import Observed
from planner.model.owned import Owned
from planner.model.plan import Plan
from planner.model.step import AlterConfigs, LaunchJob, Own, ReconfigureJob, Step, StopJob
from planner.model.topology import ENDED
from planner.plan.agreement_jobs import launch_of, same_value
from planner.plan.guards import max_deletes, ownership, pinned_ids, protection
from planner.plan.leaving import launch_of as launch_that_runs
from planner.plan.policies import unmet_requirements

PARTITIONS, REPLICATION = "partitions", "replication"


def recheck(plan: Plan, remaining: Collection[Step], observed: Observed) -> tuple[Diagnostic, ...]:
    """Return every refusal. `remaining` are the steps that an earlier apply of this plan did not do."""
    pinned = tuple(pinned_ids(plan.connections, observed))
    if pinned:
        return pinned
    touched = {step.address for step in remaining}
    changes = tuple(change for change in plan.changes if change.address in touched)
    ended = {flow.name for flow in plan.flows if flow.state in ENDED}
    return (
        *ownership(plan.topology, observed, changes),
        *_jobs_of_others(plan.topology, remaining, observed),
        *protection(observed, changes),
        *max_deletes(plan.policies.max_deletes, ended, observed, changes),
        *requirements(plan, remaining, observed),
        *_started_otherwise(remaining, observed),
    )


def requirements(plan: Plan, steps: Iterable[Step], observed: Observed) -> Iterator[Diagnostic]:
    """`policies.require`, for every topic that these steps leave as ours."""
    return unmet_requirements(plan.policies.require, _topics_after(tuple(steps)), observed)


def policy_keys(plan: Plan) -> frozenset[str]:
    """The settings that must be read of a topic before its requirements can be judged."""
    return frozenset(one.subject for one in plan.policies.require) - {PARTITIONS, REPLICATION}


def _topics_after(steps: Iterable[Step]) -> Iterator[DesiredTopic]:
    """The topics as they will be, told by what is remembered of them."""
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


def _number(entry: Owned, key: str) -> int | None:
    text = entry.spec.get(key, "")
    return int(text) if text.isascii() and text.isdecimal() else None


def _jobs_of_others(topology: str, steps: Iterable[Step], observed: Observed) -> Iterator[Diagnostic]:
    """Jobs and flows whose names another topology holds at the same cluster."""
    found = standings(observed)
    told: set[tuple[Address, str]] = set()
    for step in steps:
        standing = found.get(step.cluster)
        if step.address.cluster is not None or standing is None or (step.address, step.cluster) in told:
            continue
        told.add((step.address, step.cluster))
        owner = _owner(step.address, standing)
        if owner not in (None, topology):
            yield error(
                f"owned by the topology {owner!r} at {step.cluster}",
                f"let {owner!r} stop it first, or give it another name here",
                address=str(step.address),
                code="owned",
                exit=ExitCode.REFUSED,
            )


def _owner(address: Address, standing: Standing) -> str | None:
    entry = standing.entries.get(address)
    if entry is not None:
        return entry.topology
    running = standing.job(address.name) if address.kind is Kind.JOB else None
    return running.topology if running is not None and running.live else None


def _started_otherwise(steps: Collection[Step], observed: Observed) -> Iterator[Diagnostic]:
    """A job is stopped by the launcher that started it: another one might stop something else."""
    found = standings(observed)
    launched = {one.id for one in steps if isinstance(one, LaunchJob)}
    for step in steps:
        standing = found.get(step.cluster)
        if not isinstance(step, StopJob) or standing is None or launched & set(step.needs):
            continue
        known = launch_that_runs(standing, step.job)
        if known and launch_of(step.launch) != launch_of(known):
            yield _stale(step.address, "it was started otherwise than when the plan was made")


def before_is_true(plan: Plan, remaining: Collection[Step], observed: Observed) -> Iterator[Diagnostic]:
    """What is shown of a job that runs is what it runs by: a field left out of the plan is no hidden change."""
    found = standings(observed)
    changes = {change.address: change for change in plan.changes}
    for step in remaining:
        standing, change = found.get(step.cluster), changes.get(step.address)
        if not isinstance(step, ReconfigureJob | LaunchJob) or standing is None or change is None:
            continue
        live = standing.job(step.job)
        if live is None or not live.live or live.spec is None or change.action is not Action.UPDATE:
            continue
        yield from _as_it_runs(change, running_state(live.spec))


def _as_it_runs(change: Change, state: Mapping[str, Value]) -> Iterator[Diagnostic]:
    shown = change.before or {}
    if any(key not in shown or not same_value(shown[key], value) for key, value in state.items()):
        yield _stale(change.address, "it runs otherwise than the plan shows")


def _stale(address: Address, what: str) -> Diagnostic:
    way_out = "make the plan again: repl plan --out FILE"
    return error(what, way_out, address=str(address), code="stale", exit=ExitCode.STALE)
