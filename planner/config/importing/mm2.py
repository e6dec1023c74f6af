"""Converts a MirrorMaker 2 file to the same flows, and notes every key that has no counterpart."""

import re
from collections.abc import Mapping, Sequence
from itertools import product

from planner.config.importing.connect import (
    CONNECT_ROWS,
    Properties,
    client_of,
    java_regex_problem,
    properties_of,
)
from planner.config.importing.declared import label
from planner.config.importing.document import ConvertedTopology, NoCounterpart, in_order, unused, whole_number
from planner.config.yaml_tree import ScalarNode
from planner.model.diagnostic import Failure, error
from planner.model.topology import Cluster, Flow, Job, Selection, Topology
from planner.model.topology.resources import CLUSTER_NAME
from runtime.contract.predecessor import ConnectOffsets
from runtime.contract.spec.flow import ConfigsSpec, Earliest, GroupsSpec, Latest, OriginCommitsSpec
from runtime.contract.spec.rename import SAME_NAME, Rename, Template
from runtime.contract.spec.selection import GROUP_DENIALS, TOPIC_DENIALS
from runtime.contract.spec.topic_settings import InternalSpec

_OWN_TOPICS = "the product makes its own topics by itself; internal: says how many copies they have"
# The keys are without cluster or flow.
_ROWS = (
    NoCounterpart(r"offset-syncs\.topic\.location", "the offset map is kept at the destination"),
    NoCounterpart(
        r"(offset-syncs|heartbeats|checkpoints)\.topic\..*|(offset|config|status)\.storage\..*", _OWN_TOPICS
    ),
    NoCounterpart(r"offset\.lag\.max|emit\.offset-syncs.*|offset-syncs\..*", "the offset map is exact"),
    NoCounterpart(
        r"sync\.topic\.(configs|acls)\.interval\.seconds",
        "follow.every is the one interval for topics, settings and ACLs",
    ),
    NoCounterpart(r"refresh\.groups\..*", "groups are looked at every groups.every"),
    NoCounterpart(r"(heartbeats\.replication|replication\.policy\.internal).*", _OWN_TOPICS),
    NoCounterpart(
        r"(topic|group|config\.property)\.filter\.class",
        "include and exclude choose; code can't",
        loss=True,
    ),
    NoCounterpart(
        r"forwarding\.admin\.class",
        "topics are made by repl apply and by the job, no class can be put in",
        loss=True,
    ),
    *CONNECT_ROWS,
)

_IDENTITY = "IdentityReplicationPolicy"
_PREFIX = "DefaultReplicationPolicy"
# What the product never mirrors anyway, so that it need not be excluded by name.
_NEVER_MIRRORED = frozenset(
    {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "message.timestamp.difference.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.after.max.ms",
        "message.timestamp.type",
        "unclean.leader.election.enable",
        "min.insync.replicas",
    }
)


_MOST_CLUSTERS = 100  # each pair of them may be a flow
_LONGEST_KEY = 1_000  # characters of a key in which an alias is looked for
_POLICY = ("replication.policy.class",)
_CONFIGS_OUT = ("config.properties.exclude", "config.properties.blacklist")


def flow_of(source: str, target: str, names: Mapping[str, str], keys: Properties) -> Flow:
    """Converts one flow; `names` maps MirrorMaker's aliases to the names of clusters."""
    name = f"{names[source]}-to-{names[target]}"
    settings = keys.below_any(f"{source}->{target}.", "")
    rename, back = _rename(source, target, names, settings)
    reset = settings.text(
        *(f"{prefix}consumer.auto.offset.reset" for prefix in ("", "source.", f"{source}."))
    )
    groups_every = settings.seconds("sync.group.offsets.interval.seconds")
    groups = _selection(settings, ("groups",), ("groups.exclude", "groups.blacklist"), GROUP_DENIALS)
    return Flow(
        name=name,
        source_cluster=names[source],
        destination_cluster=names[target],
        topics=_selection(settings, ("topics",), ("topics.exclude", "topics.blacklist"), TOPIC_DENIALS, back),
        rename=rename,
        start=Latest() if (reset or "").lower() == "latest" else Earliest(),
        configs=_configs(settings),
        replication=settings.copies("replication.factor"),
        groups=GroupsSpec(
            groups.include,
            groups.exclude,
            groups.default_exclude,
            sync=settings.flag(False, "sync.group.offsets.enabled"),
            every_ms=GroupsSpec().every_ms if groups_every is None else groups_every,
        ),
        acls_sync=settings.flag(True, "sync.topic.acls.enabled"),
        follow_every_ms=_every(settings, "refresh.topics", 5_000),
        heartbeats_every_ms=_every(settings, "emit.heartbeats", 1_000),
        checkpoints_every_ms=_every(settings, "emit.checkpoints", 60_000),
        origin_commits=OriginCommitsSpec(),
    )


def positions_of(source: str, target: str, keys: Properties) -> ConnectOffsets:
    """Returns where a flow's positions are, as `MirrorMakerConfig.workerConfig` of Kafka names the topic.

    A connector with exactly-once support may have an offsets topic of its own.
    """

    def value(usual: str, *names: str) -> str:
        nodes = map(keys.values.get, names)
        return next((node.text for node in nodes if isinstance(node, ScalarNode)), usual)

    stored = value(
        f"mm2-offsets.{source}.internal",
        f"{source}->{target}.offsets.storage.topic",
        "offset.storage.topic",
        f"{target}.offset.storage.topic",
    )
    return ConnectOffsets(stored, source, value(f"{source}-mm2", f"{target}.group.id"))


def _rename(
    source: str, target: str, names: Mapping[str, str], settings: Properties
) -> tuple[Rename, tuple[str, ...]]:
    """Returns the rename, and the names of topics that must not be copied back."""
    policy = (settings.text(*_POLICY) or _PREFIX).rpartition(".")[2]
    separator = settings.text("replication.policy.separator") or "."
    if policy == _IDENTITY:
        return SAME_NAME, ()
    if policy != _PREFIX:
        settings.note(
            _POLICY, f"{policy} is code of its own: the prefix rule is written instead, look at rename"
        )
    origin = "{source}" if names[source] == source else source
    # A mirror of the destination's own topic never travels home; its name says where it is from.
    back = rf"(.*{re.escape(separator)})?{re.escape(target)}{re.escape(separator)}.*"
    return Template(f"{origin}{separator}{{topic}}"), (back,)


def _selection(
    settings: Properties,
    include_keys: tuple[str, ...],
    exclude_keys: tuple[str, ...],
    denials: tuple[str, ...],
    more: tuple[str, ...] = (),
) -> Selection:
    """Returns a selection. An exclude of the file replaces MirrorMaker's defaults: the default denials."""
    include = settings.listed(*include_keys) or (".*",)
    exclude = settings.listed(*exclude_keys)
    for keys, regexes in ((include_keys, include), (exclude_keys, exclude or ())):
        for regex in regexes:
            if (problem := java_regex_problem(regex)) is not None:
                settings.note(keys, problem)
    if exclude is None:
        return Selection(include, more)
    usual = all(regex in exclude for regex in denials)
    chosen = tuple(regex for regex in exclude if not (usual and regex in denials))
    return Selection(include, (*chosen, *more), default_exclude=usual)


def _configs(settings: Properties) -> ConfigsSpec:
    every = (settings.text("use.defaults.from") or "target").lower() == "source"
    exclude = []
    for regex in settings.listed(*_CONFIGS_OUT) or ():
        plain = re.sub(r"\\(.)", r"\1", regex)
        if plain in _NEVER_MIRRORED:
            continue
        exclude.append(plain)
        if not re.fullmatch(r"[a-z.]+", plain):
            settings.note(_CONFIGS_OUT, f"{regex} is a regex: name each setting in configs.exclude")
    if not settings.flag(True, "sync.topic.configs.enabled"):
        return ConfigsSpec("off")
    return ConfigsSpec("all" if every else "set", tuple(exclude))


def _every(settings: Properties, duty: str, usual: int) -> int | None:
    """Returns an interval, or None if it is off. One that the file does not set is repl's default."""
    every = settings.seconds(f"{duty}.interval.seconds")
    if not settings.flag(True, f"{duty}.enabled") or every == 0:
        return None
    return usual if every is None else every


_INTERNAL = (
    "offset-syncs.topic.replication.factor",
    "heartbeats.topic.replication.factor",
    "checkpoints.topic.replication.factor",
    "offset.storage.replication.factor",
    "config.storage.replication.factor",
    "status.storage.replication.factor",
)
_CLIENT_ROLES = ("", "admin.", "consumer.", "producer.")


def convert(files: Sequence[tuple[str, str]], name: str) -> ConvertedTopology:
    """Converts a file. Raises a Failure if it is no MirrorMaker 2 configuration, or no flow is enabled."""
    ((file, text),) = files
    keys = Properties({}, file, 1, [])
    for key, (value, line) in properties_of(text).items():
        keys.add(key, value, line)
    return convert_properties(keys, name)


def convert_properties(keys: Properties, name: str) -> ConvertedTopology:
    """Converts the properties of a file, as `convert` does."""
    file, aliases = keys.file, keys.listed("clusters") or ()
    if not aliases:
        raise Failure(
            error(
                f"{file} is no MirrorMaker 2 configuration: it names no clusters",
                "give the file that connect-mirror-maker is started with (clusters = A, B)",
            )
        )
    if len(aliases) > _MOST_CLUSTERS:
        what = f"{file} names {len(aliases):,} clusters, and at most {_MOST_CLUSTERS} are converted"
        raise keys.failure(what, "leave those out that no flow needs", "clusters")
    names = _names(aliases, keys)
    clusters = {names[alias]: _cluster(alias, names[alias], keys) for alias in aliases}
    flows: dict[str, Flow] = {}
    positions: dict[str, ConnectOffsets] = {}
    slots: dict[str, list[int]] = {}  # of the jobs
    for source, target in product(aliases, aliases):
        if not keys.flag(False, f"{source}->{target}.enabled") or source == target:
            continue
        flow = flow_of(source, target, names, keys)
        if flow.name in flows:
            hint = "rename an alias: a flow is called SOURCE-to-DESTINATION"
            raise Failure(error(f"two flows of {file} would be called {flow.name}", hint))
        flows[flow.name] = flow
        positions[flow.name] = positions_of(source, target, keys)
        tasks = keys.text(f"{source}->{target}.tasks.max", f"{target}.tasks.max", "tasks.max") or ""
        number = whole_number(tasks)
        slots.setdefault(flow.job, []).extend([number] if number is not None else [])
    if not flows:
        hint = f"set {aliases[0]}->{aliases[-1]}.enabled = true for each that runs"
        raise keys.failure(f"no flow is enabled in {file}", hint, "clusters")
    topology = Topology(
        name=name,
        clusters=clusters,
        flows=flows,
        jobs={job: Job(job, slots=max(slots[job], default="auto")) for job in names.values() if job in slots},
        internal=InternalSpec(replication=_internal_replication(aliases, keys)),
    )
    _explain_rest(aliases, keys)
    return ConvertedTopology(topology, in_order(keys.notes), positions)


def _names(aliases: tuple[str, ...], keys: Properties) -> dict[str, str]:
    """Returns the name of each alias's cluster. Of two aliases with one name, the second gets a number."""
    names = {alias: alias for alias in aliases if CLUSTER_NAME.matches(alias)}
    for alias in aliases:
        if alias in names:
            continue
        plain = label(alias)
        names[alias] = unused([plain], lambda name: name in names.values())
        if names[alias] != plain:
            keys.note(
                "clusters",
                f"another cluster has the name {plain} already: {alias} is {names[alias]}",
                loss=False,
            )
    return names


def _cluster(alias: str, name: str, keys: Properties) -> Cluster:
    bootstrap = keys.listed(f"{alias}.bootstrap.servers")
    if not bootstrap:
        what = f"{keys.file} does not say where cluster {alias} is"
        raise keys.failure(what, f"set {alias}.bootstrap.servers", "clusters")
    prefixes = [f"{of}{role}" for of in (f"{alias}.", "") for role in _CLIENT_ROLES]
    client = client_of(name, keys.below_any(*prefixes, shows_others=True))
    return Cluster(name, bootstrap=",".join(bootstrap), client=client)


def _internal_replication(aliases: tuple[str, ...], keys: Properties) -> int | None:
    """Returns the largest replication of MirrorMaker's own topics. -1 stands for the broker's default."""
    names = keys.below_any("", *(f"{alias}." for alias in aliases)).names(*_INTERNAL)
    copies = [keys.text(name) or "" for name in names]
    numbers = map(whole_number, copies)
    return max((number for number in numbers if number is not None), default=None)


def _explain_rest(aliases: tuple[str, ...], keys: Properties) -> None:
    pairs = {f"{source}->{target}" for source, target in product(aliases, aliases)}
    for name in keys.rest():
        prefixes = [name[:at] for at, sign in enumerate(name[:_LONGEST_KEY]) if sign == "."]
        prefix = next((prefix for of in (pairs, aliases) for prefix in prefixes if prefix in of), None)
        if "->" in name and prefix not in pairs:
            keys.note(name, "a cluster of it is not among clusters, so MirrorMaker does not run it either")
        elif prefix in pairs and not keys.flag(False, f"{prefix}.enabled"):
            keys.note(name, "its flow is not enabled", loss=False)
        else:
            keys.explain_key(name, name.removeprefix(f"{prefix}.") if prefix else name, _ROWS)
