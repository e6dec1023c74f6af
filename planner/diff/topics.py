"""Compares topics: desired ones with the live ones, those that leave the topology, and what was applied."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import assert_never

from msgspec import Struct

from planner.diff.compare import Leaf, PathDifference, Secret, Tree, differences, same, without_secret
from planner.diff.compared import (
    ADOPTED,
    AS_APPLIED,
    DELETED,
    GONE,
    NOT_DECLARED,
    OUTSIDE,
    REMEMBERED,
    Applied,
    ComparedKind,
    Leaving,
    not_planned,
    reason_to_create,
    unknown,
)
from planner.diff.record import topic_spec
from planner.diff.typed_values import (
    PARTITIONS,
    REPLICATION,
    config_path,
    explicit,
    given_back_after,
    is_sensitive,
    recorded_config,
    topic_trees,
)
from planner.diff.values import same_value
from planner.model.address import Address, topic_address
from planner.model.change import Action, Change, FieldChange, Path
from planner.model.desired import (
    Declared,
    Desired,
    DesiredFlow,
    DesiredTopic,
    MirroredBy,
    QuarantineOf,
)
from planner.model.observed import (
    BEFORE,
    CONFIG,
    ID,
    MIRRORED,
    ConfigSource,
    Observed,
    ObservedCluster,
    ObservedTopic,
    RegistryEntry,
)
from planner.model.topology import Flow, OnRemove
from runtime.contract.spec.units import rounded_size

RESTORED = "restored after the failback"


class TopicComparison(Struct, frozen=True):
    """A desired topic beside the live one that it is compared with."""

    topic: DesiredTopic
    live: ObservedTopic
    entry: RegistryEntry | None
    cluster: ObservedCluster
    old: Tree
    new: Tree

    def recorded_trees(self, differing: Iterable[PathDifference]) -> tuple[Tree, Tree]:
        """Returns what the registry remembers and what it is to remember, less what changes at the cluster.

        The settings that a mirror copies belong to its source and change without a plan: of a mirror only the
        guards and the origin are compared.
        """
        topic, entry = self.topic, self.entry
        if entry is None:
            return {}, {}
        spec = topic_spec(topic, self.live.id)
        if entry.spec == spec and entry.protect == topic.protect and entry.on_remove is topic.on_remove:
            return {}, {}
        old = {"protect": str(entry.protect).lower(), "on_remove": entry.on_remove.value}
        new = {"protect": str(topic.protect).lower(), "on_remove": topic.on_remove.value}
        changed = {".".join(difference.path) for difference in differing}
        for key in _recorded_keys(topic, {*spec, *entry.spec}):
            if key not in changed and key.replace(BEFORE, CONFIG, 1) not in changed:
                old[key], new[key] = entry.spec.get(key, ""), spec.get(key, "")
        if ID not in entry.spec:
            old.pop(ID, None)  # an entry without an id says nothing about it
            new.pop(ID, None)
        return _recorded_tree(old, self.live), _recorded_tree(new, self.live)

    def change(self, differing: Sequence[PathDifference], recorded: Sequence[PathDifference]) -> Change:
        """Returns the change of a topic: what differs at the cluster, and what the registry records anew."""
        topic = self.topic
        adopted = self.entry is None
        fields = []
        for difference in differing:
            key = difference.path[-1]
            if difference.path[0] == "config":
                field = difference.change(self._config_note(key))
                live_value = self.live.config.get(key)
                # The cluster's own value, where it was read.
                of_cluster = self.cluster.defaults.get(key)
                inherited = (
                    live_value.value
                    if live_value is not None and live_value.source is not ConfigSource.TOPIC
                    else of_cluster
                )
                fields.append(field if field.sensitive else replace(field, inherited=inherited))
            else:
                applied = self.entry.spec.get(key) if self.entry is not None else None
                outside = self.entry is not None and applied == topic_spec(topic, None).get(key)
                fields.append(difference.change(OUTSIDE if outside else ""))
        fields += [difference.change(_recorded_note(difference)) for difference in recorded]
        before = _state(self.old)
        after = _wanted_state(before, fields) if differing else before
        if adopted:
            after = {**after, **_guards(topic)}
        paths = frozenset(difference.path for difference in differing)
        return Change(
            address=topic.address,
            action=Action.UPDATE if fields else Action.NO_OP,
            reason=_reason(topic, fields, adopted=adopted),
            fields=tuple(fields),
            before=before,
            after=after,
            unchanged=sum(1 for path, value in self.new.items() if value is not None and path not in paths),
            adopted=adopted,
            notes=self._consequences(paths),
        )

    def _config_note(self, key: str) -> str:
        """Returns why a setting changes, where the topology did not change it."""
        topic, entry = self.topic, self.entry
        if key in topic.before:
            return _lifted(topic)
        if key in given_back_after(topic, entry):
            return RESTORED
        if key not in topic.config:
            match topic.origin:
                case MirroredBy(source_cluster=cluster, source_topic=name):
                    return f"no longer set at {cluster}/{name}"
                case Declared() | QuarantineOf():
                    return NOT_DECLARED
                case _:
                    assert_never(topic.origin)
        if entry is None:
            return ""
        applied = entry.config.get(key)
        same = applied is not None and same_value(key, applied, topic.config[key])
        return OUTSIDE if same else ""

    def _consequences(self, paths: frozenset[Path]) -> tuple[str, ...]:
        """Returns the consequences of a change that its fields do not show."""
        topic, live, entry = self.topic, self.live, self.entry
        notes = []
        if entry is not None and entry.is_another(live.id):
            notes.append("was deleted and made again outside the topology since it was applied")
        grows = PARTITIONS in paths and topic.partitions is not None and topic.partitions > live.partitions
        if grows and isinstance(topic.origin, Declared):
            notes.append("records with a key will go to other partitions than those before them")
        return tuple(notes)


class ComparedTopics(ComparedKind):
    """Topics, declared ones and mirrors."""

    def changes(self, desired: Desired, observed: Observed) -> list[Change]:
        changes: list[Change] = []
        pairs: list[TopicComparison] = []
        for topic in desired.topics:
            cluster, entry = observed.reachable(topic.cluster), observed.owned.get(topic.address)
            if cluster is not None and topic.name in cluster.hidden:
                changes.append(_hidden(topic.address, cluster))
            elif (change := not_planned(topic.address, observed, desired.topology)) is not None:
                changes.append(change)
            elif cluster is not None and (live := cluster.topics.get(topic.name)) is not None:
                pairs.append(TopicComparison(topic, live, entry, cluster, *topic_trees(topic, live, entry)))
            elif cluster is not None:
                changes.append(_create(topic, entry, cluster))
        differing = differences([(pair.old, pair.new) for pair in pairs])
        recorded = differences(
            [pair.recorded_trees(of_pair) for pair, of_pair in zip(pairs, differing, strict=True)]
        )
        changes.extend(
            pair.change(of_pair, of_record)
            for pair, of_pair, of_record in zip(pairs, differing, recorded, strict=True)
        )
        return changes

    def removed(self, entry: RegistryEntry, cluster: ObservedCluster, leaving: Leaving) -> Change | None:
        name = entry.address.name
        if name in cluster.hidden:
            return _hidden(entry.address, cluster)
        live = cluster.topics.get(name)
        if live is None:
            return Change(entry.address, Action.FORGET, GONE)
        if entry.is_another(live.id):
            return Change(entry.address, Action.FORGET, "another topic has its name now, which is left alone")
        flow_name, on_remove = entry.flow, leaving.on_remove.get(entry.address)
        if flow_name is None or on_remove is not None:
            if (on_remove or entry.on_remove) is OnRemove.DELETE:
                return _delete(
                    entry, live, cluster, "leaves the topology; on_remove: delete, as last applied"
                )
            return Change(
                entry.address, Action.FORGET, "leaves the topology; on_remove: keep, it stays as it is"
            )
        flow = leaving.flow_of(entry)
        if flow is None:
            return Change(
                entry.address, Action.FORGET, f"flow.{flow_name} leaves the topology; its mirror stays"
            )
        return _mirror(entry, live, cluster, leaving, flow)

    def drifted(self, applied: Sequence[Applied], desired: Desired, observed: Observed) -> list[Change]:
        """A mirror follows its source while the job runs.

        So a value has not drifted if the source has it, or is to have it by its declaration.
        """
        mirrors = {topic.address: topic for topic in desired.topics}
        changes: list[Change] = []
        topics: list[AppliedTopic] = []
        for entry, cluster in applied:
            live = cluster.topics.get(entry.address.name)
            if entry.address.name in cluster.hidden:
                changes.append(_hidden(entry.address, cluster))
            elif live is None:
                changes.append(
                    Change(entry.address, Action.DELETE, DELETED, before=_applied_state(entry, None))
                )
            else:
                wanted = mirrors.get(entry.address) if entry.flow else None
                source = _source_of(wanted, observed) if wanted is not None else None
                topics.append(AppliedTopic(entry, live, wanted, source, *_applied_trees(entry, live)))
        differing = differences([(topic.applied, topic.found) for topic in topics])
        changes += (topic.change(of_topic) for topic, of_topic in zip(topics, differing, strict=True))
        return changes


def _hidden(address: Address, cluster: ObservedCluster) -> Change:
    return unknown(address, cluster.why_hidden(address.name))


def _create(topic: DesiredTopic, entry: RegistryEntry | None, cluster: ObservedCluster) -> Change:
    defaults = {PARTITIONS: cluster.default_partitions, REPLICATION: cluster.default_replication}
    sizes = ((PARTITIONS, topic.partitions), (REPLICATION, topic.replication))
    fields = [
        FieldChange(path, None, value, inherited=None if defaults[path] is None else str(defaults[path]))
        for path, value in sizes
    ]
    fields += [FieldChange(config_path(key), None, value) for key, value in sorted(topic.config.items())]
    after: dict[str, object] = {
        "partitions": topic.partitions,
        "replication": topic.replication,
        "config": dict(sorted(topic.config.items())),
        **_guards(topic),
    }
    reason = reason_to_create(topic.origin.reason, entry)
    return Change(topic.address, Action.CREATE, reason, tuple(fields), None, after)


def _guards(topic: DesiredTopic) -> dict[str, object]:
    """Returns the guards that a new registry entry has, without those that have their default."""
    guards: dict[str, object] = {"protect": True} if topic.protect else {}
    return guards if topic.on_remove is OnRemove.KEEP else {**guards, "on_remove": topic.on_remove.value}


def _lifted(topic: DesiredTopic) -> str:
    return f"lifted while flow.{topic.lifted_by} copies records back"


def _recorded_keys(topic: DesiredTopic, keys: Iterable[str]) -> list[str]:
    match topic.origin:
        case MirroredBy() | QuarantineOf():
            return [key for key in keys if key == ID or key.startswith("source.")]
        case Declared():
            return [key for key in keys if key != MIRRORED]
        case _:
            assert_never(topic.origin)


def _recorded_tree(values: Mapping[str, str], live: ObservedTopic) -> Tree:
    return {
        ("recorded", key): Secret(value)
        if value and is_sensitive(live, key.removeprefix(CONFIG).removeprefix(BEFORE))
        else value or None
        for key, value in sorted(values.items())
    }


def _recorded_note(difference: PathDifference) -> str:
    match difference.path[-1]:
        case "protect" | "on_remove":
            return "remembered at the cluster"
        case "id":
            return "another topic under the same name"
        case _:
            return "no longer managed" if difference.new is None else "already so, will be managed"


def _state(tree: Tree) -> dict[str, object]:
    """Returns the values of a tree as the plan shows them: the settings together, under `config`."""
    state: dict[str, object] = {path[0]: value for path, value in tree.items() if len(path) == 1}
    state["config"] = {
        path[-1]: without_secret(value)
        for path, value in tree.items()
        if path[0] == "config" and value is not None
    }
    return state


def _wanted_state(before: Mapping[str, object], fields: Sequence[FieldChange]) -> dict[str, object]:
    after = dict(before)
    config = dict(before["config"])  # type: ignore[call-overload]
    for field in fields:
        match field.path:
            case ("config", key) if field.new is None:
                config.pop(key, None)
            case ("config", key):
                config[key] = field.new
            case ("recorded", _):
                pass
            case _:
                after[field.key] = field.new
    after["config"] = dict(sorted(config.items()))
    return after


def _reason(topic: DesiredTopic, fields: Sequence[FieldChange], *, adopted: bool) -> str:
    if adopted:
        return ADOPTED
    match topic.origin:
        case MirroredBy() | QuarantineOf():
            return topic.origin.reason
        case Declared() if not fields:
            return "declared"
        case Declared() if all(field.note == OUTSIDE for field in fields):
            return OUTSIDE
        case Declared() if all(field.note == _lifted(topic) for field in fields):
            return _lifted(topic)
        case Declared() if all(field.note == RESTORED for field in fields):
            return RESTORED
        case Declared() if all(field.path[0] == "recorded" for field in fields):
            return REMEMBERED
        case Declared():
            return "the topology changed"
        case _:
            assert_never(topic.origin)


def _mirror(
    entry: RegistryEntry,
    live: ObservedTopic,
    cluster: ObservedCluster,
    leaving: Leaving,
    desired: DesiredFlow,
) -> Change | None:
    flow = desired.flow
    if not desired.selection_known:
        return leaving.unknown(entry)
    if cluster.name != flow.destination_cluster:
        why = f"flow.{flow.name} copies to {flow.destination_cluster} now; its mirror stays"
        return Change(entry.address, Action.FORGET, why)
    source = "/".join(entry.source or (flow.source_cluster, ""))
    if not _source_is_gone(entry, leaving, flow):
        return Change(entry.address, Action.FORGET, f"flow.{flow.name} no longer selects {source}; it stays")
    if flow.on_source_delete == "delete" and flow.state == "active":
        why = f"{source} was deleted; on_source_delete: delete of flow.{flow.name}"
        return _delete(entry, live, cluster, why)
    return Change(entry.address, Action.FORGET, f"{source} was deleted; the mirror stays")


def _source_is_gone(entry: RegistryEntry, leaving: Leaving, flow: Flow) -> bool:
    """Returns whether the source topic of a mirror is deleted, or is deleted by this plan."""
    cluster, name = entry.source or ("", "")
    source = leaving.observed.reachable(flow.source_cluster)
    if source is None or cluster != flow.source_cluster:
        return False
    address = topic_address(flow.source_cluster, name)
    leaves, live = leaving.entries.get(address), source.topics.get(name)
    declared = leaves is not None and leaves.flow is None and leaves.on_remove is OnRemove.DELETE
    if leaves is not None and declared and live is not None and not leaves.is_another(live.id):
        return True  # this plan deletes it
    return name not in source.topics and name not in source.hidden


def _delete(entry: RegistryEntry, live: ObservedTopic, cluster: ObservedCluster, reason: str) -> Change:
    before: dict[str, object] = {
        "partitions": live.partitions,
        "replication": live.replication_factors,
        "config": recorded_config(entry, live),
    }
    return Change(entry.address, Action.DELETE, reason, before=before, notes=_what_goes(live.name, cluster))


def _what_goes(name: str, cluster: ObservedCluster) -> tuple[str, ...]:
    """Returns the notes about the size of a topic and the groups that commit to it, where these were read."""
    notes = []
    if cluster.sizes is not None and (size := cluster.sizes.get(name, 0)):
        notes.append(f"the topic holds {rounded_size(size)} of records, which are lost with it")
    groups = sorted(group for group, topics in (cluster.group_topics or {}).items() if name in topics)
    if groups:
        shown = ", ".join(groups[:5]) + (f" and {len(groups) - 5} more" if len(groups) > 5 else "")
        notes.append(f"consumer groups that commit to it: {shown}")
    return tuple(notes)


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
    """A topic of the registry that exists, with the applied and the present values of its fields.

    A mirror is `wanted` by its flow, whose job copies the settings of the `source`.
    """

    entry: RegistryEntry
    live: ObservedTopic
    wanted: DesiredTopic | None
    source: ObservedTopic | None
    applied: Tree
    found: Tree

    def change(self, differing: Iterable[PathDifference]) -> Change:
        """Returns the change of an object that has drifted, or has not."""
        entry, live, current = self.entry, self.live, self.found
        shown = {key: value.value for key, value in live.config.items() if not value.sensitive}
        fields = tuple(
            difference.change(inherited=shown.get(difference.path[-1]))
            for difference in differing
            if not self._follows(difference)
        )
        again = entry.is_another(live.id)
        action = Action.REPLACE if again else Action.UPDATE if fields else Action.NO_OP
        reason = "deleted and made again outside the topology" if again else OUTSIDE
        return Change(
            entry.address,
            action,
            reason if action is not Action.NO_OP else AS_APPLIED,
            fields,
            before=_applied_state(entry, live),
            after=_state(current),
            unchanged=len(current) - len(fields),
        )

    def _follows(self, difference: PathDifference) -> bool:
        """Returns whether a mirror has a value that its source has or is to have.

        Since the mirror was promoted, nothing is asked of it and no value has drifted.
        """
        wanted, source = self.wanted, self.source
        if wanted is None:
            return False
        if wanted.partitions is None and not wanted.config:
            return True
        match difference.path:
            case ("config", key) if key in wanted.config or key in wanted.unset:
                of_source = explicit(source, key) if source is not None else None
                expected = [wanted.config.get(key)]
                expected += [] if source is None else [None if of_source is None else of_source.value]
                return any(same(difference.path, value, difference.new) for value in expected)
            case ("partitions",):
                return difference.new in (
                    wanted.partitions,
                    source.partitions if source is not None else None,
                )
            case _:
                return False


def _applied_trees(entry: RegistryEntry, live: ObservedTopic) -> tuple[Tree, Tree]:
    """Returns what the registry remembers of a topic, and the same fields as they are now.

    The broker does not tell a sensitive setting, so that one counts as applied.
    """
    applied: dict[Path, Leaf] = {}
    current: dict[Path, Leaf] = {}
    for path, factors in ((PARTITIONS, live.partitions), (REPLICATION, live.replication_factors)):
        if path[-1] in entry.spec:
            applied[path] = entry.number(path[-1])
            current[path] = factors
    for key, value in sorted(entry.config.items()):
        path, now = config_path(key), explicit(live, key)
        if is_sensitive(live, key):
            applied[path], current[path] = Secret(value), None if now is None else Secret(value)
        else:
            applied[path], current[path] = value, None if now is None else now.value
    return applied, current


def _applied_state(entry: RegistryEntry, live: ObservedTopic | None) -> dict[str, object]:
    """Returns what the registry remembers of a topic, in the form in which a plan has a topic."""
    sizes = {key: entry.number(key) for (key,) in (PARTITIONS, REPLICATION) if key in entry.spec}
    others = {
        key: value for key, value in entry.spec.items() if key not in sizes and not key.startswith(CONFIG)
    }
    return {**sizes, "config": recorded_config(entry, live), **others}
