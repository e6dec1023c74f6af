"""Converts a MirrorMaker 2 file to the same flows, and notes every key that has no counterpart."""

import re
from collections.abc import Iterable, Mapping
from itertools import product

from planner.config.connect import (
    CLIENT_KEYS,
    CLIENT_REASONS,
    NO_WORKER,
    ConnectWorkers,
    ConvertedTopology,
    FlowPropertyKeys,
    PropertyKeys,
    Reason,
    client_of,
    first_reason,
    java_regex_problem,
    properties_of,
)
from planner.model.diagnostic import Failure, SourceLocation, error
from planner.model.topology import (
    Cluster,
    Configs,
    ConfigSync,
    Flow,
    Groups,
    Internal,
    Job,
    OriginCommits,
    Selection,
    StartAt,
    Topology,
)
from runtime.contract.spec.rename import SAME_NAME, Rename, Template
from runtime.contract.spec.selection import GROUP_DENIALS, TOPIC_DENIALS

_OWN_TOPICS = "the product makes its own topics by itself; internal: says how many copies they have"
_EXACT = "the offset map is exact"
_BATCHES = "whole record batches are copied as they are, so there is nothing to tune here"
_FOLLOW = "follow.every is the one interval for topics, settings and ACLs"
_WORKER_KEYS = (
    r"listeners.*|rest\..*|dedicated\..*|group\.id|plugin\..*|(key|value|header)\.converter.*|internal\..*"
    r"|connector\..*|scheduled\..*|task\..*|offset\.flush.*|worker\..*|rebalance\..*|session\..*|name"
)

# The keys are without cluster or flow.
_REASONS: tuple[Reason, ...] = (
    (r"exactly\.once\..*|transaction\.boundary.*", "every flow copies exactly once", False),
    (r"offset-syncs\.topic\.location", "the offset map is kept at the destination", False),
    (
        r"(offset-syncs|heartbeats|checkpoints)\.topic\..*|(offset|config|status)\.storage\..*",
        _OWN_TOPICS,
        False,
    ),
    (r"offset\.lag\.max|emit\.offset-syncs.*|offset-syncs\..*", _EXACT, False),
    (r"sync\.topic\.(configs|acls)\.interval\.seconds", _FOLLOW, False),
    (r"refresh\.groups\..*", "groups are looked at every groups.every", False),
    (r"(heartbeats\.replication|replication\.policy\.internal).*", _OWN_TOPICS, False),
    (r"(topic|group|config\.property)\.filter\.class", "include and exclude choose; code can't", True),
    (
        r"forwarding\.admin\.class",
        "topics are made by repl apply and by the job, no class can be put in",
        True,
    ),
    (r"(.*\.)?producer\..*", _BATCHES, False),
    (r"(.*\.)?consumer\..*", "what the job reads by is chosen by itself", False),
    (r"(.*\.)?admin\..*", "--timeout and --lock-timeout are given with the command", False),
    (_WORKER_KEYS, NO_WORKER, False),
    *CLIENT_REASONS,
)


def reason_for(key: str) -> tuple[str, bool]:
    """Returns the reason for a key, given without its cluster or flow, and whether an effect is lost."""
    return first_reason(key, _REASONS)


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


_POLICY = ("replication.policy.class",)
_CONFIGS_OUT = ("config.properties.exclude", "config.properties.blacklist")


def flow_of(source: str, target: str, names: Mapping[str, str], keys: PropertyKeys) -> Flow:
    """Converts one flow; `names` maps MirrorMaker's aliases to the names of clusters."""
    name = f"{names[source]}-to-{names[target]}"
    own = FlowPropertyKeys(keys, f"{source}->{target}.")
    rename, back = _rename(source, target, names, own)
    return Flow(
        name=name,
        source_cluster=names[source],
        destination_cluster=names[target],
        topics=_selection(own, ("topics",), ("topics.exclude", "topics.blacklist"), TOPIC_DENIALS, back),
        job=names[target],
        rename=rename,
        start=StartAt("latest" if _starts_late(source, own) else "earliest"),
        configs=_configs(own),
        replication=own.copies("replication.factor"),
        groups=_groups(own),
        acls_sync=own.flag(True, "sync.topic.acls.enabled"),
        follow_every_ms=_every(own, "refresh.topics", 5_000),
        heartbeats_every_ms=_every(own, "emit.heartbeats", 1_000),
        checkpoints_every_ms=_every(own, "emit.checkpoints", 60_000),
        origin_commits=OriginCommits(f"repl.{name}"),
    )


def workers_of(source: str, target: str, keys: PropertyKeys) -> ConnectWorkers:
    """Returns the workers of a flow, as `MirrorMakerConfig.workerConfig` of Kafka names them.

    A connector with exactly-once support may have an offsets topic of its own.
    """

    def value(usual: str, *names: str) -> str:
        found = (keys.by_name[name].value.strip() for name in names if name in keys.by_name)
        return next(found, usual)

    stored = value(
        f"mm2-offsets.{source}.internal",
        f"{source}->{target}.offsets.storage.topic",
        "offset.storage.topic",
        f"{target}.offset.storage.topic",
    )
    return ConnectWorkers(stored, source, value(f"{source}-mm2", f"{target}.group.id"))


def _rename(
    source: str, target: str, names: Mapping[str, str], own: FlowPropertyKeys
) -> tuple[Rename, tuple[str, ...]]:
    """Returns the rename, and the names of topics that must not be copied back."""
    policy = (own.text(*_POLICY) or _PREFIX).rpartition(".")[2]
    separator = own.text("replication.policy.separator") or "."
    if policy == _IDENTITY:
        return SAME_NAME, ()
    if policy != _PREFIX:
        own.note(_POLICY, f"{policy} is code of its own: the prefix rule is written instead, look at rename")
    origin = "{source}" if names[source] == source else source
    # A mirror of the destination's own topic never travels home; its name says where it is from.
    back = rf"(.*{re.escape(separator)})?{re.escape(target)}{re.escape(separator)}.*"
    return Template(f"{origin}{separator}{{topic}}"), (back,)


def _selection(
    own: FlowPropertyKeys,
    include_keys: tuple[str, ...],
    exclude_keys: tuple[str, ...],
    denials: tuple[str, ...],
    more: tuple[str, ...] = (),
) -> Selection:
    """Returns a selection. An exclude of the file replaces MirrorMaker's defaults: the default denials."""
    include = own.listed(*include_keys) or (".*",)
    exclude = own.listed(*exclude_keys)
    for keys, regexes in ((include_keys, include), (exclude_keys, exclude or ())):
        for one in regexes:
            if (wrong := java_regex_problem(one)) is not None:
                own.note(keys, wrong)
    if exclude is None:
        return Selection(include, more)
    usual = all(one in exclude for one in denials)
    chosen = tuple(one for one in exclude if not (usual and one in denials))
    return Selection(include, (*chosen, *more), default_exclude=usual)


def _starts_late(source: str, own: FlowPropertyKeys) -> bool:
    reset = "consumer.auto.offset.reset"
    found = own.text(reset, f"source.{reset}", f"{source}.{reset}")
    return (found or "earliest").lower() == "latest"


def _configs(own: FlowPropertyKeys) -> Configs:
    every = (own.text("use.defaults.from") or "target").lower() == "source"
    exclude = []
    for one in own.listed(*_CONFIGS_OUT) or ():
        plain = re.sub(r"\\(.)", r"\1", one)
        if plain in _NEVER_MIRRORED:
            continue
        exclude.append(plain)
        if not re.fullmatch(r"[a-z.]+", plain):
            own.note(_CONFIGS_OUT, f"{one} is a regex: name each setting in configs.exclude")
    if not own.flag(True, "sync.topic.configs.enabled"):
        return Configs(ConfigSync.OFF)
    return Configs(ConfigSync.ALL if every else ConfigSync.SET, tuple(exclude))


def _groups(own: FlowPropertyKeys) -> Groups:
    select = _selection(own, ("groups",), ("groups.exclude", "groups.blacklist"), GROUP_DENIALS)
    every = own.seconds("sync.group.offsets.interval.seconds")
    sync = own.flag(False, "sync.group.offsets.enabled")
    return Groups(select, sync, Groups().every_ms if every is None else every)


def _every(own: FlowPropertyKeys, duty: str, usual: int) -> int | None:
    """Returns an interval, or None if it is off. One that the file does not set is repl's default."""
    every = own.seconds(f"{duty}.interval.seconds")
    if not own.flag(True, f"{duty}.enabled") or every == 0:
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


def convert(text: str, file: str, name: str) -> ConvertedTopology:
    """Converts a file. Raises a Failure if it is no MirrorMaker 2 configuration, or no flow is enabled."""
    keys = PropertyKeys({one.key: one for one in properties_of(text)}, file)
    aliases = keys.listed("clusters") or ()
    if not aliases:
        raise Failure(
            error(
                f"{file} is no MirrorMaker 2 configuration: it names no clusters",
                "give the file that connect-mirror-maker is started with (clusters = A, B)",
            )
        )
    names = {alias: re.sub(r"[^A-Za-z0-9_-]", "_", alias) for alias in aliases}
    clusters = {names[alias]: _cluster(alias, names[alias], keys, file) for alias in aliases}
    flows: dict[str, Flow] = {}
    workers: dict[str, ConnectWorkers] = {}
    for source, target in _pairs(aliases, keys):
        flow = flow_of(source, target, names, keys)
        flows[flow.name] = flow
        workers[flow.name] = workers_of(source, target, keys)
    if not flows:
        raise Failure(
            error(
                f"no flow is enabled in {file}",
                f"set {aliases[0]}->{aliases[-1]}.enabled = true for each that runs",
                source=SourceLocation(file, keys.by_name["clusters"].line, 1),
            )
        )
    topology = Topology(
        name=name,
        clusters=clusters,
        flows=flows,
        jobs=_jobs(aliases, names, flows.values(), keys),
        internal=Internal(_internal_replication(aliases, keys)),
    )
    _explain_rest(aliases, keys)
    notes = tuple(sorted(keys.notes, key=lambda one: (one.line, one.key)))
    return ConvertedTopology(topology, notes, workers)


def _cluster(alias: str, name: str, keys: PropertyKeys, file: str) -> Cluster:
    bootstrap = keys.text(f"{alias}.bootstrap.servers")
    if not bootstrap:
        raise Failure(
            error(
                f"{file} does not say where cluster {alias} is",
                f"set {alias}.bootstrap.servers",
                source=SourceLocation(file, keys.by_name["clusters"].line, 1),
            )
        )
    settings: dict[str, str] = {}
    for key in CLIENT_KEYS:
        candidates = [f"{alias}.{role}{key}" for role in _CLIENT_ROLES]
        found = keys.name_of(*candidates, *(f"{role}{key}" for role in _CLIENT_ROLES))
        if found is not None:
            settings[key] = found
            keys.used.update(one for one in candidates if one in keys.by_name)
    addresses = ",".join(part.strip() for part in bootstrap.split(",") if part.strip())
    return Cluster(name, addresses, client=client_of(name, keys, settings))


def _pairs(aliases: tuple[str, ...], keys: PropertyKeys) -> Iterable[tuple[str, str]]:
    """Yields source and target of each flow that is enabled."""
    for source, target in product(aliases, aliases):
        if keys.flag(False, f"{source}->{target}.enabled") and source != target:
            yield source, target


def _jobs(
    aliases: tuple[str, ...], names: Mapping[str, str], flows: Iterable[Flow], keys: PropertyKeys
) -> dict[str, Job]:
    """Returns the jobs: the largest `tasks.max` at a destination is the number of slots of its job."""
    jobs = {}
    for target in aliases:
        wanted = []
        for flow in flows:
            if flow.destination_cluster != names[target]:
                continue
            source = next(alias for alias in aliases if names[alias] == flow.source_cluster)
            found = keys.text(f"{source}->{target}.tasks.max", f"{target}.tasks.max", "tasks.max")
            if found is not None and found.isdecimal():
                wanted.append(int(found))
        if any(flow.destination_cluster == names[target] for flow in flows):
            jobs[names[target]] = Job(names[target], slots=max(wanted) if wanted else "auto")
    return jobs


def _internal_replication(aliases: tuple[str, ...], keys: PropertyKeys) -> int | None:
    """Returns the largest replication of MirrorMaker's own topics. -1 stands for the broker's default."""
    numbers = []
    for key in _INTERNAL:
        for name in (key, *(f"{alias}.{key}" for alias in aliases)):
            value = keys.text(name)
            if value is not None and value.isdecimal():
                numbers.append(int(value))
    return max(numbers, default=None)


def _explain_rest(aliases: tuple[str, ...], keys: PropertyKeys) -> None:
    pairs = [f"{source}->{target}" for source, target in product(aliases, aliases)]
    for one in keys.rest():
        prefix = next((name for name in (*pairs, *aliases) if one.key.startswith(f"{name}.")), None)
        if "->" in one.key and prefix not in pairs:
            keys.note(one.key, "a cluster of it is not among clusters, so MirrorMaker does not run it either")
        elif prefix in pairs and not keys.flag(False, f"{prefix}.enabled"):
            keys.note(one.key, "its flow is not enabled", loss=False)
        else:
            reason, loss = reason_for(one.key.removeprefix(f"{prefix}.") if prefix else one.key)
            keys.note(one.key, reason, loss=loss)
