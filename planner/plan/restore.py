"""The plan of a restore: a backup → changes → steps. Pure.

A topic is created with settings that keep every record while it is restored: no retention, no compaction, and
the producers' timestamps. Its own settings are set once its records are there and were compared.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from planner.model.address import Address, Kind, group_address, topic_address
from planner.model.diagnostic import Diagnostic, note, warning
from planner.model.observed import acl_rule, acl_spec
from planner.model.plan import Action, Change, FieldChange, Plan
from planner.model.step import (
    AlterConfigs,
    BackedUpOffset,
    CreateAcl,
    CreateTopic,
    RestoreOffsets,
    RestoreRecords,
    Step,
)
from planner.model.topology import AclRule
from planner.plan.steps import in_order
from runtime.contract.spec.acls import EVERY_TOPIC
from runtime.contract.spec.topic_settings import BOUNDS, supported

HELD: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    **BOUNDS,
}
WITHOUT_RETENTION: Mapping[str, str] = {"retention.ms": "-1", "retention.bytes": "-1"}
_WIDE = "it applies to other topics too"
# Settings that name brokers of the source.
_OF_A_CLUSTER = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


@dataclass(frozen=True, slots=True)
class BackupState:
    """Which backup is restored: the manifest of `flow` in `folder` after a commit, and up to which time.

    `client` is how the object store is reached that holds it, as the steps have it.
    """

    endpoint: str
    folder: str
    flow: str
    commit: int
    digest: str
    until: str = ""
    client: str = ""


@dataclass(frozen=True, slots=True)
class RestoredTopic:
    """A topic to restore. `exists`: the cluster has it, and it is empty or holds a part of this restore.

    `ends` has, for each partition, the offset of the backup before which the restore ends.
    """

    name: str
    source: str
    source_id: str
    partitions: int
    replication: int | None
    config: Mapping[str, str]
    ends: tuple[int, ...]
    records: int
    exists: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RestoredGroup:
    """A consumer group whose offsets are restored, by partitions of the restored topics."""

    name: str
    offsets: tuple[BackedUpOffset, ...]
    snapshot: str = field(default="")


def fitting(config: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings of a backed-up topic that a cluster with these settings has."""
    kept = {key: value for key, value in config.items() if key not in _OF_A_CLUSTER}
    return dict(sorted(supported(kept, known).items()))


def restore_changes(
    backup: BackupState,
    cluster: str,
    held: Mapping[str, str],
    topics: Iterable[RestoredTopic],
    groups: Iterable[RestoredGroup],
    acls: Iterable[AclRule],
) -> tuple[Change, ...]:
    """Returns the changes. `held` are the settings of HELD that the cluster has."""
    changes = [_topic_change(backup, cluster, held, one) for one in topics]
    changes += [_group_change(backup, cluster, one) for one in groups]
    changes += [
        Change(
            address=Address(Kind.ACL, cluster, rule.name),
            action=Action.CREATE,
            reason=f"from the backup {backup.endpoint}",
            fields=(FieldChange(("rule",), None, rule.name),),
            after=acl_spec(rule),
            notes=(_WIDE,) if rule.pattern == "PREFIXED" or rule.resource == EVERY_TOPIC else (),
        )
        for rule in sorted(acls)
    ]
    return tuple(sorted(changes, key=lambda one: one.address))


def approval(
    backup: BackupState, groups: Sequence[RestoredGroup], acls: Sequence[AclRule]
) -> Iterator[Diagnostic]:
    """Yields what a person has to approve: rules and offsets that only an unsigned snapshot asks for.

    A digest shows that a snapshot was not damaged, and not which writer of the folder has made it. The plan
    shows each rule and each offset, and its steps write these alone.
    """
    if not groups and not acls:
        return
    wanted = [f"ACL rules ({len(acls)})"] if acls else []
    wanted += [f"offsets of consumer groups ({len(groups)})"] if groups else []
    left_out = ["leave --acls out"] if acls else []
    left_out += ["choose groups with --groups"] if groups else []
    severity = warning if acls else note
    yield severity(
        f"{' and '.join(wanted)} are those that the snapshots in {backup.folder} name, which are not signed",
        f"read each of them before you approve: any writer of the folder may have asked for it. Otherwise"
        f" {' and '.join(left_out)}",
        code="restore",
    )


def _topic_change(backup: BackupState, cluster: str, held: Mapping[str, str], topic: RestoredTopic) -> Change:
    after: dict[str, object] = {
        "restore": {
            **{key: value for key, value in asdict(backup).items() if key != "until" and value != ""},
            "source": topic.source,
            "source_id": topic.source_id,
            "ends": list(topic.ends),
            "records": topic.records,
        }
    }
    if not topic.exists:
        after |= {
            "partitions": topic.partitions,
            "replication": topic.replication,
            "config": dict(sorted(topic.config.items())),
            "held": dict(sorted(held.items())),
        }
    until = f", up to {backup.until}" if backup.until else ""
    return Change(
        address=topic_address(cluster, topic.name),
        action=Action.UPDATE if topic.exists else Action.CREATE,
        reason=f"{topic.source} of the backup {backup.endpoint}{until}",
        fields=_topic_fields(after),
        after=after,
        notes=topic.notes,
    )


def _topic_fields(after: Mapping[str, Any]) -> tuple[FieldChange, ...]:
    """Returns what a reader of the plan sees of a restored topic."""
    restore = after["restore"]
    found = [
        FieldChange(("records",), None, restore["records"]),
        FieldChange(
            ("backup",), None, f"{restore['folder']}, flow {restore['flow']}, commit {restore['commit']}"
        ),
        FieldChange(
            ("before offsets",),
            None,
            ", ".join(f"{number}: {end}" for number, end in enumerate(restore["ends"])),
        ),
    ]
    if "config" in after:
        found.insert(0, FieldChange(("partitions",), None, after["partitions"]))
        found.insert(1, FieldChange(("replication",), None, after["replication"]))
        found += [FieldChange(("config", key), None, value) for key, value in sorted(after["config"].items())]
    return tuple(found)


def _group_change(backup: BackupState, cluster: str, group: RestoredGroup) -> Change:
    after: dict[str, object] = {
        "flow": backup.flow,
        "offsets": [
            {"topic": one.topic, "partition": one.partition, "offset": one.offset, "metadata": one.metadata}
            for one in group.offsets
        ],
    }
    return Change(
        address=group_address(cluster, group.name),
        action=Action.CREATE,
        reason=f"snapshot of {group.snapshot}; offsets of the backup, which are translated",
        fields=_group_fields(after),
        after=after,
    )


def _group_fields(after: Mapping[str, Any]) -> tuple[FieldChange, ...]:
    return tuple(
        FieldChange(
            (f"{one['topic']}-{one['partition']}",),
            None,
            f"{one['offset']}, metadata {one['metadata']}" if one["metadata"] else one["offset"],
        )
        for one in after["offsets"]
    )


def restore_steps(changes: Sequence[Change], topology: str = "") -> tuple[Step, ...]:
    """Returns the steps of the changes. The changes hold all of it: the same changes have the same steps."""
    steps: list[Step] = []
    for change in changes:
        assert change.address.cluster is not None
        match change.address.kind:
            case Kind.TOPIC:
                steps += _topic_steps(change.address, change.address.cluster, change.after or {})
            case Kind.ACL:
                rule = acl_rule(change.address.cluster, _texts(change.after or {}))
                if rule is not None:
                    steps.append(
                        CreateAcl(f"create:{change.address}", change.address, change.address.cluster, rule)
                    )
            case _:
                pass
    restored = {step.topic: step.id for step in steps if isinstance(step, RestoreRecords)}
    for change in changes:
        if change.address.kind is Kind.GROUP:
            steps.append(_group_step(change, restored))
    return in_order(steps)


def _texts(after: Mapping[str, object]) -> dict[str, str]:
    return {key: str(value) for key, value in after.items()}


def _topic_steps(address: Address, cluster: str, after: Mapping[str, Any]) -> list[Step]:
    restore = after["restore"]
    needs: list[str] = []
    steps: list[Step] = []
    config, held = after.get("config"), after.get("held", {})
    if config is not None:
        made = CreateTopic(
            id=f"create:{address}",
            address=address,
            cluster=cluster,
            topic=address.name,
            partitions=after["partitions"],
            replication=after["replication"],
            config=dict(sorted({**config, **held}.items())),
        )
        steps.append(made)
        needs.append(made.id)
    records = RestoreRecords(
        id=f"restore:{address}",
        address=address,
        cluster=cluster,
        topic=address.name,
        endpoint=restore["endpoint"],
        folder=restore["folder"],
        flow=restore["flow"],
        commit=restore["commit"],
        digest=restore["digest"],
        source=restore["source"],
        source_id=restore["source_id"],
        ends=tuple(restore["ends"]),
        records=restore["records"],
        client=restore.get("client", ""),
        needs=tuple(needs),
    )
    steps.append(records)
    if config is not None:
        own = {key: config[key] for key, value in held.items() if key in config and config[key] != value}
        unset = tuple(sorted(key for key in held if key not in config))
        if own or unset:
            steps.append(
                AlterConfigs(
                    id=f"configure:{address}",
                    address=address,
                    cluster=cluster,
                    topic=address.name,
                    set=own,
                    unset=unset,
                    old=dict(sorted(held.items())),
                    needs=(records.id,),
                )
            )
    return steps


def _group_step(change: Change, restored: Mapping[str, str]) -> RestoreOffsets:
    after: Mapping[str, Any] = change.after or {}
    offsets = tuple(
        BackedUpOffset(one["topic"], one["partition"], one["offset"], one["metadata"])
        for one in after["offsets"]
    )
    assert change.address.cluster is not None
    return RestoreOffsets(
        id=f"offsets:{change.address}",
        address=change.address,
        cluster=change.address.cluster,
        group=change.address.name,
        flow=after["flow"],
        offsets=offsets,
        needs=tuple(sorted({restored[one.topic] for one in offsets if one.topic in restored})),
    )


def restore_problems(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yields where the steps of a restore are not those of its changes, or what is shown differs."""
    for change in plan.changes:
        kind, cluster = change.address.kind, change.address.cluster
        fits = kind in (Kind.TOPIC, Kind.GROUP, Kind.ACL) and change.action in (Action.CREATE, Action.UPDATE)
        if not fits or cluster not in plan.clusters or cluster not in plan.connections:
            yield str(change.address), "no restore changes it"
            return
    try:
        wanted = restore_steps(plan.changes)
        fields = [_fields_of(change) for change in plan.changes]
    except (KeyError, TypeError, ValueError, AttributeError):
        yield "", "a change does not say what is restored"
        return
    for change, shown in zip(plan.changes, fields, strict=True):
        if change.fields != shown:
            yield str(change.address), "what it would restore is not what is shown"
    if wanted != plan.steps:
        known = {step.id: step for step in wanted}
        other = next((one for one in plan.steps if known.get(one.id) != one), None)
        where = other or next((one for one in wanted if one not in plan.steps), None)
        yield (str(where.address) if where is not None else ""), "a step is not the one of its change"


def _fields_of(change: Change) -> tuple[FieldChange, ...]:
    after: Mapping[str, Any] = change.after or {}
    match change.address.kind:
        case Kind.TOPIC:
            return _topic_fields(after)
        case Kind.GROUP:
            return _group_fields(after)
        case _:
            rule = acl_rule(change.address.cluster or "", _texts(after))
            return (FieldChange(("rule",), None, rule.name if rule is not None else ""),)
