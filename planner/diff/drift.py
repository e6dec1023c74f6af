"""Compares what the registry remembers as applied with what is there now: changes outside the topology."""

from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import assert_never

from msgspec import Struct

from planner.diff.compare import (
    Leaf,
    PathDifference,
    Secret,
    Tree,
    changed_fields,
    differences,
    same,
    without_secret,
)
from planner.diff.differ import owned_by_address, unreadable_acl
from planner.diff.jobs import last_heartbeat
from planner.diff.quotas import drifted_quota
from planner.diff.record import (
    STATE,
    DestinationJobs,
    destination_jobs,
    flow_of,
    is_announced,
    recorded_flow,
)
from planner.diff.topics import OUTSIDE
from planner.diff.typed_values import (
    PARTITIONS,
    REPLICATION,
    config_path,
    explicit,
    flow_values,
    is_sensitive,
    recorded_config,
)
from planner.model.address import Kind
from planner.model.change import Action, Change, FieldChange, Path
from planner.model.desired import Declared, Desired, DesiredTopic, MirroredBy, QuarantineOf
from planner.model.observed import CONFIG, Observed, ObservedCluster, ObservedTopic, RegistryEntry, acl_rule

AS_APPLIED = "as applied"
DELETED = "deleted outside the topology"


def drift(desired: Desired, observed: Observed) -> tuple[Change, ...]:
    """Returns one change for each owned object: `old` is what was applied, `new` is what is there.

    A mirror follows its source while the job runs. So a value has not drifted if the source has it, or is to
    have it by its declaration.
    """
    mirrors = {one.address: MirrorDrift(one, _source_of(one, observed)) for one in desired.topics}
    changes: list[Change] = []
    topics: list[AppliedTopic] = []
    for entry in owned_by_address(observed).values():
        cluster = observed.reachable(entry.address.cluster or "")
        if entry.topology != desired.topology or cluster is None:
            continue
        match entry.address.kind:
            case Kind.TOPIC:
                mirror = mirrors.get(entry.address) if flow_of(entry) else None
                found = _topic(entry, cluster, mirror)
                changes += (found,) if isinstance(found, Change) else ()
                topics += (found,) if isinstance(found, AppliedTopic) else ()
            case Kind.ACL:
                changes += _acl(entry, cluster)
            case Kind.QUOTA:
                changes.append(drifted_quota(entry, cluster))
            case _:
                pass
    differing = differences([(one.applied, one.found) for one in topics])
    changes += (_compared(one, found) for one, found in zip(topics, differing, strict=True))
    by_address = attrgetter("address")
    return (
        *sorted(changes, key=by_address),
        *sorted(_drifted_jobs(desired.topology, observed), key=by_address),
    )


class MirrorDrift(Struct, frozen=True):
    """A mirror as its flow desires it, with the source topic whose settings the job copies."""

    wanted: DesiredTopic
    source: ObservedTopic | None


def _source_of(topic: DesiredTopic, observed: Observed) -> ObservedTopic | None:
    match topic.origin:
        case MirroredBy(source_cluster=cluster, source_topic=name):
            live = observed.reachable(cluster)
            return live.topics.get(name) if live is not None else None
        case Declared() | QuarantineOf():
            return None
        case _:
            assert_never(topic.origin)


class AppliedTopic(Struct, frozen=True):
    """A topic of the registry that exists, with the applied and the present values of its fields."""

    entry: RegistryEntry
    live: ObservedTopic
    mirror: MirrorDrift | None
    applied: Tree
    found: Tree


def _topic(
    entry: RegistryEntry, cluster: ObservedCluster, mirror: MirrorDrift | None
) -> AppliedTopic | Change:
    name = entry.address.name
    if name in cluster.hidden:
        why = f"(unknown: not authorized to describe {cluster.name}/{name})"
        return Change(entry.address, Action.UNKNOWN, why)
    live = cluster.topics.get(name)
    if live is None:
        return Change(entry.address, Action.DELETE, DELETED, before=_recorded(entry, None))
    return AppliedTopic(entry, live, mirror, *_topic_trees(entry, live))


def _compared(topic: AppliedTopic, differing: Iterable[PathDifference]) -> Change:
    entry, live, found = topic.entry, topic.live, topic.found
    fields = tuple(
        one.change(inherited=_effective(live, one.path[-1]))
        for one in differing
        if not _follows(one, topic.mirror)
    )
    again = entry.is_another(live.id)
    action = Action.REPLACE if again else Action.UPDATE if fields else Action.NO_OP
    reason = "deleted and made again outside the topology" if again else OUTSIDE
    return Change(
        entry.address,
        action,
        reason if action is not Action.NO_OP else AS_APPLIED,
        fields,
        before=_recorded(entry, live),
        after={
            key: without_secret(value) for key in entry.spec if (value := found.get(_path(key))) is not None
        },
        unchanged=len(found) - len(fields),
    )


def _topic_trees(entry: RegistryEntry, live: ObservedTopic) -> tuple[Tree, Tree]:
    """Returns what the registry remembers of a topic, and the same fields as they are now, both as text.

    The broker does not tell a sensitive setting, so that one counts as applied.
    """
    applied: dict[Path, Leaf] = {}
    found: dict[Path, Leaf] = {}
    for path, factors in ((PARTITIONS, live.partitions), (REPLICATION, live.replication_factors)):
        if path[-1] in entry.spec:
            applied[path] = entry.spec[path[-1]]
            found[path] = str(factors) if isinstance(factors, int) else factors
    for key, value in sorted(entry.config.items()):
        path, now = config_path(key), explicit(live, key)
        if is_sensitive(live, key):
            applied[path], found[path] = Secret(value), None if now is None else Secret(value)
        else:
            applied[path], found[path] = value, None if now is None else now.value
    return applied, found


def _recorded(entry: RegistryEntry, live: ObservedTopic | None) -> dict[str, object]:
    shown = recorded_config(entry, live)
    return {key: shown.get(key.removeprefix(CONFIG), value) for key, value in entry.spec.items()}


def _path(key: str) -> Path:
    """Returns the path of a key of the registry."""
    return config_path(key.removeprefix(CONFIG)) if key.startswith(CONFIG) else (key,)


def _follows(one: PathDifference, mirror: MirrorDrift | None) -> bool:
    """Returns whether a mirror has a value that its source has or is to have.

    Since the mirror was promoted, nothing is asked of it and no value has drifted.
    """
    if mirror is None:
        return False
    wanted, source = mirror.wanted, mirror.source
    if wanted.partitions is None and not wanted.config:
        return True
    match one.path:
        case ("config", key) if key in wanted.config or key in wanted.unset:
            of_source = explicit(source, key) if source is not None else None
            asked = [wanted.config.get(key)]
            asked += [] if source is None else [None if of_source is None else of_source.value]
            return any(same(one.path, value, one.new) for value in asked)
        case ("partitions",):
            counts = {wanted.partitions, source.partitions if source is not None else None} - {None}
            return one.new in {str(count) for count in counts}
        case _:
            return False


def _effective(live: ObservedTopic, key: str) -> str | None:
    value = live.config.get(key)
    return None if value is None or value.sensitive else value.value


def _acl(entry: RegistryEntry, cluster: ObservedCluster) -> Iterator[Change]:
    if cluster.acls is None:
        unreadable = unreadable_acl(entry.address, cluster)
        yield from (unreadable,) if unreadable is not None else ()
        return
    rule = acl_rule(cluster.name, entry.spec)
    if entry.is_replaced:
        again = rule is not None and rule in cluster.acls
        yield (
            Change(entry.address, Action.CREATE, "made again outside the topology", after=dict(entry.spec))
            if again
            else Change(entry.address, Action.NO_OP, AS_APPLIED)
        )
    elif rule is None or rule in cluster.acls or is_announced(entry):
        yield Change(entry.address, Action.NO_OP, AS_APPLIED)
    else:
        yield Change(entry.address, Action.DELETE, DELETED, before=dict(entry.spec))


def _drifted_jobs(topology: str, observed: Observed) -> Iterator[Change]:
    for known_jobs in destination_jobs(observed).values():
        for entry in known_jobs.entries.values():
            if entry.topology != topology:
                continue
            if known_jobs.unreadable:
                yield Change(entry.address, Action.UNKNOWN, f"(unknown: {known_jobs.unreadable})")
            elif entry.address.kind is Kind.JOB:
                yield _drifted_job(entry, known_jobs)
            else:
                yield _drifted_flow(entry, known_jobs)


def _drifted_job(entry: RegistryEntry, known_jobs: DestinationJobs) -> Change:
    live = known_jobs.job(entry.address.name)
    if live is not None and live.live:
        return Change(entry.address, Action.NO_OP, AS_APPLIED)
    field = FieldChange((STATE,), "running", "not running", note=last_heartbeat(live))
    return Change(
        entry.address,
        Action.UPDATE,
        OUTSIDE,
        (field,),
        before={STATE: "running"},
        after={STATE: "not running"},
    )


def _drifted_flow(entry: RegistryEntry, known_jobs: DestinationJobs) -> Change:
    applied = recorded_flow(entry)
    known = known_jobs.flow(entry.address.name, "")
    if applied is None or known is None:
        return Change(entry.address, Action.NO_OP, AS_APPLIED)
    before, after = flow_values(applied), flow_values(known[0])
    fields = changed_fields(before, after)
    return Change(
        entry.address,
        Action.UPDATE if fields else Action.NO_OP,
        OUTSIDE if fields else AS_APPLIED,
        fields,
        before=before,
        after=after,
        unchanged=len(before) - len(fields),
    )
