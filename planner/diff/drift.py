"""What changed outside the topology: what the registry remembers as applied × what is there now."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from planner.diff.acls import unreadable_acl
from planner.diff.differ import owned_by_address
from planner.diff.drift_jobs import drifted_jobs
from planner.diff.record import PARTITIONS, REPLICATION, acl_rule, flow_of, is_announced
from planner.diff.scope import explicit
from planner.diff.values import same_value
from planner.model.address import Address, Kind
from planner.model.change import SENSITIVE, Action, Change, FieldChange
from planner.model.desired import Declared, Desired, DesiredTopic, MirroredBy
from planner.model.observed import Observed, ObservedCluster, ObservedTopic
from planner.model.owned import CONFIG, RegistryEntry


def drift(desired: Desired, observed: Observed) -> tuple[Change, ...]:
    """One change for each owned object: `old` is what was applied, `new` is what is there.

    A mirror follows its source while the job runs, so a value of it is no drift where the source has it so or
    is to have it so by its declaration.
    """
    mirrors = {one.address: MirrorDrift(one, _source_of(one, observed)) for one in desired.topics}
    changes = []
    for address, entry in sorted(owned_by_address(observed).items()):
        cluster = observed.reachable(address.cluster or "")
        if entry.topology == desired.topology and cluster is not None:
            change = _drifted(entry, cluster, mirrors)
            if change is not None:
                changes.append(change)
    return (*changes, *sorted(drifted_jobs(desired.topology, observed), key=lambda one: one.address))


@dataclass(frozen=True, slots=True)
class MirrorDrift:
    """A topic as its flow asks for it, and the source that the job copies settings from."""

    wanted: DesiredTopic
    source: ObservedTopic | None


def _source_of(topic: DesiredTopic, observed: Observed) -> ObservedTopic | None:
    match topic.origin:
        case MirroredBy(source_cluster=cluster, source_topic=name):
            live = observed.reachable(cluster)
            return live.topics.get(name) if live is not None else None
        case Declared():
            return None
        case _:
            assert_never(topic.origin)


def _drifted(
    entry: RegistryEntry, cluster: ObservedCluster, desired: Mapping[Address, MirrorDrift]
) -> Change | None:
    match entry.address.kind:
        case Kind.TOPIC:
            return _topic(entry, cluster, desired.get(entry.address) if flow_of(entry) else None)
        case Kind.ACL:
            return _acl(entry, cluster)
        case _:
            return None


def _topic(entry: RegistryEntry, cluster: ObservedCluster, mirror: MirrorDrift | None) -> Change:
    name = entry.address.name
    if name in cluster.hidden:
        why = f"(unknown: not authorized to describe {cluster.name}/{name})"
        return Change(entry.address, Action.UNKNOWN, why)
    live = cluster.topics.get(name)
    if live is None:
        return Change(entry.address, Action.DELETE, "deleted outside the topology", before=dict(entry.spec))
    found = {key: _live(key, live) for key in entry.spec if key in _COMPARED or key.startswith(CONFIG)}
    fields = tuple(
        _field(key, value, found[key], live)
        for key, value in sorted(entry.spec.items(), key=_sizes_first)
        if key in found and not _same(key, value, found[key]) and not _follows(key, found[key], mirror)
    )
    again = entry.is_another(live.id)
    action = Action.REPLACE if again else Action.UPDATE if fields else Action.NO_OP
    reason = "deleted and made again outside the topology" if again else "changed outside the topology"
    return Change(
        entry.address,
        action,
        reason if action is not Action.NO_OP else "as applied",
        fields,
        before=dict(entry.spec),
        after={key: value for key, value in found.items() if value is not None},
        unchanged=len(found) - len(fields),
    )


_COMPARED = frozenset({PARTITIONS, REPLICATION})


def _sizes_first(item: tuple[str, str]) -> tuple[bool, str]:
    return item[0].startswith(CONFIG), item[0]


def _live(key: str, live: ObservedTopic) -> str | None:
    if key == PARTITIONS:
        return str(live.partitions)
    if key == REPLICATION:
        return str(live.replication_told)
    value = explicit(live, key.removeprefix(CONFIG))
    if value is None:
        return None
    return SENSITIVE if value.sensitive else value.value


def _same(key: str, applied: str, found: str | None) -> bool:
    name = key.removeprefix(CONFIG)
    return found == SENSITIVE or same_value(name, applied, found)


def _follows(key: str, found: str | None, mirror: MirrorDrift | None) -> bool:
    """A mirror's value that its source has or asks for, or that nobody asks for since it was promoted."""
    if mirror is None:
        return False
    wanted, source = mirror.wanted, mirror.source
    if wanted.partitions is None and not wanted.config:
        return True
    if key == PARTITIONS:
        asked = {wanted.partitions, source.partitions if source is not None else None} - {None}
        return found in {str(one) for one in asked}
    name = key.removeprefix(CONFIG)
    if name not in wanted.config and name not in wanted.unset:
        return False
    return same_value(name, found, wanted.config.get(name)) or (
        source is not None and same_value(name, found, _live(key, source))
    )


def _field(key: str, applied: str, found: str | None, live: ObservedTopic) -> FieldChange:
    path = ("config", key.removeprefix(CONFIG)) if key.startswith(CONFIG) else (key,)
    shown = live.config.get(path[-1])
    return FieldChange(path, applied, found, inherited=None if shown is None else shown.value)


def _acl(entry: RegistryEntry, cluster: ObservedCluster) -> Change | None:
    if cluster.acls is None:
        return unreadable_acl(entry.address, cluster)
    rule = acl_rule(cluster.name, entry.spec)
    if rule is None or rule in cluster.acls or is_announced(entry):
        return Change(entry.address, Action.NO_OP, "as applied")
    return Change(entry.address, Action.DELETE, "deleted outside the topology", before=dict(entry.spec))
