"""Compares desired topics with the live ones, and returns their changes with reason and consequences."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import assert_never

from msgspec import Struct

from planner.diff.compare import PathDifference, Secret, Tree, differences, without_secret
from planner.diff.record import topic_spec
from planner.diff.typed_values import (
    PARTITIONS,
    REPLICATION,
    config_path,
    given_back_after,
    is_sensitive,
    topic_trees,
)
from planner.diff.values import same_value
from planner.model.address import Address
from planner.model.change import Action, Change, FieldChange, Path
from planner.model.desired import Declared, DesiredTopic, LiftedLimits, MirroredBy, QuarantineOf
from planner.model.observed import (
    BEFORE,
    CONFIG,
    ID,
    MIRRORED,
    ConfigSource,
    ObservedCluster,
    ObservedTopic,
    RegistryEntry,
)
from planner.model.topology import OnRemove

OUTSIDE = "changed outside the topology"
NOT_DECLARED = "no longer declared"
RESTORED = "restored after the failback"
ADOPTED = "exists, will be managed"


class TopicPair(Struct, frozen=True):
    """A desired topic beside the live one that it is compared with."""

    topic: DesiredTopic
    live: ObservedTopic
    entry: RegistryEntry | None
    cluster: ObservedCluster
    old: Tree
    new: Tree


def topic_changes(
    topics: Iterable[DesiredTopic],
    clusters: Mapping[str, ObservedCluster],
    owned: Mapping[Address, RegistryEntry],
    topology: str,
) -> list[Change]:
    """Returns one change for each topic. Its cluster could be read."""
    changes: list[Change] = []
    pairs: list[TopicPair] = []
    for topic in topics:
        cluster = clusters[topic.cluster]
        entry = owned.get(topic.address)
        live = cluster.topics.get(topic.name)
        if topic.name in cluster.hidden:
            why = f"(unknown: not authorized to describe {topic.cluster}/{topic.name})"
            changes.append(Change(topic.address, Action.UNKNOWN, why))
        elif entry is not None and entry.topology != topology:
            changes.append(Change(topic.address, Action.NO_OP, f"owned by topology {entry.topology!r}"))
        elif live is None:
            changes.append(_create(topic, entry, cluster))
        else:
            pairs.append(TopicPair(topic, live, entry, cluster, *topic_trees(topic, live, entry)))
    differing = differences([(pair.old, pair.new) for pair in pairs])
    recorded = differences(
        [_recorded_trees(pair, found) for pair, found in zip(pairs, differing, strict=True)]
    )
    changes.extend(
        _compared(pair, found, other) for pair, found, other in zip(pairs, differing, recorded, strict=True)
    )
    return changes


def _create(topic: DesiredTopic, entry: RegistryEntry | None, cluster: ObservedCluster) -> Change:
    own = {PARTITIONS: cluster.default_partitions, REPLICATION: cluster.default_replication}
    sizes = ((PARTITIONS, topic.partitions), (REPLICATION, topic.replication))
    fields = [
        FieldChange(path, None, value, inherited=None if own[path] is None else str(own[path]))
        for path, value in sizes
    ]
    fields += [FieldChange(config_path(key), None, value) for key, value in sorted(topic.config.items())]
    gone = "; it was deleted outside the topology" if entry is not None else ""
    after: dict[str, object] = {
        "partitions": topic.partitions,
        "replication": topic.replication,
        "config": dict(sorted(topic.config.items())),
        **_guards(topic),
    }
    return Change(topic.address, Action.CREATE, _origin(topic) + gone, tuple(fields), None, after)


def _guards(topic: DesiredTopic) -> dict[str, object]:
    """Returns the guards that a new registry entry has, without those that have their default."""
    guards: dict[str, object] = {"protect": True} if topic.protect else {}
    return guards if topic.on_remove is OnRemove.KEEP else {**guards, "on_remove": topic.on_remove.value}


def _compared(
    pair: TopicPair, differing: Sequence[PathDifference], recorded: Sequence[PathDifference]
) -> Change:
    topic = pair.topic
    adopted = pair.entry is None
    fields = [_field(pair, one) for one in differing]
    fields += [one.change(_recorded_note(one)) for one in recorded]
    before = _state(pair.old)
    after = _wanted_state(before, fields) if differing else before
    if adopted:
        after = {**after, **_guards(topic)}
    paths = frozenset(one.path for one in differing)
    return Change(
        address=topic.address,
        action=Action.UPDATE if fields else Action.NO_OP,
        reason=_reason(topic, fields, adopted=adopted),
        fields=tuple(fields),
        before=before,
        after=after,
        unchanged=sum(1 for path, value in pair.new.items() if value is not None and path not in paths),
        adopted=adopted,
        notes=_notes(pair, paths),
    )


def _field(pair: TopicPair, difference: PathDifference) -> FieldChange:
    match difference.path:
        case ("config", key):
            field = difference.change(_config_note(pair, key))
            return field if field.sensitive else replace(field, inherited=_inherited(pair, key))
        case path:
            return difference.change(_outside(pair.entry, path[-1], pair.topic))


def _inherited(pair: TopicPair, key: str) -> str | None:
    """Returns the cluster's own value of the setting, where it was read."""
    value = pair.live.config.get(key)
    if value is not None and value.source is not ConfigSource.TOPIC:
        return value.value
    return pair.cluster.defaults.get(key)


def _outside(entry: RegistryEntry | None, key: str, topic: DesiredTopic) -> str:
    """Returns the note that a field changed outside the topology: what was applied is still desired."""
    if entry is None:
        return ""
    return OUTSIDE if entry.spec.get(key) == topic_spec(topic, None).get(key) else ""


def _config_note(pair: TopicPair, key: str) -> str:
    topic, entry = pair.topic, pair.entry
    if topic.lifted is not None and key in topic.lifted.before:
        return _lifted(topic.lifted)
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


def _lifted(lifted: LiftedLimits) -> str:
    return f"lifted while flow.{lifted.flow} copies records back"


def _notes(pair: TopicPair, paths: frozenset[Path]) -> tuple[str, ...]:
    """Returns the consequences of a change that its fields do not show."""
    topic, live, entry = pair.topic, pair.live, pair.entry
    notes = []
    if entry is not None and entry.is_another(live.id):
        notes.append("was deleted and made again outside the topology since it was applied")
    grows = PARTITIONS in paths and topic.partitions is not None and topic.partitions > live.partitions
    if grows and isinstance(topic.origin, Declared):
        notes.append("records with a key will go to other partitions than those before them")
    return tuple(notes)


def _recorded_trees(pair: TopicPair, differing: Iterable[PathDifference]) -> tuple[Tree, Tree]:
    """Returns what the registry remembers and what it is to remember, less what changes at the cluster.

    The settings that a mirror copies belong to its source and change without a plan: of a mirror only the
    guards and the origin are compared.
    """
    topic, entry = pair.topic, pair.entry
    if entry is None:
        return {}, {}
    spec = topic_spec(topic, pair.live.id)
    if entry.spec == spec and entry.protect == topic.protect and entry.on_remove is topic.on_remove:
        return {}, {}
    old = {"protect": str(entry.protect).lower(), "on_remove": entry.on_remove.value}
    new = {"protect": str(topic.protect).lower(), "on_remove": topic.on_remove.value}
    changed = {".".join(one.path) for one in differing}
    for key in _recorded_keys(topic, {*spec, *entry.spec}):
        if key not in changed and key.replace(BEFORE, CONFIG, 1) not in changed:
            old[key], new[key] = entry.spec.get(key, ""), spec.get(key, "")
    if ID not in entry.spec:
        old.pop(ID, None)  # an entry without an id says nothing about it
        new.pop(ID, None)
    return _recorded_tree(old, pair.live), _recorded_tree(new, pair.live)


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
        ("recorded", key): Secret(value) if value and is_sensitive(live, _setting_of(key)) else value or None
        for key, value in sorted(values.items())
    }


def _setting_of(key: str) -> str:
    return key.removeprefix(CONFIG).removeprefix(BEFORE)


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
    for one in fields:
        match one.path:
            case ("config", key) if one.new is None:
                config.pop(key, None)
            case ("config", key):
                config[key] = one.new
            case ("recorded", _):
                pass
            case _:
                after[one.key] = one.new
    after["config"] = dict(sorted(config.items()))
    return after


def _reason(topic: DesiredTopic, fields: Sequence[FieldChange], *, adopted: bool) -> str:
    if adopted:
        return ADOPTED
    match topic.origin:
        case MirroredBy() | QuarantineOf():
            return _origin(topic)
        case Declared() if not fields:
            return "declared"
        case Declared() if all(one.note == OUTSIDE for one in fields):
            return OUTSIDE
        case Declared() if topic.lifted is not None and all(
            one.note == _lifted(topic.lifted) for one in fields
        ):
            return _lifted(topic.lifted)
        case Declared() if all(one.note == RESTORED for one in fields):
            return RESTORED
        case Declared() if all(one.path[0] == "recorded" for one in fields):
            return "only what is remembered of it changes"
        case Declared():
            return "the topology changed"
        case _:
            assert_never(topic.origin)


def _origin(topic: DesiredTopic) -> str:
    match topic.origin:
        case Declared():
            return "declared"
        case MirroredBy(flow=flow):
            return f"mirrored by flow.{flow}"
        case QuarantineOf(flow=flow, mirror=mirror):
            return f"takes the bad records of {mirror}: on_bad_record of flow.{flow}"
        case _:
            assert_never(topic.origin)
