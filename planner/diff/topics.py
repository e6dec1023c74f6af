"""Desired topics × a live cluster → changes, each with its reason and with what follows from it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from planner.diff.compare import Path, differing
from planner.diff.record import topic_spec
from planner.diff.scope import (
    PARTITIONS,
    REPLICATION,
    ComparedValues,
    config_path,
    explicit,
    given_back_after,
    topic_scope,
)
from planner.diff.values import same_value
from planner.model.address import Address
from planner.model.change import SENSITIVE, Action, Change, FieldChange
from planner.model.desired import Declared, DesiredTopic, LiftedLimits, MirroredBy
from planner.model.observed import ConfigSource, ObservedCluster, ObservedTopic
from planner.model.owned import BEFORE, CONFIG, ID, MIRRORED, RegistryEntry
from planner.model.topology import OnRemove

OUTSIDE = "changed outside the topology"
NOT_DECLARED = "no longer declared"
RESTORED = "restored after the failback"
ADOPTED = "exists, will be managed"


@dataclass(frozen=True, slots=True)
class TopicPair:
    """A desired topic beside the live one that it is compared with."""

    topic: DesiredTopic
    live: ObservedTopic
    entry: RegistryEntry | None
    cluster: ObservedCluster
    scope: ComparedValues


def topic_changes(
    topics: Iterable[DesiredTopic],
    clusters: Mapping[str, ObservedCluster],
    owned: Mapping[Address, RegistryEntry],
    topology: str,
) -> list[Change]:
    """One change for each topic, whose cluster could be read."""
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
            pairs.append(TopicPair(topic, live, entry, cluster, topic_scope(topic, live, entry)))
    different = differing([(pair.scope.wanted, pair.scope.live) for pair in pairs])
    changes.extend(_compared(pair, paths) for pair, paths in zip(pairs, different, strict=True))
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
    """What is remembered of a topic that comes new to the registry, where it is not the usual."""
    guards: dict[str, object] = {"protect": True} if topic.protect else {}
    return guards if topic.on_remove is OnRemove.KEEP else {**guards, "on_remove": topic.on_remove.value}


def _compared(pair: TopicPair, paths: frozenset[Path]) -> Change:
    topic, entry = pair.topic, pair.entry
    adopted = entry is None
    fields = [_field(pair, path) for path in _in_order(paths)]
    notes = _notes(pair, paths)
    if entry is not None:
        fields += _recorded_fields(pair, entry, paths)
    before = _state(pair.scope.live, topic, pair.live)
    after = before if not paths else _wanted_state(before, fields)
    if adopted:
        after = {**after, **_guards(topic)}
    unchanged = sum(1 for path, value in pair.scope.wanted.items() if value is not None and path not in paths)
    return Change(
        address=topic.address,
        action=Action.UPDATE if fields else Action.NO_OP,
        reason=_reason(topic, fields, adopted=adopted),
        fields=tuple(fields),
        before=before,
        after=after,
        unchanged=unchanged,
        adopted=adopted,
        notes=notes,
    )


def _in_order(paths: Iterable[Path]) -> list[Path]:
    """Partitions, replication, then the configs by name."""
    return sorted(paths, key=lambda path: (path != PARTITIONS, path != REPLICATION, path))


def _field(pair: TopicPair, path: Path) -> FieldChange:
    topic, live, entry = pair.topic, pair.live, pair.entry
    if path == PARTITIONS:
        return FieldChange(path, live.partitions, topic.partitions, note=_outside(entry, "partitions", topic))
    if path == REPLICATION:
        return FieldChange(
            path, live.replication_told, topic.replication, note=_outside(entry, "replication", topic)
        )
    key = path[-1]
    value = explicit(live, key)
    sensitive = key in live.config and live.config[key].sensitive
    wanted = topic.config.get(key, topic.restored.get(key))
    return FieldChange(
        path,
        old=None if value is None else SENSITIVE if sensitive else value.value,
        new=SENSITIVE if sensitive and wanted is not None else wanted,
        sensitive=sensitive,
        note=_config_note(pair, key),
        inherited=None if sensitive else _inherited(pair, key),
    )


def _inherited(pair: TopicPair, key: str) -> str | None:
    """The cluster's own value of the key, where it was read."""
    value = pair.live.config.get(key)
    if value is not None and value.source is not ConfigSource.TOPIC:
        return value.value
    return pair.cluster.defaults.get(key)


def _outside(entry: RegistryEntry | None, key: str, topic: DesiredTopic) -> str:
    """What was applied last is still wanted, so somebody else moved it."""
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
            case Declared():
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
    """What follows from the change and is not seen in its fields."""
    topic, live, entry = pair.topic, pair.live, pair.entry
    notes = []
    if entry is not None and entry.is_another(live.id):
        notes.append("was deleted and made again outside the topology since it was applied")
    grows = PARTITIONS in paths and topic.partitions is not None and topic.partitions > live.partitions
    if grows and isinstance(topic.origin, Declared):
        notes.append("records with a key will go to other partitions than those before them")
    return tuple(notes)


def _recorded_fields(pair: TopicPair, entry: RegistryEntry, paths: frozenset[Path]) -> list[FieldChange]:
    """What only the registry has otherwise: the cluster is as wanted, what is remembered of it is not.

    A mirror's copied values are its source's and move without us; only its guards and its origin are kept.
    """
    topic, live = pair.topic, pair.live
    spec = topic_spec(topic, live.id)
    if entry.spec == spec and entry.protect == topic.protect and entry.on_remove is topic.on_remove:
        return []
    then: dict[str, str] = {"protect": str(entry.protect).lower(), "on_remove": entry.on_remove.value}
    now: dict[str, str] = {"protect": str(topic.protect).lower(), "on_remove": topic.on_remove.value}
    match topic.origin:
        case MirroredBy():
            kept = [key for key in (*spec, *entry.spec) if key == ID or key.startswith("source.")]
        case Declared():
            kept = [key for key in (*spec, *entry.spec) if key != MIRRORED]
        case _:
            assert_never(topic.origin)
    moved = {".".join(path) for path in paths}
    for key in kept:
        if (
            key in moved
            or key.replace(BEFORE, CONFIG, 1) in moved
            or _same_recorded(key, entry.spec.get(key), spec.get(key))
        ):
            continue
        then[key] = entry.spec.get(key, "")
        now[key] = spec.get(key, "")
    return [
        FieldChange(
            ("recorded", key), then[key] or None, now[key] or None, note=_recorded_note(key, now[key])
        )
        for key in sorted(now)
        if then[key] != now[key]
    ]


def _same_recorded(key: str, then: str | None, now: str | None) -> bool:
    if key == ID and then is None:
        return True  # an entry without an id tells nothing about it
    name = key.removeprefix("config.")
    return same_value(name, then, now)


def _recorded_note(key: str, now: str) -> str:
    if key in ("protect", "on_remove"):
        return "remembered at the cluster"
    if key == ID:
        return "another topic under the same name"
    return "already so, will be managed" if now else "no longer managed"


def _state(scoped: Mapping[Path, object], topic: DesiredTopic, live: ObservedTopic) -> dict[str, object]:
    """The live values of what is compared, as the JSON shows them."""
    state: dict[str, object] = {}
    if PARTITIONS in scoped:
        state["partitions"] = live.partitions
    if REPLICATION in scoped:
        state["replication"] = live.replication_told
    keys = sorted(path[-1] for path in scoped if path[0] == "config")
    values = {key: explicit(live, key) for key in keys}
    state["config"] = {
        key: SENSITIVE if value.sensitive else value.value
        for key, value in values.items()
        if value is not None
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
        case MirroredBy():
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
        case _:
            assert_never(topic.origin)
