"""The inverse of an apply: undoes its steps where that is possible, and reports the others.

Only steps that were done are undone, in reverse order. A step is undone only where the cluster is still as
that apply left it: a later change is left alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from planner.diff.differ import owned_by_address
from planner.diff.record import destination_jobs
from planner.diff.typed_values import explicit
from planner.diff.values import normal
from planner.model.address import Address
from planner.model.diagnostic import Diagnostic, warning
from planner.model.observed import (
    CONFIG,
    ID,
    LiveJob,
    Observed,
    ObservedTopic,
    RegistryEntry,
    acl_spec,
    replication_factors,
)
from planner.model.plan import SENSITIVE, Action, Change, FieldChange
from planner.model.step import (
    REPLACE,
    RESTORE,
    AlterConfigs,
    AlterQuota,
    ApplyRecord,
    CreateAcl,
    CreateTopic,
    DeleteAcl,
    DeleteTopic,
    Disown,
    GrowPartitions,
    LaunchJob,
    Own,
    Reassign,
    RestoreOffsets,
    RestoreRecords,
    Step,
    StopJob,
    describe,
)
from planner.plan.quotas import undo_quota
from planner.plan.steps import in_order


@dataclass(frozen=True, slots=True)
class Rollback:
    """The changes and steps of a rollback, and warnings about steps that can't be undone."""

    changes: tuple[Change, ...]
    steps: tuple[Step, ...]
    diagnostics: tuple[Diagnostic, ...]


@dataclass(frozen=True, slots=True)
class _Undone:
    """The result of undoing one step. `why_not` says why it can't be undone, as a whole or in part."""

    change: Change | None = None
    steps: tuple[Step, ...] = ()
    why_not: str = ""
    way_out: str = ""


def roll_back(applied: ApplyRecord, observed: Observed) -> Rollback:
    """Returns the changes and steps that undo an apply."""
    owned = {**owned_by_address(observed), **_jobs_and_flows(observed, applied.topology)}
    done = _steps_done(applied)
    created = {step.address for step in done if isinstance(step, CreateTopic | CreateAcl)}
    replaced = {step.address for step in done if step.id.startswith(REPLACE)}
    changes: list[Change] = []
    steps: list[Step] = []
    problems: list[Diagnostic] = []
    for step in reversed(_steps_done(applied)):
        if step.address in created and not isinstance(step, CreateTopic | CreateAcl):
            continue  # undone together with the object
        if step.address in replaced and isinstance(step, Own):
            continue  # undone together with the replaced rule
        undone = _undo(step, observed, owned.get(step.address), applied)
        if undone.change is not None:
            changes.append(undone.change)
        steps += undone.steps
        if undone.why_not:
            summary = f"{describe(step)} is not undone: {undone.why_not}"
            problems.append(warning(summary, undone.way_out, address=str(step.address), code="not-undone"))
    return Rollback(_one_change_per_object(changes), in_order(_stop_jobs_first(steps)), tuple(problems))


def _jobs_and_flows(observed: Observed, topology: str) -> dict[Address, RegistryEntry]:
    """Returns the topology's registry entries of jobs and flows."""
    return {
        address: entry
        for known_jobs in destination_jobs(observed).values()
        for address, entry in known_jobs.entries.items()
        if entry.topology == topology
    }


def _stop_jobs_first(steps: Sequence[Step]) -> list[Step]:
    """Makes deletions and disowning wait until every job has stopped."""
    stops = tuple(step.id for step in steps if isinstance(step, StopJob))
    return [
        replace(step, needs=(*step.needs, *stops)) if isinstance(step, DeleteTopic | Disown) else step
        for step in steps
    ]


def _steps_done(applied: ApplyRecord) -> list[Step]:
    """Returns the steps of the apply that were done."""
    return [
        step
        for step in applied.steps
        if (outcome := applied.outcomes.get(step.id)) is not None and outcome.result == "done"
    ]


def _one_change_per_object(changes: Sequence[Change]) -> tuple[Change, ...]:
    """Joins the changes of each object into one change with all fields."""
    joined: dict[Address, Change] = {}
    for change in changes:
        known = joined.get(change.address)
        joined[change.address] = (
            change if known is None else replace(known, fields=(*known.fields, *change.fields))
        )
    return tuple(joined[address] for address in sorted(joined))


def _undo(step: Step, observed: Observed, entry: RegistryEntry | None, applied: ApplyRecord) -> _Undone:
    cluster = observed.reachable(step.cluster)
    if cluster is None:
        return _Undone(why_not=f"{step.cluster} does not answer", way_out="bring it back and plan again")
    reason = f"undoes apply {applied.id}"
    live = cluster.topics.get(step.address.name)
    match step:
        case CreateTopic() | AlterConfigs() | Reassign() | GrowPartitions() | DeleteTopic():
            return _undo_topic_step(step, live, entry, reason)
        case CreateAcl() if step.id.startswith(RESTORE):
            return _Undone(
                why_not="the plan of the topology decides who may write a mirror",
                way_out="revert the edit of the topology, then apply",
            )
        case CreateAcl():
            return _undo_create_acl(step, cluster.acls, applied.topology, reason)
        case AlterQuota():
            return _Undone(*undo_quota(step, cluster, entry, reason))
        case DeleteAcl() if step.id.startswith(REPLACE):
            return _undo_replace(step, entry, reason)
        case DeleteAcl():
            change = Change(step.address, Action.CREATE, reason, after={"rule": step.rule.name})
            return _Undone(
                change, (CreateAcl(f"create:{step.address}", step.address, step.cluster, step.rule),)
            )
        case LaunchJob():
            return _undo_launch(step, cluster.job(step.job), reason)
        case Own() if step.address.cluster is None:
            return _undo_own_flow(step, entry, applied, reason)
        case Own():
            return _undo_own(step, entry, reason)
        case _:
            why_not, way_out = _KEPT.get(type(step), _OF_THE_TOPOLOGY)
            return _Undone(why_not=why_not, way_out=way_out)


_RESTORED = "what a restore wrote is kept", "delete the restored topics, or reset the offsets of the group"
_OF_THE_TOPOLOGY = (
    "a job's spec comes from the topology alone",
    "revert the edit of the topology, then apply",
)
_KEPT: Mapping[type[Step], tuple[str, str]] = {
    RestoreRecords: _RESTORED,
    RestoreOffsets: _RESTORED,
    Disown: (
        "its former registry entry is not kept",
        "declare it again: an object that exists is adopted",
    ),
}


def _undo_topic_step(
    step: CreateTopic | AlterConfigs | Reassign | GrowPartitions | DeleteTopic,
    live: ObservedTopic | None,
    entry: RegistryEntry | None,
    reason: str,
) -> _Undone:
    match step:
        case CreateTopic():
            return _undo_create(step, live, entry, reason)
        case AlterConfigs():
            return _undo_alter(step, live, entry, reason)
        case Reassign():
            return _undo_reassign(step, live, reason)
        case GrowPartitions():
            return _Undone(
                why_not="partitions only grow",
                way_out="for fewer, make a topic of another name and copy into it",
            )
        case DeleteTopic():
            return _Undone(why_not="its records are gone", way_out="declare it again for an empty one")


def _undo_launch(step: LaunchJob, live: LiveJob | None, reason: str) -> _Undone:
    """Stops the job. Its ledger stays, so a job that is started later continues from there."""
    if live is None or not live.live:
        return _Undone()
    launch = msgspec.json.encode(live.spec.launch).decode() if live.spec is not None else ""
    stop = StopJob(f"stop:{step.address}", step.address, step.cluster, step.job, (), launch)
    return _Undone(Change(step.address, Action.DELETE, reason), (stop,))


def _undo_own_flow(step: Own, entry: RegistryEntry | None, applied: ApplyRecord, reason: str) -> _Undone:
    """Disowns a flow or job that the apply brought. One that existed before keeps its entry."""
    launches = [one for one in applied.steps if isinstance(one, LaunchJob)]
    came = any(one.address == step.address or one.id in step.needs for one in launches)
    if not came or entry is None:
        return _Undone()
    if entry.spec != dict(step.entry.spec):
        return _Undone(why_not="it was changed since")
    return _Undone(Change(step.address, Action.DELETE, reason), (_disown(step, entry.topology),))


def _undo_create(
    step: CreateTopic, live: ObservedTopic | None, entry: RegistryEntry | None, reason: str
) -> _Undone:
    if live is None:
        return _Undone(why_not="it is gone already")
    if entry is None or entry.spec.get(ID) != live.id:
        return _Undone(
            why_not="another topic has its name now", way_out="delete that topic by hand if needed"
        )
    before = {
        "partitions": live.partitions,
        "replication": live.replication_factors,
        "config": dict(step.config),
    }
    notes = ("records that were written to it since are lost",)
    change = Change(step.address, Action.DELETE, reason, before=before, notes=notes)
    delete = DeleteTopic(f"delete:{step.address}", step.address, step.cluster, step.topic, live.id)
    return _Undone(change, (delete, _disown(step, entry.topology, delete.id)))


def _disown(step: Step, topology: str, *needs: str) -> Disown:
    return Disown(f"disown:{step.address}", step.address, step.cluster, topology, needs)


def _undo_alter(
    step: AlterConfigs, live: ObservedTopic | None, entry: RegistryEntry | None, reason: str
) -> _Undone:
    if live is None:
        return _Undone(why_not="the topic is gone")
    wanted: Mapping[str, str | None] = {**step.set, **dict.fromkeys(step.unset)}
    moved = sorted(key for key, value in wanted.items() if _value(live, key) != normal(key, value))
    secret = sorted(key for key in wanted if key not in step.old or step.old[key] == SENSITIVE)
    left = [key for key in sorted(wanted) if key not in moved and key not in secret]
    why_not = "; ".join(
        text
        for keys, text in ((moved, "changed since"), (secret, "the old value was never read"))
        if keys
        for text in (f"{', '.join(keys)}: {text}",)
    )
    if not left:
        return _Undone(why_not=why_not)
    fields = tuple(FieldChange(("config", key), wanted[key], step.old[key]) for key in left)
    back = AlterConfigs(
        id=f"alter:{step.address}",
        address=step.address,
        cluster=step.cluster,
        topic=step.topic,
        set={key: value for key in left if (value := step.old[key]) is not None},
        unset=tuple(key for key in left if step.old[key] is None),
        old={key: wanted[key] for key in left},
    )
    steps: tuple[Step, ...] = (back,)
    if entry is not None:
        steps = (back, _own_restored(step, entry, {key: step.old[key] for key in left}, back.id))
    return _Undone(Change(step.address, Action.UPDATE, reason, fields), steps, why_not)


def _own_restored(step: Step, entry: RegistryEntry, values: Mapping[str, str | None], *needs: str) -> Own:
    spec = dict(entry.spec)
    for key, value in values.items():
        spec.pop(CONFIG + key, None)
        if value is not None:
            spec[CONFIG + key] = value
    return Own(f"own:{step.address}", step.address, step.cluster, replace(entry, spec=spec), needs)


def _value(live: ObservedTopic, key: str) -> object:
    value = explicit(live, key)
    return normal(key, None if value is None else value.value)


def _undo_reassign(step: Reassign, live: ObservedTopic | None, reason: str) -> _Undone:
    if live is None or live.replicas != step.replicas:
        return _Undone(why_not="its replicas moved since")
    fields = (FieldChange(("replication",), live.replication_factors, replication_factors(step.old)),)
    back = Reassign(
        f"reassign:{step.address}", step.address, step.cluster, step.topic, step.old, step.replicas
    )
    return _Undone(Change(step.address, Action.UPDATE, reason, fields), (back,))


def _undo_create_acl(step: CreateAcl, acls: Sequence[object] | None, topology: str, reason: str) -> _Undone:
    if acls is None or step.rule not in acls:
        return _Undone(why_not="it is gone already")
    change = Change(step.address, Action.DELETE, reason, before={"rule": step.rule.name})
    delete = DeleteAcl(f"delete:{step.address}", step.address, step.cluster, step.rule)
    return _Undone(change, (delete, _disown(step, topology, delete.id)))


def _undo_replace(step: DeleteAcl, entry: RegistryEntry | None, reason: str) -> _Undone:
    if entry is None or not entry.is_replaced:
        return _Undone(why_not="it was restored since")
    rule = acl_spec(step.rule)
    change = Change(step.address, Action.CREATE, reason, before=dict(entry.spec), after=dict(rule))
    create = CreateAcl(f"{RESTORE}{step.address}", step.address, step.cluster, step.rule)
    return _Undone(change, (create, _disown(step, entry.topology, create.id)))


def _undo_own(step: Own, entry: RegistryEntry | None, reason: str) -> _Undone:
    """Disowns an object that was only adopted. An object that was changed keeps its entry."""
    if step.needs or entry is None or entry.spec != dict(step.entry.spec):
        return _Undone()
    return _Undone(Change(step.address, Action.FORGET, reason), (_disown(step, entry.topology),))
