"""Checks that the steps of a plan are exactly what its changes show.

People approve changes; apply executes steps. A saved plan may have been altered between the two. Therefore
apply executes no step that its change does not show, and no change that has no step. Each kind of step is
handled in one `match` that ends in `assert_never`: a kind that is added later fails the type check until it
is handled here.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, assert_never

from planner.diff.record import is_announced, replaces, restores
from planner.diff.topics import RESTORED
from planner.diff.values import normal, replication
from planner.model.address import Address, Kind
from planner.model.diagnostic import Diagnostic, ExitCode, error
from planner.model.observed import ID, REPLACED, RegistryEntry, acl_rule, replication_factors
from planner.model.plan import SENSITIVE, Action, Change, FieldChange, Fingerprint, Mode, Plan, Value
from planner.model.step import (
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
    describe,
)
from planner.plan.fingerprint import replicas_text
from planner.plan.job_agreement import job_problems, recorded_problems
from planner.plan.quotas import limits_moved, quota_entry_problems, quota_problems
from planner.plan.restore import restore_problems
from planner.plan.steps import in_order

MANAGING = (Action.CREATE, Action.UPDATE, Action.REPLACE)
IDLE = (Action.NO_OP, Action.UNKNOWN)
PARTITIONS, REPLICATION = ("partitions",), ("replication",)
TopicStep = CreateTopic | GrowPartitions | AlterConfigs | Reassign | DeleteTopic


@dataclass(frozen=True, slots=True)
class ShownChange:
    """What a plan shows of one object: its change and its fingerprint."""

    plan: Plan
    change: Change
    fingerprint: Fingerprint

    def field(self, *path: str) -> FieldChange | None:
        return next((one for one in self.change.fields if one.path == path), None)

    @property
    def configs(self) -> dict[str, FieldChange]:
        return {one.key: one for one in self.change.fields if one.path[0] == "config"}


def disagreements(plan: Plan) -> tuple[Diagnostic, ...]:
    """Returns an error with exit code 3 for each step and change that do not match."""
    if plan.mode is Mode.RESTORE:
        return tuple(
            _refused(where, what) for where, what in (*_whole_plan_problems(plan), *restore_problems(plan))
        )
    changes = {change.address: change for change in plan.changes}
    seen = {(one.address, one.cluster): one for one in plan.fingerprints}
    problems: list[tuple[str, str]] = list(_whole_plan_problems(plan))
    for step in plan.steps:
        problems += (
            (str(step.address), f"{describe(step)}: {why}")
            for why in _step_problems(step, plan, changes, seen)
        )
    problems += _missing_steps(plan)
    return tuple(_refused(where, what) for where, what in dict.fromkeys(problems))


def _refused(where: str, what: str) -> Diagnostic:
    return error(
        f"the steps of this plan are not what it shows: {what}",
        "do not apply this file; make the plan again: repl plan --out FILE",
        address=where or None,
        code="steps-differ",
        exit=ExitCode.REFUSED,
    )


def _whole_plan_problems(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yields problems of the plan as a whole: duplicates, unknown needs, and a wrong order."""
    yield from _duplicates(plan)
    known = {step.id for step in plan.steps}
    for step in plan.steps:
        for need in step.needs:
            if need not in known or need == step.id:
                yield str(step.address), f"{step.id} waits for {need}, which is no other step of the plan"
    if len(known) == len(plan.steps) and in_order(plan.steps) != plan.steps:
        yield "", "the steps are in another order than the one they are executed in"
    yield from _order_problems(plan.steps)


def _duplicates(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yields objects and steps that appear more than once."""
    for address, count in Counter(change.address for change in plan.changes).items():
        if count > 1:
            yield str(address), f"{count} changes are shown for it"
    for step_id, count in Counter(step.id for step in plan.steps).items():
        if count > 1:
            yield "", f"the step {step_id} appears {count} times"
    kinds = Counter((type(step), step.address, step.cluster, _announces(step)) for step in plan.steps)
    for (_, address, *_rest), count in kinds.items():
        if count > 1:
            yield str(address), "one kind of step appears more than once"


def _order_problems(steps: Iterable[Step]) -> Iterator[tuple[str, str]]:
    """Yields steps of one object that must wait for each other and do not.

    A registry entry is ordered against the work on its object, and a launch against the stop before it.
    """
    by_address: dict[Address, list[Step]] = {}
    for step in steps:
        by_address.setdefault(step.address, []).append(step)
    for address, some in by_address.items():
        remembered = [one for one in some if isinstance(one, Own | Disown)]
        for record in remembered:
            for work in some:
                alike = work in remembered or work.cluster != record.cluster
                if not alike and work.id not in record.needs and record.id not in work.needs:
                    yield str(address), f"{record.id} and {work.id} do not wait for each other"
        for launch in (one for one in some if isinstance(one, LaunchJob)):
            for stop in (one for one in some if isinstance(one, StopJob)):
                if stop.id not in launch.needs and launch.id not in stop.needs:
                    yield str(address), f"{launch.id} and {stop.id} do not wait for each other"


def _announces(step: Step) -> bool:
    return isinstance(step, Own) and is_announced(step.entry)


def _step_problems(
    step: Step,
    plan: Plan,
    changes: Mapping[Address, Change],
    seen: Mapping[tuple[Address, str | None], Fingerprint],
) -> Iterator[str]:
    """Yields why this step is not what the plan shows; nothing if it is."""
    in_a_cluster = step.address.cluster is not None
    if in_a_cluster and step.cluster != step.address.cluster:
        yield f"it would be done at {step.cluster}"
        return
    if step.cluster not in plan.clusters or step.cluster not in plan.connections:
        yield f"the plan does not say which cluster {step.cluster} is, and how it is reached"
        return
    change = changes.get(step.address)
    fingerprint = seen.get((step.address, None if in_a_cluster else step.cluster))
    if change is None or change.action is Action.UNKNOWN:
        yield "no change is shown for it"
        return
    if fingerprint is None:
        yield "no fingerprint tells what the plan saw of it"
        return
    if fingerprint.owner not in (None, plan.topology):
        yield f"the topology {fingerprint.owner!r} owns it"
    shown = ShownChange(plan, change, fingerprint)
    if not _fits_change(step, shown):
        yield f"the change that is shown is {change.action.value}{', adopted' if change.adopted else ''}"
        return
    yield from _content_problems(step, shown)


def _fits_change(step: Step, shown: ShownChange) -> bool:
    """Returns whether a change of this action has a step of this kind."""
    action, kind = shown.change.action, step.address.kind
    match step:
        case CreateTopic() | GrowPartitions() | AlterConfigs() | Reassign() | DeleteTopic():
            return kind is Kind.TOPIC and action is _topic_action(step)
        case CreateAcl():
            return kind is Kind.ACL and action is Action.CREATE
        case DeleteAcl():
            return kind is Kind.ACL and action is Action.DELETE
        case AlterQuota():
            return kind is Kind.QUOTA and action in (Action.CREATE, Action.UPDATE, Action.DELETE)
        case Own():
            adopts = action is Action.NO_OP and shown.change.adopted
            managing = action in MANAGING and not restores(shown.change)
            return managing or adopts or replaces(shown.change)
        case Disown():
            moved = shown.field("recorded", "destination") is not None
            leaves = action in (Action.DELETE, Action.FORGET) or moved or restores(shown.change)
            return leaves or (action is Action.REPLACE and kind in (Kind.FLOW, Kind.JOB))
        case LaunchJob() | ReconfigureJob() | StopJob():
            return kind is Kind.JOB and action in _job_actions(step)
        case RestoreRecords() | RestoreOffsets():
            return False  # only the plan of a restore has them
        case _:
            assert_never(step)


def _topic_action(step: TopicStep) -> Action:
    match step:
        case CreateTopic():
            return Action.CREATE
        case GrowPartitions() | AlterConfigs() | Reassign():
            return Action.UPDATE
        case DeleteTopic():
            return Action.DELETE


def _job_actions(step: LaunchJob | ReconfigureJob | StopJob) -> tuple[Action, ...]:
    match step:
        case LaunchJob():
            return (Action.CREATE, Action.REPLACE, Action.DELETE)
        case ReconfigureJob():
            return (Action.UPDATE, Action.DELETE)
        case StopJob():
            return (Action.REPLACE, Action.DELETE)


def _content_problems(step: Step, shown: ShownChange) -> Iterator[str]:
    """Yields where the step's content differs from the fields and the fingerprint."""
    match step:
        case CreateTopic() | GrowPartitions() | AlterConfigs() | Reassign() | DeleteTopic():
            yield from _topic_problems(step, shown)
        case CreateAcl() | DeleteAcl():
            yield from _acl_problems(step, shown)
        case AlterQuota():
            yield from quota_problems(step, shown.change, shown.fingerprint)
        case Own():
            yield from _entry_problems(step, shown)
        case Disown():
            if step.topology != shown.plan.topology:
                yield f"it removes an entry of the topology {step.topology!r}"
        case LaunchJob() | ReconfigureJob() | StopJob():
            yield from job_problems(step, shown.plan, shown.change)
        case RestoreRecords() | RestoreOffsets():
            pass
        case _:
            assert_never(step)


def _topic_problems(step: TopicStep, shown: ShownChange) -> Iterator[str]:
    match step:
        case CreateTopic():
            yield from _create_problems(step, shown)
        case GrowPartitions():
            yield from _grow_problems(step, shown)
        case AlterConfigs():
            yield from _alter_problems(step, shown)
        case Reassign():
            yield from _reassign_problems(step, shown)
        case DeleteTopic():
            yield from _topic_name_problems(step.topic, step)
            yield from _existence_problems(shown)
            if step.topic_id != shown.fingerprint.topic_id:
                yield "it names another topic id than the one that was seen"
            if shown.fingerprint.removal == "protected":
                yield "the topic was protected when the plan was made"


def _topic_name_problems(topic: str, step: Step) -> Iterator[str]:
    if topic != step.address.name:
        yield f"it names the topic {topic!r}"


def _existence_problems(shown: ShownChange) -> Iterator[str]:
    if not shown.fingerprint.exists:
        yield "it did not exist when the plan was made"


def _create_problems(step: CreateTopic, shown: ShownChange) -> Iterator[str]:
    yield from _topic_name_problems(step.topic, step)
    if shown.fingerprint.exists:
        yield "it existed when the plan was made"
    fields = {one.path: one.new for one in shown.change.fields}
    made: dict[tuple[str, ...], object] = {PARTITIONS: step.partitions, REPLICATION: step.replication}
    made |= {("config", key): value for key, value in step.config.items()}
    after = shown.change.after or {}
    whole = {"partitions": step.partitions, "replication": step.replication, "config": dict(step.config)}
    if fields != made or any(after.get(key) != value for key, value in whole.items()):
        yield f"its {_first_difference(fields, made) or 'settings'} is not what is shown"


def _first_difference(one: Mapping[Any, object], other: Mapping[Any, object]) -> str:
    keys = (key for key in dict.fromkeys((*one, *other)) if one.get(key) != other.get(key))
    return next((str(key[-1]) for key in keys), "")


def _grow_problems(step: GrowPartitions, shown: ShownChange) -> Iterator[str]:
    yield from _topic_name_problems(step.topic, step)
    field = shown.field(*PARTITIONS)
    if field is None or (field.old, field.new) != (step.old, step.new) or step.new <= step.old:
        yield f"{step.old} -> {step.new} partitions is not what is shown"
    if shown.fingerprint.partitions != step.old:
        yield "the plan saw another number of partitions"


def _alter_problems(step: AlterConfigs, shown: ShownChange) -> Iterator[str]:
    yield from _topic_name_problems(step.topic, step)
    yield from _existence_problems(shown)
    keys = [*step.set, *step.unset]
    if sorted(keys) != sorted(shown.configs):
        shown_keys = ", ".join(sorted(shown.configs)) or "nothing"
        yield f"it changes {', '.join(sorted(keys))}, and {shown_keys} is shown"
        return
    for key, field in shown.configs.items():
        hidden = field.sensitive and key in step.set and field.new is not None
        if not hidden and step.set.get(key) != field.new:
            yield f"{key} is not set as it is shown"
        if key not in shown.fingerprint.config:
            yield f"no fingerprint tells what {key} was"
        elif not field.sensitive and not _same_setting(key, shown.fingerprint.config[key], field.old):
            yield f"{key} was not what is shown when the plan was made"


def _same_setting(key: str, one: object, other: object) -> bool:
    return normal(key, None if one is None else str(one)) == normal(
        key, None if other is None else str(other)
    )


def _reassign_problems(step: Reassign, shown: ShownChange) -> Iterator[str]:
    yield from _topic_name_problems(step.topic, step)
    yield from _existence_problems(shown)
    field, seen = shown.field(*REPLICATION), shown.fingerprint
    if field is None or field.new not in _factors_shown(step):
        yield "its number of replicas is not what is shown"
    if any(len(set(one)) != len(one) for one in step.replicas):
        yield "it names a broker twice for one partition"
    if len(step.replicas) != seen.partitions or replicas_text(step.old) != seen.replicas:
        yield "the plan saw other replicas"


def _factors_shown(step: Reassign) -> tuple[Value, ...]:
    """Returns what a plan may show for the new replicas. A plan file of an older release holds a text."""
    factors = replication_factors(step.replicas)
    return (factors,) if isinstance(factors, int) else (factors, replication(factors))


def _acl_problems(step: CreateAcl | DeleteAcl, shown: ShownChange) -> Iterator[str]:
    if step.rule.cluster != step.cluster or step.rule.name != step.address.name:
        yield f"its rule is {step.rule.name} at {step.rule.cluster}"
    makes = isinstance(step, CreateAcl)
    state = (shown.change.after if makes else shown.change.before) or {}
    recorded = {key: str(value) for key, value in state.items() if key != REPLACED}
    if recorded != {"rule": step.rule.name} and acl_rule(step.cluster, recorded) != step.rule:
        yield "its rule is not the one that is shown"
    if not makes and not shown.fingerprint.exists:
        yield "it did not exist when the plan was made"
    if makes and shown.fingerprint.exists:
        yield "it existed when the plan was made"


def _entry_problems(step: Own, shown: ShownChange) -> Iterator[str]:
    """Yields where a registry entry differs: it decides what later plans may delete."""
    entry = step.entry
    if entry.address != step.address or entry.topology != shown.plan.topology:
        yield f"it registers {entry.address} for the topology {entry.topology!r}"
        return
    match step.address.kind:
        case Kind.TOPIC:
            yield from _topic_entry_problems(entry, shown)
        case Kind.ACL:
            rule = acl_rule(step.cluster, entry.spec)
            if rule is None or rule.name != step.address.name:
                yield "it registers another rule"
            if entry.is_replaced is not replaces(shown.change):
                yield "it registers a rule to be restored, and the change that is shown replaces none"
        case Kind.QUOTA:
            yield from quota_entry_problems(entry, shown.change)
        case _:
            yield from recorded_problems(step, shown.plan, shown.change)


def _topic_entry_problems(entry: RegistryEntry, shown: ShownChange) -> Iterator[str]:
    then, after = shown.fingerprint, shown.change.after or {}
    if then.exists and entry.spec.get(ID, then.topic_id) != then.topic_id:
        yield "it registers another topic id than the one that was seen"
    for key, field in shown.configs.items():
        restored = (
            field.note == RESTORED and key not in entry.config
        )  # a restored value is set and not registered
        if not field.sensitive and not restored and not _same_setting(key, entry.config.get(key), field.new):
            yield f"it registers another {key} than is shown"
    values = after.get("config")
    for key, value in values.items() if isinstance(values, Mapping) else ():
        if key in entry.config and value != SENSITIVE and not _same_setting(key, entry.config[key], value):
            yield f"it registers another {key} than is shown"
    for path, key in ((PARTITIONS, "partitions"), (REPLICATION, "replication")):
        size = shown.field(*path)
        if size is not None and entry.spec.get(key) not in (None, str(size.new)):
            yield f"it registers another {key} than is shown"
    yield from _removal_problems(entry, shown)


def _removal_problems(entry: RegistryEntry, shown: ShownChange) -> Iterator[str]:
    """Yields where `protect` or `on_remove` changes without being shown."""
    recorded = {key: shown.field("recorded", key) for key in ("protect", "on_remove")}
    now = {"protect": str(entry.protect).lower(), "on_remove": entry.on_remove.value}
    for key, field in recorded.items():
        if field is not None and field.new != now[key]:
            yield f"it registers {key}: {now[key]}, which is not what is shown"
    removal = "protected" if entry.protect else entry.on_remove.value
    before = shown.fingerprint.removal
    if before is not None and shown.change.action is not Action.CREATE:
        if removal != before and not any(recorded.values()):
            yield f"removing it would mean {removal} from now on, and {before} when the plan was made"
        return
    after = shown.change.after or {}
    for key, usual in (("protect", "false"), ("on_remove", "keep")):
        if now[key] != str(after.get(key, usual)).lower():
            yield f"it registers {key}: {now[key]}, which is not what is shown"


def _missing_steps(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yields changes that would not be carried out, or only in part."""
    kinds: dict[Address, set[type[Step]]] = {}
    for step in plan.steps:
        kinds.setdefault(step.address, set()).add(type(step))
    for change in plan.changes:
        found = kinds.get(change.address, set())
        missing = [kind.__name__ for kind in _needed_kinds(change, plan.mode) if kind not in found]
        idle = change.action in IDLE and not change.adopted
        if missing or (not idle and not found):
            what = ", ".join(missing) or "any"
            yield (
                str(change.address),
                f"{change.action.value} is shown, and the step for it is missing ({what})",
            )


def _needed_kinds(change: Change, mode: Mode) -> Iterator[type[Step]]:
    """Yields the kinds of step that a change needs."""
    kind, action = change.address.kind, change.action
    adopts = action is Action.NO_OP and change.adopted
    managing = action in MANAGING and not restores(change)
    remembered = (mode is not Mode.ROLLBACK and (managing or adopts)) or replaces(change)
    if remembered:
        yield Own
    match kind, action:
        case Kind.TOPIC, Action.CREATE | Action.UPDATE | Action.DELETE:
            yield from _needed_for_topic(change)
        case Kind.ACL, Action.CREATE:
            yield from (CreateAcl, Disown) if restores(change) else (CreateAcl,)
        case Kind.ACL, Action.DELETE:
            yield from (DeleteAcl,) if replaces(change) else (DeleteAcl, Disown)
        case Kind.QUOTA, Action.CREATE | Action.UPDATE if limits_moved(change):
            yield AlterQuota
        case Kind.QUOTA, Action.DELETE:
            yield from (AlterQuota, Disown)
        case Kind.FLOW, Action.DELETE:
            yield Disown
        case Kind.JOB, Action.CREATE | Action.REPLACE:
            yield LaunchJob
        case Kind.JOB, Action.UPDATE if any(one.path[0] != "recorded" for one in change.fields):
            yield ReconfigureJob
        case _, Action.FORGET:
            yield Disown
        case _:
            pass


def _needed_for_topic(change: Change) -> Iterator[type[Step]]:
    match change.action:
        case Action.CREATE:
            yield CreateTopic
        case Action.UPDATE:
            moved = {one.path[0] for one in change.fields}
            yield from (_OF_A_FIELD[one] for one in sorted(moved) if one in _OF_A_FIELD)
        case Action.DELETE:
            yield from (DeleteTopic, Disown)


_OF_A_FIELD: Mapping[str, type[Step]] = {
    "config": AlterConfigs,
    "partitions": GrowPartitions,
    "replication": Reassign,
}
