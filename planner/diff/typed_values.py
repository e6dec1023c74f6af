"""The typed values of topics by path, and of flows and jobs by the names of the topology.

A topic has the values that are declared or mirrored, or were applied and are not declared now. Only these are
compared: what a topology does not say of a topic is left to the cluster. The values of flows and jobs come
from the specs that jobs run by.
"""

from collections.abc import Iterable, Mapping
from typing import Any, assert_never

from msgspec import Struct

from planner.diff import fields
from planner.diff.compare import Leaf, Secret, Tree, changed_fields
from planner.diff.fields import ADDED, CLUSTERS, REGISTRIES, TIMESTAMPS, Field, plain_name, unusual
from planner.diff.record import whole
from planner.diff.values import SETTINGS
from planner.model.change import SENSITIVE, Path, Value
from planner.model.desired import Declared, DesiredTopic, MirroredBy, QuarantineOf
from planner.model.observed import ConfigSource, ConfigValue, ObservedTopic, RegistryEntry
from planner.model.topology import looks_secret
from runtime.contract.client.stores import Setting
from runtime.contract.spec.flow import Earliest, GroupsSpec, Latest
from runtime.contract.spec.jobspec import FlowSpec, JobSpec, WithFiles
from runtime.contract.spec.launch import LaunchSpec
from runtime.contract.spec.rename import Table, Template
from runtime.contract.spec.selection import SelectionSpec
from runtime.contract.spec.transform import FormatSpec, TransformSpec

PARTITIONS: Path = ("partitions",)
REPLICATION: Path = ("replication",)


def config_path(key: str) -> Path:
    return ("config", key)


def given_back(topic: DesiredTopic, entry: RegistryEntry | None) -> frozenset[str]:
    """Returns the settings that return to the cluster's own value.

    Those of a mirror come from its source. Those of a declared topic were applied and left the YAML.
    """
    match topic.origin:
        case MirroredBy():
            return topic.unset - topic.config.keys() - topic.restored.keys()
        case QuarantineOf():
            return frozenset()
        case Declared():
            applied = entry.config.keys() if entry is not None else frozenset()
            return (topic.unset | applied) - topic.config.keys() - topic.restored.keys()
        case _:
            assert_never(topic.origin)


def given_back_after(topic: DesiredTopic, entry: RegistryEntry | None) -> frozenset[str]:
    """Returns the limits that a failback had lifted and that this plan restores."""
    before = entry.before.keys() if entry is not None else frozenset[str]()
    return frozenset(before) - topic.before.keys()


def explicit(live: ObservedTopic, key: str) -> ConfigValue | None:
    """Returns the value that is set on the topic itself; None where it inherits the cluster's."""
    value = live.config.get(key)
    return value if value is not None and value.source is ConfigSource.TOPIC else None


def is_sensitive(live: ObservedTopic, key: str) -> bool:
    """Returns whether the broker keeps the value of this setting to itself."""
    setting = live.config.get(key)
    return setting is not None and setting.sensitive


def recorded_config(entry: RegistryEntry, live: ObservedTopic | None) -> dict[str, Value]:
    """Returns the settings that were applied, by name and without secrets.

    Of a topic that is gone no broker tells what is sensitive: then the name of the setting decides.
    """
    return {
        key: SENSITIVE if (looks_secret(key) if live is None else is_sensitive(live, key)) else value
        for key, value in sorted(entry.config.items())
    }


def topic_trees(topic: DesiredTopic, live: ObservedTopic, entry: RegistryEntry | None) -> tuple[Tree, Tree]:
    """Returns the live and the desired values: partitions, replication, then the settings by name."""
    old: dict[Path, Leaf] = {}
    new: dict[Path, Leaf] = {}
    if topic.partitions is not None:
        old[PARTITIONS], new[PARTITIONS] = live.partitions, _partitions(topic, topic.partitions, live)
    if topic.replication is not None:
        old[REPLICATION], new[REPLICATION] = live.replication_factors, topic.replication
    wanted: dict[str, str | None] = {**topic.restored, **topic.config}
    wanted |= dict.fromkeys(given_back(topic, entry))
    for key in sorted(wanted):
        path = config_path(key)
        old[path], new[path] = _topic_setting(key, wanted[key], live, entry)
    return old, new


def _partitions(topic: DesiredTopic, partitions: int, live: ObservedTopic) -> int:
    """A mirror may have more partitions than its source. What is declared is meant exactly."""
    match topic.origin:
        case QuarantineOf():  # records of the mirror's other partitions share those that there are
            return live.partitions
        case MirroredBy():
            return max(partitions, live.partitions)
        case Declared():
            return partitions
        case _:
            assert_never(topic.origin)


def _topic_setting(
    key: str, wanted: str | None, live: ObservedTopic, entry: RegistryEntry | None
) -> tuple[Leaf, Leaf]:
    """Returns the live and the desired value. A setting that the broker calls sensitive is a secret."""
    value = explicit(live, key)
    if not is_sensitive(live, key):
        return None if value is None else value.value, wanted
    new = None if wanted is None else Secret(wanted)
    if value is None:
        return None, new
    # The broker does not tell it: the value that was applied last is the best that is known.
    applied = entry.config.get(key, "") if entry is not None else ""
    return Secret(applied if value.value is None else value.value), new


Values = dict[str, Value]


def flow_values(flow: FlowSpec) -> Values:
    """Returns every field of a flow."""
    return _values(fields.FLOW, flow)


def launcher_values(launch: LaunchSpec) -> Values:
    """Returns where and how the application runs."""
    return _values(fields.LAUNCHER, launch)


def launch_values(spec: JobSpec) -> Values:
    """Returns what can't change while the job runs, without the clusters."""
    return _values(fields.LAUNCH, spec)


def reached_values(spec: JobSpec, names: Iterable[str] | None = None) -> Values:
    """Returns how clusters and schema registries are reached, all or those of the clusters of these names.

    A running job trusts no record about that, so none of it can change while the job runs.
    """
    wanted = spec.clusters.keys() | spec.registries.keys() if names is None else set(names)
    values: dict[str, Value] = {}
    for name in sorted(wanted & spec.clusters.keys()):
        cluster = spec.clusters[name]
        values[f"{CLUSTERS}{name}.bootstrap"] = cluster.bootstrap
        values[f"{CLUSTERS}{name}.id"] = cluster.id or None
        values |= _client_values(f"{CLUSTERS}{name}", cluster.client)
    for name in sorted(wanted & spec.registries.keys()):
        values[f"{REGISTRIES}{name}.url"] = spec.registries[name].url
        values |= _client_values(f"{REGISTRIES}{name}", spec.registries[name].client)
    return values


def _client_values(prefix: str, client: Mapping[str, Setting]) -> Values:
    return {f"{prefix}.client.{key}": _setting(key, given) for key, given in sorted(client.items())}


def metrics_values(spec: JobSpec) -> Values:
    return _values(fields.METRICS, spec)


def flow_states(spec: JobSpec) -> Values:
    """Returns the one field for the job's flows with their states."""
    return _values(fields.FLOWS, spec)


def running_values(spec: JobSpec) -> Values:
    """Returns what a job takes over while it runs."""
    return {
        **metrics_values(spec),
        **flow_states(spec),
        **{TIMESTAMPS + key: value for key, value in unusual(spec.internal.timestamps).items()},
        **_values(fields.DECLARED, spec),
    }


def job_values(spec: JobSpec) -> Values:
    """Returns every field of a job; its flows only by their states."""
    return {**launch_values(spec), **reached_values(spec), **running_values(spec)}


# A new flow shows these always, and its other fields only where they are not the defaults.
_ALWAYS = frozenset({"from", "to", "topics.include", "rename", "provenance", "start", "state"})
_SUMMED_UP = frozenset(f"groups.{part}" for part in ("include", "exclude", "every", "mode", "sync"))
# What a flow with files does not do is not shown of it.
_BETWEEN_CLUSTERS = frozenset(
    {"rename", "provenance", "configs.sync", "follow", "heartbeats", "checkpoints", "groups"}
)
_OF_TOPICS = frozenset({"topics.include", "topics.exclude", "topics.default_exclude", "start"})
_HIDDEN: Mapping[WithFiles, frozenset[str]] = {
    "": frozenset(),
    "into": _BETWEEN_CLUSTERS,
    "from": _BETWEEN_CLUSTERS | _OF_TOPICS,
}
_USUAL_FLOW = FlowSpec(name="", source="", destination="", topics=SelectionSpec(include=()))
_USUAL_JOB = JobSpec(job="", topology="", destination="", clusters={}, flows=[])
_SHOWN_OF_JOB = ("launcher", "master", "memory", "slots", "internal.retention", "metrics", "flows")


def new_flow_values(flow: FlowSpec) -> Values:
    """Returns the fields that a new flow shows: what people read of it first, and what is not the default.

    What it does with consumer groups is one field.
    """
    usual = flow_values(_USUAL_FLOW)
    shown = {
        name: value
        for name, value in flow_values(flow).items()
        if name not in _SUMMED_UP and (name in _ALWAYS or value != usual.get(name))
    }
    shown["groups"] = groups_value(flow.groups)
    hidden = _HIDDEN[flow.with_files]
    return {name: value for name, value in shown.items() if name not in hidden}


def new_job_values(spec: JobSpec) -> Values:
    """Returns the fields of a job that are not the defaults, with those that people read first."""
    usual = job_values(_USUAL_JOB)
    return {
        name: value
        for name, value in job_values(spec).items()
        if name in _SHOWN_OF_JOB or value != usual.get(name)
    }


def groups_value(groups: GroupsSpec) -> Value:
    """Returns what a flow does with consumer groups as one value, for a new flow."""
    return {
        "include": groups.include,
        "exclude": groups.exclude,
        "every": groups.every_ms,
        "mode": groups.mode,
        "sync": groups.sync,
    }


def same_flow(one: FlowSpec, other: FlowSpec) -> bool:
    """Returns whether two specs of a flow mean the same."""
    return one == other or not changed_fields(flow_values(one), flow_values(other))


def same_job(one: JobSpec, other: JobSpec) -> bool:
    """Returns whether two specs of a job mean the same: the order of name patterns has no meaning."""
    return one == other or _unordered(whole(one)) == _unordered(whole(other))


_PATTERNS = frozenset({"include", "exclude", "promoted"})


def _unordered(tree: object) -> object:
    match tree:
        case dict():
            return {
                key: set(part) if key in _PATTERNS and isinstance(part, list) else _unordered(part)
                for key, part in tree.items()
            }
        case list():
            return [_unordered(part) for part in tree]
        case _:
            return tree


def _values(declared: Iterable[Field], spec: object) -> Values:
    values: Values = {}
    for field in declared:
        value = field.read(spec)
        if field.type is SETTINGS and isinstance(value, Mapping):
            value = {key: _setting(key, setting) for key, setting in sorted(value.items())}
        shown = _plain(value)
        if field.name not in ADDED or shown != ADDED[field.name]:
            values[field.name] = shown
    return values


def _setting(key: str, value: Setting) -> str | Mapping[str, object]:
    """Returns a setting as it is, unless it is a secret that is written out."""
    if isinstance(value, str):
        return SENSITIVE if looks_secret(key) else value
    return {str(kind): name for kind, name in value.items()}


def _plain(value: Any) -> Value:
    """Returns the plain form of a part of a spec: what the topology has for it, in milliseconds and bytes."""
    match value:
        case list():
            return tuple(value)
        case Mapping():
            return {str(key): _plain(part) for key, part in sorted(value.items())}
        case Template(text=text):
            return text
        case Table(names=names):
            return {"table": dict(sorted(names.items()))}
        case Earliest() | Latest():
            return str(value.__struct_config__.tag)
        case TransformSpec():
            return _transform(value)
        case Struct():
            return {plain_name(name): _plain(getattr(value, name)) for name in value.__struct_fields__}
        case _:
            plain: Value = value
            return plain


def _transform(transform: TransformSpec) -> Value:
    """Returns the parts of a transform that are not the defaults."""
    parts: dict[str, Value] = {}
    for name, form in (("value", transform.value), ("key", transform.key)):
        if form != FormatSpec():
            parts[name] = f"{_format(form)}: {form.schema}" if form.schema else form.format
    if transform.set:
        parts["set"] = dict(sorted(transform.set.items()))
    if transform.drop:
        parts["drop"] = tuple(transform.drop)
    if transform.where is not None:
        parts["where"] = transform.where
    if transform.on_filtered == "tombstone":
        parts["on_filtered"] = transform.on_filtered
    if transform.quarantines:
        parts["on_bad_record"] = transform.on_bad_record
    return parts


def _format(form: FormatSpec) -> str:
    """Returns a format with the registry of its schemas. Its secrets are references."""
    if form.registry is None:
        return form.format
    client = "".join(f", {key}: {value}" for key, value in sorted(form.registry.client.items()))
    return f"{form.format} by the registry {form.registry.url}{client}"
