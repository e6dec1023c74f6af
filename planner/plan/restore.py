"""The plan of a restore: a backup → changes → steps. Pure.

A topic is created with settings that keep every record while it is restored: no retention, no compaction, and
the producers' timestamps. Its own settings are set once its records are there and were compared.
"""

from collections.abc import Iterator, Mapping

import msgspec
from msgspec import structs

from planner.diff.schemas import COMPATIBILITY, VERSIONS
from planner.model.address import Address, Kind, group_address, schema_address, topic_address
from planner.model.change import Action, Change, FieldChange, Path, Value
from planner.model.diagnostic import Diagnostic, note, warning
from planner.model.plan import Plan, PlanInputs
from planner.model.restore import RestoredBackup, RestoredGroup, RestoredSubject, RestoredTopic
from planner.model.step import Step
from planner.plan.guards import ownership
from planner.plan.ordering import in_order
from planner.plan.steps.acls import CreateAcl
from planner.plan.steps.restores import RestoreOffsets, RestoreRecords, RestoreSchemas
from planner.plan.steps.topics import AlterConfigs, CreateTopic
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


def fitting(config: Mapping[str, str], cluster_settings: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings of a backed-up topic that a cluster with these settings has."""
    kept = {key: value for key, value in config.items() if key not in _OF_A_CLUSTER}
    return dict(sorted(supported(kept, cluster_settings).items()))


def restore_plan(inputs: PlanInputs) -> Plan:
    """Returns the plan of a restore. What is not allowed is an error of the plan."""
    backup = inputs.backup
    assert backup is not None
    changes = restore_changes(backup)
    steps = restore_steps(backup)
    return Plan(
        inputs,
        changes,
        steps,
        (
            *inputs.observed.diagnostics,
            *ownership(inputs.topology.name, inputs.observed, changes),
            *inputs.diagnostics,
            *approval(backup),
        ),
    )


def restore_changes(backup: RestoredBackup) -> tuple[Change, ...]:
    """Returns the changes of a restore."""
    changes = [_topic_change(backup, topic) for topic in backup.topics]
    changes += [_group_change(backup, group) for group in backup.groups]
    changes += [
        Change(
            address=Address(Kind.ACL, backup.cluster, rule.name),
            action=Action.CREATE,
            reason=f"from the backup {backup.endpoint}",
            fields=(FieldChange(("rule",), None, rule.name),),
            after=rule.spec,
            notes=(_WIDE,) if rule.pattern == "PREFIXED" or rule.resource == EVERY_TOPIC else (),
        )
        for rule in sorted(backup.acls)
    ]
    changes += [_subject_change(backup, subject) for subject in backup.subjects]
    return tuple(sorted(changes, key=lambda change: change.address))


def approval(backup: RestoredBackup) -> Iterator[Diagnostic]:
    """Yields what a person has to approve: rules, offsets and schemas that only an unsigned file asks for.

    A digest shows that a file was not damaged, and not which writer of the folder has made it. The plan shows
    each rule, offset and version of a subject, and its steps write these alone.
    """
    groups, acls, subjects = backup.groups, backup.acls, backup.subjects
    if not groups and not acls and not subjects:
        return
    wanted = [f"ACL rules ({len(acls)})"] if acls else []
    wanted += [f"offsets of consumer groups ({len(groups)})"] if groups else []
    wanted += [f"schemas of subjects ({len(subjects)})"] if subjects else []
    left_out = ["leave --acls out"] if acls else []
    left_out += ["choose groups with --groups"] if groups else []
    otherwise = f". Otherwise {' and '.join(left_out)}" if left_out else ""
    severity = warning if acls else note
    yield severity(
        f"{' and '.join(wanted)} are those that files in {backup.state.folder} name, which are not signed",
        f"read each of them before you approve: any writer of the folder may have asked for it{otherwise}",
        code="restore",
    )


def _topic_change(backup: RestoredBackup, topic: RestoredTopic) -> Change:
    state = backup.state
    sizes: dict[str, Value] = {"partitions": topic.partitions, "replication": topic.replication}
    config = dict(sorted(topic.config.items()))
    after: dict[str, object] = {
        "restore": {
            "endpoint": backup.endpoint,
            "folder": state.folder,
            "flow": state.flow,
            "commit": state.commit,
            "digest": state.digest,
            **({"client": msgspec.json.encode(state.client).decode()} if state.client else {}),
            "source": topic.source,
            "source_id": topic.source_id,
            "ends": list(topic.ends),
            "records": topic.records,
        }
    }
    fields: dict[Path, Value] = {
        ("records",): topic.records,
        ("backup",): f"{state.folder}, flow {state.flow}, commit {state.commit}",
        ("before offsets",): ", ".join(f"{number}: {end}" for number, end in enumerate(topic.ends)),
    }
    if not topic.exists:
        after |= {**sizes, "config": config, "held": dict(sorted(backup.held.items()))}
        fields = {
            **{(key,): value for key, value in sizes.items()},
            **fields,
            **{("config", key): value for key, value in config.items()},
        }
    until = f", up to {backup.until}" if backup.until else ""
    return Change(
        address=topic_address(backup.cluster, topic.name),
        action=Action.UPDATE if topic.exists else Action.CREATE,
        reason=f"{topic.source} of the backup {backup.endpoint}{until}",
        fields=tuple(FieldChange(path, None, value) for path, value in fields.items()),
        after=after,
        notes=topic.notes,
    )


def _group_change(backup: RestoredBackup, group: RestoredGroup) -> Change:
    return Change(
        address=group_address(backup.cluster, group.name),
        action=Action.CREATE,
        reason=f"snapshot of {group.snapshot}; offsets of the backup, which are translated",
        fields=tuple(
            FieldChange(
                (f"{offset.topic}-{offset.partition}",),
                None,
                f"{offset.offset}, metadata {offset.metadata}" if offset.metadata else offset.offset,
            )
            for offset in group.offsets
        ),
        after={
            "flow": backup.state.flow,
            "offsets": [
                {key: value for key, value in structs.asdict(offset).items() if key != "group"}
                for offset in group.offsets
            ],
        },
    )


def _subject_change(backup: RestoredBackup, subject: RestoredSubject) -> Change:
    versions = ", ".join(f"{version.number} (id {version.id})" for version in subject.versions)
    ids = "with new ids" if backup.translated else "with their ids"
    fields = [FieldChange((VERSIONS,), None, len(subject.versions), note=f"{ids}: {versions}")]
    if subject.compatibility:
        fields.append(FieldChange((COMPATIBILITY,), None, subject.compatibility))
    return Change(
        address=schema_address(backup.cluster, subject.name),
        action=Action.CREATE,
        reason=f"from the backup {backup.endpoint}",
        fields=tuple(fields),
        after={field.key: field.new for field in fields},
    )


def restore_steps(backup: RestoredBackup) -> tuple[Step, ...]:
    """Returns the steps of a restore, in the order of their needs."""
    cluster = backup.cluster
    schemas = [
        RestoreSchemas(
            f"register:{address}",
            address,
            cluster,
            subject_name=subject.name,
            source_subject=subject.subject,
            versions=subject.versions,
            compatibility=subject.compatibility,
            backup=backup.state,
            translated=backup.translated,
        )
        for subject in backup.subjects
        for address in (schema_address(cluster, subject.name),)
    ]
    first = tuple(step.id for step in schemas)  # consumers of the restored records need them
    steps: list[Step] = [*schemas]
    steps += [step for topic in backup.topics for step in _topic_steps(backup, topic, first)]
    restored = {step.topic: step.id for step in steps if isinstance(step, RestoreRecords)}
    for rule in backup.acls:
        address = Address(Kind.ACL, cluster, rule.name)
        steps.append(CreateAcl(f"create:{address}", address, cluster, rule))
    for group in backup.groups:
        address = group_address(cluster, group.name)
        steps.append(
            RestoreOffsets(
                id=f"offsets:{address}",
                address=address,
                cluster=cluster,
                group=group.name,
                flow=backup.state.flow,
                offsets=group.offsets,
                needs=tuple(
                    sorted({restored[offset.topic] for offset in group.offsets if offset.topic in restored})
                ),
            )
        )
    return in_order(steps)


def _topic_steps(backup: RestoredBackup, topic: RestoredTopic, schemas: tuple[str, ...]) -> Iterator[Step]:
    held, cluster = backup.held, backup.cluster
    address = topic_address(cluster, topic.name)
    where = address, cluster, topic.name
    create = CreateTopic(
        f"create:{address}",
        *where,
        partitions=topic.partitions,
        replication=topic.replication,
        config=dict(sorted({**topic.config, **held}.items())),
    )
    records = RestoreRecords(
        f"restore:{address}",
        *where,
        restored=topic,
        backup=backup.state,
        translated=backup.translated,
        needs=schemas if topic.exists else (*schemas, create.id),
    )
    if topic.exists:
        yield records
        return
    yield from (create, records)
    changed = {key: topic.config[key] for key, value in held.items() if topic.config.get(key, value) != value}
    unset = tuple(sorted(held.keys() - topic.config.keys()))
    if changed or unset:
        yield AlterConfigs(
            f"configure:{address}",
            *where,
            set=changed,
            unset=unset,
            old=dict(sorted(held.items())),
            needs=(records.id,),
        )
