"""Topologies and clusters in a few words, for tables."""

from collections.abc import Mapping
from typing import Any

from planner.graph.expansion import expand
from planner.model.address import Address, Kind, topic_address
from planner.model.desired import Desired, DesiredTopic
from planner.model.observed import (
    ConfigSource,
    ConfigValue,
    Observed,
    ObservedBroker,
    ObservedCluster,
    ObservedTopic,
    RegistryEntry,
    Unreachable,
)
from planner.model.topology import Acl, AclRule, Cluster, Flow, Selection, Topic, Topology

# What every cluster here inherits.
DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "max.message.bytes": "1048588",
    "segment.bytes": "1073741824",
    "retention.ms": "604800000",
    "retention.bytes": "-1",
    "min.insync.replicas": "1",
}
MIRRORED = {key: DEFAULTS[key] for key in list(DEFAULTS)[:4]}
BOUNDS = {
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.after.max.ms": "9223372036854775807",
}
MIRROR = {**MIRRORED, **BOUNDS}


def flow(ends: str, include: str | tuple[str, ...] = ".*", **more: Any) -> Flow:
    """`dc1>dc2`, or `name=dc1>dc2`."""
    name, _, clusters = ends.rpartition("=")
    source, destination = clusters.split(">")
    includes = (include,) if isinstance(include, str) else include
    more.setdefault("topics", Selection(includes))
    more.setdefault("job", destination)
    return Flow(name or f"{source}-{destination}", source, destination, **more)


def topic(place: str, partitions: int | None = None, replication: int | None = None, **config: str) -> Topic:
    """`dc1/orders`; `retention_ms="1"` is retention.ms."""
    cluster, name = place.split("/")
    return Topic(
        name, cluster, partitions, replication, {key.replace("_", "."): config[key] for key in config}
    )


def topology(*parts: Flow | Topic | AclRule, **more: Any) -> Topology:
    more.setdefault(
        "clusters", {name: Cluster(name, bootstrap=f"{name}:9092") for name in ("dc1", "dc2", "dc3")}
    )
    return Topology(
        "t",
        topics=tuple(part for part in parts if isinstance(part, Topic)),
        acls=tuple(Acl(part) for part in parts if isinstance(part, AclRule)),
        flows={part.name: part for part in parts if isinstance(part, Flow)},
        **more,
    )


def live(name: str, partitions: int = 1, replication: int = 1, **config: str) -> ObservedTopic:
    """With what it sets itself, and all else inherited."""
    explicit = {key.replace("_", "."): value for key, value in config.items()}
    values = {key: ConfigValue(value, ConfigSource.DEFAULT) for key, value in DEFAULTS.items()}
    values |= {key: ConfigValue(value) for key, value in explicit.items()}
    return ObservedTopic(name, f"id-{name}", ((1,) * replication,) * partitions, values)


def cluster(name: str, *topics: ObservedTopic | str, brokers: int = 3, **more: Any) -> ObservedCluster:
    known = [live(one) if isinstance(one, str) else one for one in topics]
    more.setdefault("defaults", DEFAULTS)
    more.setdefault("default_partitions", 1)
    more.setdefault("default_replication", 1)
    return ObservedCluster(
        name,
        f"id-{name}",
        tuple(ObservedBroker(at, name, 9092) for at in range(brokers)),
        {one.name: one for one in known},
        **more,
    )


def observed(*clusters: ObservedCluster | str) -> Observed:
    """A name alone is a cluster that could not be read."""
    return Observed(
        {
            (one if isinstance(one, str) else one.name): Unreachable(one, "timed out")
            if isinstance(one, str)
            else one
            for one in clusters
        }
    )


def rule(words: str, pattern: str = "LITERAL", kind: str = "TOPIC", host: str = "*") -> AclRule:
    """`dc1 ALLOW User:app READ orders`."""
    where, permission, principal, operation, resource = words.split()
    return AclRule(where, kind, resource, pattern, principal, host, operation, permission)  # type: ignore[arg-type]


def mirror_entry(flow_name: str, place: str, topology: str = "t") -> RegistryEntry:
    where, name = place.split("/")
    return RegistryEntry(topic_address(where, name), topology, origin=f"flow.{flow_name}", created=True)


def acl_entry(flow_name: str, one: AclRule) -> RegistryEntry:
    return RegistryEntry(
        Address(Kind.ACL, one.cluster, one.name), "t", origin=f"flow.{flow_name}", created=True
    )


def wanted(desired: Desired) -> dict[str, DesiredTopic]:
    """By `dc2/orders`."""
    return {f"{one.cluster}/{one.name}": one for one in desired.topics}


def codes(desired: Desired | tuple[Any, ...]) -> list[str]:
    found = desired if isinstance(desired, tuple) else desired.diagnostics
    return [one.code for one in found]


def said(desired: Desired, code: str) -> list[str]:
    return [f"{one.summary} — {one.hint}" for one in desired.diagnostics if one.code == code]


def rules(desired: Desired) -> list[str]:
    return [f"{one.rule.cluster}.{one.rule.name}" for one in desired.acls]


def selected(desired: Desired) -> Mapping[str, tuple[tuple[str, str], ...]]:
    return {one.flow.name: one.topics for one in desired.flows}


def seen(**clusters: Any) -> Observed:
    """`seen(dc1="a b", dc2=[live("a")], dc3=None)`; the others are empty, and None could not be read."""
    found: list[ObservedCluster | str] = []
    for name in ("dc1", "dc2", "dc3"):
        at = clusters.get(name, ())
        if at is None or isinstance(at, ObservedCluster):
            found.append(name if at is None else at)
        else:
            found.append(cluster(name, *(at.split() if isinstance(at, str) else at)))
    return observed(*found)


def expanded(
    *parts: Flow | Topic | AclRule, shop: Mapping[str, Any] | None = None, **clusters: Any
) -> Desired:
    return expand(topology(*parts, **(shop or {})), seen(**clusters))


THREE = observed(cluster("dc1", "a", "b"), cluster("dc2"), cluster("dc3"))


def found(of: Topology, code: str, over: Observed = THREE) -> list[str]:
    """What expand says under this code: `address: summary`."""
    return [f"{one.address}: {one.summary}" for one in expand(of, over).diagnostics if one.code == code]
