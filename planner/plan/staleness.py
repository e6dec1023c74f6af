"""A plan is stale when what it was made from, read again, is not the same.

Compared are the objects that its steps touch, and of their settings those that the plan compared. After an
interrupted apply of the same plan, the steps that are done are compared with what they left behind.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial

from planner.model.address import Address, Kind
from planner.model.change import Change, Facts
from planner.model.diagnostic import Diagnostic, ExitCode, error
from planner.model.observed import ClusterDetailsRequest, Observed, ObservedCluster, RegistryEntry
from planner.model.plan import Plan
from planner.model.step import ApplyRecord, Result, Step, StepResult
from planner.plan.object_kind import differences, recorded
from planner.plan.steps import OBJECTS

Place = tuple[str, Address]  # a cluster and an object there: a flow or a job may be at several


def compared_keys(steps: Iterable[Step], changes: Iterable[Change]) -> dict[Place, frozenset[str]]:
    """Returns each object that the steps depend on, with the settings by which it was compared."""
    keys: dict[Place, frozenset[str]] = {}
    for step in steps:
        for address in step.depends_on:
            keys.setdefault((step.cluster, address), frozenset())
        if step.keys:
            keys[step.cluster, step.address] |= step.keys
    for change in changes:
        place = (change.address.cluster or "", change.address)
        kind = OBJECTS.get(change.address.kind)
        if kind is not None and place in keys and change.after is not None:
            keys[place] |= kind.keys(change)
    return keys


def read_request(
    clusters: Iterable[str],
    keys: Mapping[Place, frozenset[str]],
    required: frozenset[str],
    *,
    explicit: bool = False,
) -> dict[str, ClusterDetailsRequest]:
    """Returns what to read again of the clusters. `required` are settings that policies compare.

    `explicit`: also all settings that a topic has of its own.
    """
    topics: dict[str, dict[str, frozenset[str]]] = defaultdict(dict)
    kinds: dict[str, set[Kind]] = defaultdict(set)
    subjects: dict[str, set[str]] = defaultdict(set)
    for (cluster, address), some in keys.items():
        kinds[cluster].add(address.kind)
        if address.kind is Kind.SCHEMA:
            subjects[cluster].add(address.name)
        if address.kind is Kind.TOPIC:
            topics[cluster][address.name] = some | required
    return {
        name: ClusterDetailsRequest(
            configs=topics[name],
            explicit=explicit,
            acls=Kind.ACL in kinds[name],
            quotas=Kind.QUOTA in kinds[name],
            subjects=frozenset(subjects[name]),
            subject_modes=True,
        )
        for name in clusters
    }


def other_clusters(plan: Plan, ids: Mapping[str, str]) -> list[Diagnostic]:
    """Returns an error for each cluster that is not the one the plan was made for.

    `ids` are the present cluster ids.
    """
    return [
        stale_diagnostic(name, f"the cluster is {ids[name]} now, the plan was made for {cluster_id}")
        for name, cluster_id in sorted(plan.clusters.items())
        if ids.get(name, cluster_id) != cluster_id
    ]


def stale(plan: Plan, observed: Observed, touched: Collection[Address] = ()) -> tuple[Diagnostic, ...]:
    """Returns an error with exit code 4 for each object that is no longer as the plan saw it.

    `touched` are objects that an earlier apply of the plan may have changed.
    """
    problems = other_clusters(plan, {name: cluster.id for name, cluster in observed.live.items()})
    entries_then, entries_now = entries_by_place(plan.inputs.observed), entries_by_place(observed)
    steps: dict[Address, list[Step]] = defaultdict(list)
    for step in plan.steps:
        steps[step.address].append(step)
    compared = compared_keys(plan.steps, plan.changes)
    for place in sorted(compared, key=lambda place: (place[1].cluster is None, place[1], place[0])):
        cluster, address = place
        then, now = plan.inputs.observed.reachable(cluster), observed.reachable(cluster)
        if then is None or now is None or address in touched or address.kind not in OBJECTS:
            continue
        facts = partial(OBJECTS[address.kind].facts, address.name, keys=compared[place], steps=steps[address])
        before = facts(then, entries_then.get(place))
        if difference := next(differences(before, facts(now, entries_now.get(place))), ""):
            problems.append(stale_diagnostic(str(address), difference))
    return tuple(problems)


def entries_by_place(observed: Observed) -> dict[Place, RegistryEntry]:
    """Returns the registry entries of all topologies, by the cluster that has them and their address."""
    return {
        (name, entry.address): entry for name, cluster in observed.live.items() for entry in cluster.owned
    }


def no_longer_done(
    steps: Sequence[Step], done: Collection[str], observed: Observed
) -> tuple[Diagnostic, ...]:
    """Returns, for each object, the first difference from what the steps in `done` left."""
    texts = {
        address: difference
        for (_, address), (_, difference) in differences_since(steps, observed, done).items()
    }
    return tuple(stale_diagnostic(str(address), texts[address]) for address in sorted(texts))


def outcomes_together(applies: Iterable[ApplyRecord]) -> dict[str, StepResult]:
    """Returns how each step ended in these applies of one plan, which come oldest first.

    A step that was done in one of them is done. A step that was sent in one of them may have changed its
    object, so a later apply that did not send it does not hide that. Otherwise the newest outcome counts.
    """
    outcomes: dict[str, StepResult] = {}
    for applied in applies:
        for step_id, outcome in applied.outcomes.items():
            earlier = outcomes.get(step_id)
            if earlier is None or _reached(outcome) >= _reached(earlier):
                outcomes[step_id] = outcome
    return outcomes


def _reached(outcome: StepResult) -> int:
    match outcome.result:
        case Result.SKIPPED | Result.NOT_STARTED:
            return 0
        case Result.FAILED | Result.SENT:
            return 1
        case Result.DONE:
            return 2


def differences_since(
    steps: Sequence[Step], observed: Observed, done: Collection[str] | None = None
) -> dict[Place, tuple[Step, str]]:
    """Returns, for each object, the first of its steps that left something else than is there now, and what.

    `done` are the ids of the steps that were done; None is all of them. Of several steps about one registry
    entry or one job, only the last one is compared, once it is done.
    """
    entries = entries_by_place(observed)
    final = {(step.subject, step.cluster, step.address): step.id for step in steps}
    superseded: dict[Address, frozenset[str]] = {}
    first: dict[Place, tuple[Step, str]] = {}
    for step in reversed(steps):
        cluster = observed.reachable(step.cluster)
        last = final[step.subject, step.cluster, step.address] == step.id
        if (done is not None and step.id not in done) or not last or cluster is None:
            continue
        place = (step.cluster, step.address)
        later = superseded.get(step.address, frozenset())
        left = {path: value for path, value in step.left.items() if path[-1] not in later}
        if difference := next(differences(left, facts_now(step, cluster, entries.get(place)), left=True), ""):
            first[place] = step, difference
        superseded[step.address] = later | step.keys
    return first


def facts_now(step: Step, cluster: ObservedCluster, entry: RegistryEntry | None) -> Facts:
    """Returns what is known of a step's object now, and of its registry entry."""
    kind = OBJECTS.get(step.address.kind)
    known = kind.facts(step.address.name, cluster, entry, step.keys, ()) if kind is not None else {}
    return {**recorded(entry), **known}


def stale_diagnostic(where: str, summary: str) -> Diagnostic:
    """Returns an error with exit code 4: an object is no longer as the plan saw it."""
    hint = "make the plan again: repl plan --out FILE"
    return error(summary, hint, address=where, code="stale", exit=ExitCode.STALE)
