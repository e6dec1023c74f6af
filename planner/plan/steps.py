"""Turns changes into steps in their order of execution. A step's `needs` are steps that go before it."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from planner.diff.record import acl_entry, announced, flow_of, topic_entry
from planner.diff.typed_values import given_back_after
from planner.model.address import Address, Kind, flow_address
from planner.model.desired import Desired, DesiredAcl, DesiredTopic
from planner.model.observed import (
    ID,
    Observed,
    ObservedBroker,
    ObservedCluster,
    ObservedTopic,
    RegistryEntry,
    acl_rule,
)
from planner.model.plan import Action, Change, FieldChange
from planner.model.step import (
    REPLACE,
    RESTORE,
    AlterConfigs,
    AlterQuota,
    CreateAcl,
    CreateTopic,
    DeleteAcl,
    DeleteTopic,
    Disown,
    GrowPartitions,
    LaunchJob,
    Own,
    Reassign,
    ReconfigureJob,
    RestoreOffsets,
    RestoreRecords,
    Step,
    StopJob,
)
from planner.plan.job_steps import job_steps
from planner.plan.quotas import quota_removal, quota_steps

# Additions come first and removals last, so that an interrupted plan has lost nothing.
RANK: Mapping[type, int] = {
    kind: rank
    for rank, kind in enumerate(
        (
            CreateTopic,
            Reassign,
            GrowPartitions,
            AlterConfigs,
            CreateAcl,
            AlterQuota,
            Own,
            StopJob,
            ReconfigureJob,
            LaunchJob,
            RestoreRecords,
            RestoreOffsets,
            DeleteAcl,
            DeleteTopic,
            Disown,
        )
    )
}


def make_steps(
    changes: Sequence[Change], desired: Desired, observed: Observed, owned: Mapping[Address, RegistryEntry]
) -> tuple[Step, ...]:
    """Returns the steps of all changes, in order."""
    topics = {one.address: one for one in desired.topics}
    acls = {one.address: one for one in desired.acls}
    quotas = {one.address: one for one in desired.quotas}
    steps: list[Step] = []
    for change in changes:
        if change.action is Action.UNKNOWN or (change.action is Action.NO_OP and not change.adopted):
            continue
        cluster = observed.reachable(change.address.cluster or "")
        if cluster is None:
            continue
        entry = owned.get(change.address)
        match change.address.kind:
            case Kind.TOPIC if change.address in topics:
                steps += _topic_steps(change, topics[change.address], cluster, entry, desired.topology)
            case Kind.ACL if change.address in acls:
                steps += _acl_steps(change, acls[change.address], entry, desired.topology)
            case Kind.QUOTA if change.address in quotas:
                steps += quota_steps(change, quotas[change.address], entry, desired.topology)
            case _ if entry is not None:
                steps += _removal_steps(change, entry, cluster)
            case _:
                pass
    every = [*steps, *job_steps(changes, desired, observed, steps)]
    return in_order(protection_in_order(restore_limits_last(remove_protection_last(every, owned)), owned))


def in_order(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Returns the steps by kind and address, each after everything that it needs."""
    ranked = sorted(steps, key=lambda step: (RANK[type(step)], step.id))
    placed: dict[str, None] = {}
    by_id = {step.id: step for step in ranked}

    def place(step: Step) -> None:
        for need in step.needs:
            if need not in placed and need in by_id:
                place(by_id[need])
        placed.setdefault(step.id)

    for step in ranked:
        place(step)
    return tuple(by_id[step_id] for step_id in placed)


def _topic_steps(
    change: Change, topic: DesiredTopic, cluster: ObservedCluster, entry: RegistryEntry | None, topology: str
) -> list[Step]:
    live = cluster.topics.get(topic.name)
    created = live is None or (entry is not None and entry.created)
    steps: list[Step] = [_create(topic)] if live is None else _update(change, topic, live, cluster, entry)
    topic_id = None if live is None else live.id
    steps.append(
        Own(
            id=f"own:{topic.address}",
            address=topic.address,
            cluster=topic.cluster,
            entry=topic_entry(topic, topology, topic_id, created=created),
            needs=tuple(step.id for step in steps),
        )
    )
    return steps


def _create(topic: DesiredTopic) -> CreateTopic:
    return CreateTopic(
        id=f"create:{topic.address}",
        address=topic.address,
        cluster=topic.cluster,
        topic=topic.name,
        partitions=topic.partitions,
        replication=topic.replication,
        config=dict(sorted(topic.config.items())),
    )


def _update(
    change: Change,
    topic: DesiredTopic,
    live: ObservedTopic,
    cluster: ObservedCluster,
    entry: RegistryEntry | None,
) -> list[Step]:
    moving = {one.path for one in change.fields}
    alter = _alter(change, topic, entry)
    reassign = _reassign(topic, live, cluster) if ("replication",) in moving else []
    grow = _grow(topic, live) if ("partitions",) in moving else []
    if alter and reassign:
        if _replicas_first(topic, live):
            alter = [replace(alter[0], needs=(reassign[0].id,))]
        else:
            reassign = [replace(reassign[0], needs=(alter[0].id,))]
    if grow and reassign:
        # New partitions take the replication of existing ones, and a reassignment names existing ones only.
        grow = [replace(grow[0], needs=(reassign[0].id,))]
    return [*alter, *reassign, *grow]


def _replicas_first(topic: DesiredTopic, live: ObservedTopic) -> bool:
    """Returns whether replicas change before min.insync.replicas does.

    min.insync.replicas must never exceed the number of replicas of any partition.
    """
    wanted = topic.replication or 0
    if all(len(one) <= wanted for one in live.replicas):
        return True
    least = topic.config.get("min.insync.replicas", "")
    return least.isdecimal() and int(least) > live.replication


def _grow(topic: DesiredTopic, live: ObservedTopic) -> list[Step]:
    if topic.partitions is None or topic.partitions <= live.partitions:
        return []
    step_id = f"grow:{topic.address}"
    return [
        GrowPartitions(step_id, topic.address, topic.cluster, topic.name, live.partitions, topic.partitions)
    ]


def _reassign(topic: DesiredTopic, live: ObservedTopic, cluster: ObservedCluster) -> list[Step]:
    wanted = wanted_replicas(live.replicas, topic.replication or 0, cluster.brokers)
    if wanted is None:
        return []
    step_id = f"reassign:{topic.address}"
    return [Reassign(step_id, topic.address, topic.cluster, topic.name, wanted, live.replicas)]


def _alter(change: Change, topic: DesiredTopic, entry: RegistryEntry | None) -> list[AlterConfigs]:
    """Returns one step for all settings. Its id says if it restores limits that a failback lifted."""
    configs = [one for one in change.fields if one.path[0] == "config"]
    if not configs:
        return []
    values = {**topic.restored, **topic.config}
    restores = given_back_after(topic, entry) & {one.key for one in configs}
    return [
        AlterConfigs(
            id=f"{RESTORE if restores else 'alter:'}{topic.address}",
            address=topic.address,
            cluster=topic.cluster,
            topic=topic.name,
            set={one.key: values[one.key] for one in configs if one.new is not None},
            unset=tuple(one.key for one in configs if one.new is None),
            old={one.key: _readable_old(one) for one in configs},
        )
    ]


def _readable_old(one: FieldChange) -> str | None:
    return None if one.old is None or one.sensitive else str(one.old)


def _acl_steps(change: Change, acl: DesiredAcl, entry: RegistryEntry | None, topology: str) -> list[Step]:
    cluster, address = acl.rule.cluster, acl.address
    makes = change.action is Action.CREATE
    ours = entry is not None and entry.created
    own = acl_entry(acl, topology, created=makes or ours)
    if acl.replaced:
        record = Own(f"own:{address}", address, cluster, own)
        return [record, DeleteAcl(f"{REPLACE}{address}", address, cluster, acl.rule, (record.id,))]
    steps: list[Step] = []
    if makes and not ours:
        # A rule is deleted only by the topology that made it, and the rule itself does not name it.
        steps.append(Own(f"announce:{address}", address, cluster, announced(own)))
    if makes:
        needs = tuple(one.id for one in steps)
        prefix = RESTORE if acl.waits else "create:"
        steps.append(CreateAcl(f"{prefix}{address}", address, cluster, acl.rule, needs))
    return [*steps, Own(f"own:{address}", address, cluster, own, tuple(one.id for one in steps[-1:]))]


def _removal_steps(change: Change, entry: RegistryEntry, cluster: ObservedCluster) -> list[Step]:
    address = entry.address
    steps: list[Step] = []
    live = cluster.topics.get(address.name)
    rule = acl_rule(cluster.name, entry.spec)
    if change.action is Action.DELETE:
        match address.kind:
            case Kind.TOPIC if live is not None:
                topic_id = entry.spec.get(ID, live.id)
                steps.append(DeleteTopic(f"delete:{address}", address, cluster.name, address.name, topic_id))
            case Kind.ACL if rule is not None:
                steps.append(DeleteAcl(f"delete:{address}", address, cluster.name, rule))
            case Kind.QUOTA:
                steps += quota_removal(change, entry, cluster.name)
            case _:
                return []
    elif change.action is Action.CREATE and rule is not None:
        steps.append(CreateAcl(f"{RESTORE}{address}", address, cluster.name, rule))
    needs = tuple(one.id for one in steps)
    return [*steps, Disown(f"disown:{address}", address, cluster.name, entry.topology, needs)]


def wanted_replicas(
    replicas: Sequence[tuple[int, ...]], replication: int, brokers: Sequence[ObservedBroker]
) -> tuple[tuple[int, ...], ...] | None:
    """Returns the new replicas of each partition; None if there are fewer live brokers than replicas.

    As few replicas as possible move. Replicas that stay keep their place, and the preferred leader stays
    first. A new replica goes to the broker with the fewest replicas of this topic, on an unused rack if one
    is left.
    """
    if replication < 1 or replication > len(brokers):
        return None
    racks = {broker.id: broker.rack for broker in brokers}
    load = Counter({broker.id: 0 for broker in brokers})
    kept = [tuple(one for one in partition if one in racks)[:replication] for partition in replicas]
    for partition in kept:
        load.update(partition)
    wanted = []
    for partition in kept:
        chosen = list(partition)
        while len(chosen) < replication:
            used_racks = {racks[one] for one in chosen if racks[one] is not None}
            broker = min(
                (one for one in racks if one not in chosen),
                key=lambda one: (racks[one] in used_racks, load[one], one),
            )
            load[broker] += 1
            chosen.append(broker)
        wanted.append(tuple(chosen))
    return tuple(wanted)


def remove_protection_last(steps: Sequence[Step], owned: Mapping[Address, RegistryEntry]) -> list[Step]:
    """Makes the removal of a protecting ACL wait until its flow has released the mirror."""
    flow_steps = {step.id for step in steps if isinstance(step, Own) and step.address.kind is Kind.FLOW}
    return [_with_need(step, _flow_step(owned.get(step.address)), flow_steps) for step in steps]


def protection_in_order(steps: Sequence[Step], owned: Mapping[Address, RegistryEntry]) -> list[Step]:
    """Orders the steps by which rights to write are taken away and given back.

    A rule is replaced after the rules in its place are made. A right is given back after the flows of this
    plan have released their mirrors, and what was in its place is removed after that.
    """
    ended: dict[str, list[str]] = {}
    made: dict[str, list[str]] = {}
    restored: dict[str, list[str]] = {}
    for step in steps:
        if isinstance(step, Own) and step.address.kind is Kind.FLOW:
            ended.setdefault(step.cluster, []).append(step.id)
        elif isinstance(step, CreateAcl):
            (restored if step.id.startswith(RESTORE) else made).setdefault(step.cluster, []).append(step.id)

    def needs_of(step: Step) -> list[str]:
        at = step.cluster
        match step:
            case CreateAcl() if step.id.startswith(RESTORE):
                return ended.get(at, [])
            case DeleteAcl() if step.id.startswith(REPLACE):
                return made.get(at, [])
            case DeleteAcl() if (entry := owned.get(step.address)) is not None and entry.is_protection:
                return [*ended.get(at, ()), *restored.get(at, ())]
            case _:
                return []

    return [
        replace(step, needs=(*dict.fromkeys((*step.needs, *more)),)) if (more := needs_of(step)) else step
        for step in steps
    ]


def restore_limits_last(steps: Sequence[Step]) -> list[Step]:
    """Makes the restoring of lifted limits wait until the failback has ended."""
    ended: dict[str, list[str]] = {}
    for step in steps:
        if isinstance(step, Own) and step.address.kind is Kind.FLOW:
            ended.setdefault(step.cluster, []).append(step.id)
    return [
        replace(step, needs=(*step.needs, *ended.get(step.cluster, ())))
        if isinstance(step, AlterConfigs) and step.id.startswith(RESTORE)
        else step
        for step in steps
    ]


def _flow_step(entry: RegistryEntry | None) -> str:
    """Returns the id of the step that registers the end of the flow which made the entry."""
    flow = flow_of(entry) if entry is not None else None
    return f"own:{flow_address(flow)}" if flow is not None else ""


def _with_need(step: Step, need: str, flow_steps: Iterable[str]) -> Step:
    return (
        replace(step, needs=(*step.needs, need))
        if isinstance(step, DeleteAcl) and need in flow_steps
        else step
    )
