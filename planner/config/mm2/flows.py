"""Converts each `A->B.enabled = true` to a flow, with MirrorMaker 2's defaults where repl's differ."""

import re
from collections.abc import Mapping

from planner.config.connect.notes import ConnectWorkers, FlowPropertyKeys, PropertyKeys
from planner.config.connect.reasons import java_regex_problem
from planner.model.topology import (
    Configs,
    ConfigSync,
    Flow,
    Groups,
    OriginCommits,
    Selection,
    StartAt,
)
from runtime.contract.spec.rename import SAME_NAME, Rename, Template
from runtime.contract.spec.selection import GROUP_DENIALS, TOPIC_DENIALS

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
