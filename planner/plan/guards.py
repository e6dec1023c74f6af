"""The guards of a plan: what it must not do. Each refusal names its guard and the way out.

They cover ownership, protection, deletes, partitions, replication, jobs, secrets, and `policies.require`.
All run when a plan is made. Before it is applied, those run again that need only the plan and the present
state of the clusters: an object may have been protected since, or another topology may own it by now.
"""

import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from decimal import Decimal, InvalidOperation

from planner.diff.record import destination_jobs, wanted_jobs
from planner.diff.values import readable, same_value, trimmed
from planner.graph.lints.topics import too_many_replicas
from planner.graph.messages import few
from planner.model.address import Address, Kind, topic_address
from planner.model.change import SENSITIVE, Action, Change
from planner.model.desired import Desired, DesiredJob, DesiredTopic
from planner.model.diagnostic import Diagnostic, ExitCode, SourceLocation, error
from planner.model.observed import FEATURE_REASSIGN, Observed, ObservedCluster
from planner.model.plan import Mode, Plan
from planner.model.step import Step
from planner.model.topology import Policies, Requirement, Topology
from planner.plan.transitions import changes_of_silent_sources, promotions, transitions
from runtime.contract.client.secrets import secret_settings
from runtime.contract.spec.jobspec import JobSpec

COMPARE: dict[str, Callable[[Decimal, Decimal], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "==": operator.eq,
    "!=": operator.ne,
}
UNLIMITED = frozenset({"retention.ms", "retention.bytes", "local.retention.ms", "local.retention.bytes"})


def unmet_requirements(
    requirements: Sequence[Requirement],
    topics: Iterable[DesiredTopic],
    changes: Iterable[Change],
    observed: Observed,
) -> Iterator[Diagnostic]:
    """Yields a refusal for each topic that fails a requirement once these changes are made."""
    if not requirements:
        return
    unset = {
        change.address: {
            field.key for field in change.fields if field.path[0] == "config" and field.new is None
        }
        for change in changes
    }
    for topic in topics:
        cluster = observed.reachable(topic.cluster)
        for rule in requirements:
            value = value_of(rule.subject, topic, cluster, unset.get(topic.address, ()))
            if value is None or holds(rule, value):
                continue
            yield error(
                f"{rule.subject} is {readable(rule.subject, value)}, "
                f'policies.require says "{rule.operator}{readable(rule.subject, rule.value)}"',
                f"declare a value of {rule.subject} that the policy allows",
                address=str(topic.address),
                source=topic.source,
                code="policy",
                exit=ExitCode.REFUSED,
            )


def value_of(
    subject: str, topic: DesiredTopic, cluster: ObservedCluster | None, unset: Collection[str] = ()
) -> str | None:
    """Returns the topic's value after the plan: declared, live or the cluster's default; None if unknown.

    `unset` are the settings that the plan gives back to the cluster.
    """
    live = cluster.topics.get(topic.name) if cluster is not None else None
    match subject:
        case "partitions":
            wanted, current = topic.partitions, live.partitions if live else None
            default = cluster.default_partitions if cluster else None
            return _text(wanted, current, default)
        case "replication":
            wanted, current = topic.replication, live.replication if live else None
            default = cluster.default_replication if cluster else None
            return _text(wanted, current, default)
        case key:
            live_value = live.config[key].value if live is not None and key in live.config else None
            kept_value = live_value if key not in unset else None
            return _text(topic.config.get(key), kept_value, cluster.defaults.get(key) if cluster else None)


def _text(*values: int | str | None) -> str | None:
    return next((str(value) for value in values if value is not None), None)


def holds(rule: Requirement, value: str) -> bool:
    """Returns whether the value passes the requirement.

    Values are compared as the broker parses them: numbers as numbers, where a negative one of a retention
    means no limit, and words for equality.
    """
    value, wanted = trimmed(value), trimmed(rule.value)
    left, right = _number(rule.subject, value), _number(rule.subject, wanted)
    if left is not None and right is not None:
        return COMPARE[rule.operator](left, right)
    match rule.operator:
        case "==":
            return same_value(rule.subject, value, wanted)
        case "!=":
            return not same_value(rule.subject, value, wanted)
        case _:
            return False


def _number(subject: str, text: str) -> Decimal | None:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    if not number.is_finite():
        return None
    # -2 of a local retention is the topic's own; of retention.bytes, brokers take any negative number.
    unlimited = number == -1 or (number < 0 and not subject.startswith("local."))
    return Decimal("Infinity") if subject in UNLIMITED and unlimited else number


def secret_problems(job: DesiredJob, spec: JobSpec) -> Iterator[Diagnostic]:
    """Refuses secrets in a job's spec: it is kept in a file, in a plan, and in topics."""
    if settings := secret_settings(spec.launch.conf):
        yield error(
            f"{', '.join(settings)} holds a secret, and a job's settings are stored in the plan"
            " and in topics",
            "keep it on the machines that run the job (docs/launch.md, Secrets of Spark)",
            address=str(job.address),
            source=job.job.source or job.source,
            code="job-secret",
        )
    for name, cluster in sorted(spec.clusters.items()):
        keys = [key for key, value in sorted(cluster.client.items()) if value == SENSITIVE]
        if keys:
            yield error(
                f"{', '.join(keys)} of {name} is written out, and a job spec must not hold a secret",
                "write it as {env: VARIABLE} or {file: PATH}, which the job resolves where it runs",
                address=str(job.address),
                source=job.source,
                code="job-secret",
            )


def owned_by_others(
    places: Iterable[tuple[str, Address, SourceLocation | None]], topology: str, observed: Observed
) -> Iterator[Diagnostic]:
    """Yields refusals of jobs and flows whose names another topology uses at the same cluster."""
    jobs = destination_jobs(observed)
    for cluster, address, source in dict.fromkeys(places):
        foreign = jobs[cluster].foreign_owner(address, topology) if cluster in jobs else None
        if foreign is not None:
            how, owner = foreign
            yield error(
                f"{how} the topology {owner!r} at {cluster}",
                "give it another name here (a job: below jobs, and in its flows),"
                f" or stop it in {owner!r} first",
                address=str(address),
                source=source,
                code="owned",
                exit=ExitCode.REFUSED,
            )


PARTITIONS, REPLICATION = "partitions", "replication"
DESTROYING = frozenset({Action.DELETE, Action.REPLACE})


def check(
    desired: Desired,
    observed: Observed,
    changes: Sequence[Change],
    topology: Topology,
    mode: Mode = Mode.APPLY,
) -> tuple[Diagnostic, ...]:
    """Returns the refusals of every guard for the planned changes."""
    addresses = {change.address for change in changes}
    topics = tuple(topic for topic in desired.topics if topic.address in addresses)
    ended = frozenset(name for name, flow in topology.flows.items() if not flow.runs)
    flows = (*changes, *changes_of_silent_sources(desired, observed, changes))
    jobs = [(job, spec) for job, spec in wanted_jobs(desired) if job.address in addresses]
    places = ((spec.destination, address, job.source) for job, spec in jobs for address in job.addresses)
    return (
        *ownership(desired.topology, observed, changes),
        *partition_decreases(topics, changes),
        *impossible_replication(topics, observed, changes),
        *protection(observed, changes, topology),
        *max_deletes(topology.policies.max_deletes, ended, observed, changes, mode),
        *transitions(flows, topology, observed),
        *promotions(flows, desired, topology),
        *(problem for job, spec in jobs if job.needed for problem in secret_problems(job, spec)),
        *owned_by_others(places, topology.name, observed),
        *unmet_requirements(topology.policies.require, topics, changes, observed),
    )


def ownership(topology: str, observed: Observed, changes: Iterable[Change]) -> Iterator[Diagnostic]:
    """Yields a refusal for each object that another topology owns."""
    for change in changes:
        entry = observed.owned.get(change.address)
        if entry is not None and entry.topology != topology:
            yield error(
                f"owned by the topology {entry.topology!r}",
                f"remove it from this topology, or from {entry.topology!r} first: "
                f"apply {entry.topology!r} without it and with on_remove: keep",
                address=str(change.address),
                code="owned",
                exit=ExitCode.REFUSED,
            )


def partition_decreases(topics: Iterable[DesiredTopic], changes: Iterable[Change]) -> Iterator[Diagnostic]:
    """Yields an error for each topic that would get fewer partitions."""
    sources = {topic.address: topic.source for topic in topics}
    for change in changes:
        field = change.field("partitions") if change.action is Action.UPDATE else None
        old, new = (field.old, field.new) if field is not None else (None, None)
        if isinstance(old, int) and isinstance(new, int) and new < old:
            yield error(
                f"partitions only grow: there are {old}, {new} are declared",
                f"declare {old} or more; for fewer, make a topic of another name and copy into it",
                address=str(change.address),
                source=sources.get(change.address),
                code="partition-decrease",
            )


def impossible_replication(
    topics: Iterable[DesiredTopic],
    observed: Observed,
    changes: Iterable[Change],
) -> Iterator[Diagnostic]:
    """Yields an error where there are fewer brokers than replicas, or where they can't reassign them.

    A lint reports too few brokers for the whole topology too, as the same diagnostic, which is shown once.
    No lint sees the changes of a rollback or a restore.
    """
    wanted = {topic.address: topic for topic in topics}
    for change in changes:
        topic = wanted.get(change.address)
        if topic is None or topic.replication is None:
            continue
        cluster = observed.reachable(topic.cluster)
        moves = change.action is Action.CREATE or change.field("replication") is not None
        if cluster is None or not moves:
            continue
        brokers = len(cluster.brokers)
        if change.action is Action.UPDATE and cluster.lack(FEATURE_REASSIGN) is not None:
            yield error(
                f"the brokers of {topic.cluster} can't reassign replicas, so the replication stays as it is",
                "declare the replication that the topic has, or upgrade the brokers to Kafka 2.4 or newer",
                address=str(change.address),
                source=topic.source,
                code="reassign",
            )
        elif topic.replication > brokers:
            yield too_many_replicas(topic, brokers)


def protection(
    observed: Observed, changes: Iterable[Change], topology: Topology | None = None
) -> Iterator[Diagnostic]:
    """Yields a refusal to delete a protected topic, as declared or as last applied.

    Removing a topic's block from the YAML does not remove its protection.
    """
    topics = topology.topics if topology is not None else ()
    declared = {topic_address(topic.cluster, topic.name) for topic in topics if topic.protect}
    for change in changes:
        entry = observed.owned.get(change.address)
        applied = entry is not None and entry.protect
        if change.action in DESTROYING and (applied or change.address in declared):
            since = "protected when it was applied last" if applied else "declared with protect: true"
            yield error(
                f"{since}, so it is not deleted",
                "declare it with protect: false and apply that first; then remove it",
                address=str(change.address),
                code="protect",
                exit=ExitCode.REFUSED,
            )


def max_deletes(
    allowed: int, ended: Collection[str], observed: Observed, changes: Sequence[Change], mode: Mode
) -> Iterator[Diagnostic]:
    """Yields a refusal if the plan destroys more objects than `policies.max_deletes` allows.

    `ended` are the flows that are promoted or failed over. A job or flow never counts: its ledger stays. An
    ACL or quota does not count in `repl destroy`, which takes all of them back, and no record with them.
    """
    excluded = set(_rules_of_ending_flows(ended, observed, changes))
    counted = {Kind.TOPIC} if mode is Mode.DESTROY else frozenset(Kind) - {Kind.FLOW, Kind.JOB}
    destroyed = [
        change.address
        for change in changes
        if change.action in DESTROYING and change.address.kind in counted and change.address not in excluded
    ]
    if len(destroyed) > allowed:
        yield error(
            f"the plan destroys {len(destroyed)} object{'s' if len(destroyed) > 1 else ''},"
            f" policies.max_deletes is {allowed}:"
            f" {few(destroyed, 5)}",
            f"to delete all of them, set policies.max_deletes: {len(destroyed)}",
            code="max-deletes",
            exit=ExitCode.REFUSED,
        )


def _rules_of_ending_flows(
    ended: Iterable[str], observed: Observed, changes: Iterable[Change]
) -> Iterator[Address]:
    """Yields the ACLs that a flow made and that are removed because it ends or comes back, and fences.

    They do not count as deletes: a failover must not ask how many topics were protected. Nor do the rules in
    the place of a replaced one: that one is restored first.
    """
    ending_flows = {
        change.address.name
        for change in changes
        if change.address.kind is Kind.FLOW
        and (change.field("state") is not None or change.field("promoted") is not None)
    }
    ending_flows |= set(ended)
    for address, entry in observed.owned.items():
        if entry.is_fence:
            yield address
        if address.kind is not Kind.ACL:
            continue
        if entry.flow in ending_flows or (entry.is_protection and not entry.is_replaced):
            yield address


def destroyed_topics(changes: Iterable[Change]) -> list[Change]:
    """Returns the changes that delete a topic."""
    return [change for change in changes if change.action in DESTROYING and change.address.kind is Kind.TOPIC]


def recheck(plan: Plan, remaining: Collection[Step], observed: Observed) -> tuple[Diagnostic, ...]:
    """Returns every refusal. `remaining` are the steps that an earlier apply of this plan did not do."""
    touched = {step.address for step in remaining}
    changes = tuple(change for change in plan.changes if change.address in touched)
    places = ((step.cluster, step.address, None) for step in remaining if step.address.cluster is None)
    ended = {flow.name for flow in plan.job_flows if not flow.runs}
    topology, policies = plan.topology.name, plan.topology.policies
    topics = [topic for topic in plan.desired.topics if topic.address in touched]
    return (
        *ownership(topology, observed, changes),
        *owned_by_others(places, topology, observed),
        *protection(observed, changes),
        *max_deletes(policies.max_deletes, ended, observed, changes, plan.inputs.mode),
        *unmet_requirements(policies.require, topics, changes, observed),
    )


def required_keys(policies: Policies) -> frozenset[str]:
    """Returns the settings of a topic that its requirements compare."""
    return frozenset(requirement.subject for requirement in policies.require) - {PARTITIONS, REPLICATION}
