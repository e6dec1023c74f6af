"""Writes a topology as YAML text that loads as the same topology.

ACL bindings become few entries: clusters, operations and names are joined if all else is equal. So do topics:
common values become defaults, and equal topics at several clusters join.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from textwrap import wrap
from typing import Any, TypeVar

from planner.model.diagnostic import Diagnostic, warning
from planner.model.topology import (
    API_VERSION,
    FILE_FLOW_KEYS,
    LINES_FLOW_KEYS,
    RESOURCES,
    AclEntry,
    AclRule,
    Cluster,
    Quota,
    Topic,
    Topology,
    looks_secret,
    secret_variable,
)
from planner.render.yaml import WIDTH, Value, item, pair, printable, values_of


def acl_values(rules: Iterable[AclRule]) -> list[dict[str, Value]]:
    """Returns the entries by principal, then by resource."""
    entries = [_entry(rule) for rule in set(rules)]
    for key in ("allow", "deny", "cluster", *RESOURCES):
        entries = _joined(entries, key)
    return [values_of(entry) for entry in sorted(entries, key=_order)]


def _entry(rule: AclRule) -> AclEntry:
    operations = (rule.operation,)
    names: dict[str, Any] = {
        key: (rule.resource,) for key, kind in RESOURCES.items() if kind == rule.resource_type
    }
    return AclEntry(
        cluster=(rule.cluster,),
        principal=rule.principal,
        allow=operations if rule.permission == "ALLOW" else (),
        deny=operations if rule.permission == "DENY" else (),
        **names,
        whole_cluster=rule.resource_type == "CLUSTER",
        prefixed=rule.pattern == "PREFIXED",
        host=rule.host,
    )


def _joined(entries: list[AclEntry], key: str) -> list[AclEntry]:
    """Joins entries that differ in this key alone."""
    alike: dict[AclEntry, set[str]] = {}
    nothing: dict[str, Any] = {key: ()}
    for entry in entries:
        alike.setdefault(replace(entry, **nothing), set()).update(getattr(entry, key))
    joined: list[AclEntry] = []
    for rest, values in alike.items():
        all_of_them: dict[str, Any] = {key: tuple(sorted(values))}
        joined.append(replace(rest, **all_of_them))
    return joined


def _order(entry: AclEntry) -> tuple[object, ...]:
    resources = ((kind, names) for key, kind in RESOURCES.items() if (names := getattr(entry, key)))
    kind, names = next(resources, ("CLUSTER", ()))
    return entry.principal, kind, names, entry.cluster, bool(entry.deny), entry.host, entry.prefixed


def topic_defaults(topics: Sequence[Topic]) -> Topic:
    """Returns a topic without a name that has the most common values, if they occur at least twice.

    A setting becomes a default only if every topic has a value for it: no topic can take a default back.
    """
    if len(topics) < 2:
        return Topic("", "")
    keys = set(topics[0].config)
    for topic in topics:
        keys &= topic.config.keys()
    return Topic(
        "",
        "",
        partitions=_most(topic.partitions for topic in topics),
        replication=_most(topic.replication for topic in topics),
        config={
            key: value
            for key in sorted(keys)
            if (value := _most(topic.config[key] for topic in topics)) is not None
        },
    )


Common = TypeVar("Common", int, str)


def _most(values: Iterable[Common | None]) -> Common | None:
    """Returns the most common value, the smallest of equals; None if a topic has none, or all differ."""
    counts: Counter[Common] = Counter()
    for value in values:
        if value is None:
            return None
        counts[value] += 1
    value, count = min(counts.items(), key=lambda pair: (-pair[1], str(pair[0])))
    return value if count > 1 else None


def topic_values(topics: Iterable[Topic], defaults: Topic) -> list[dict[str, Value]]:
    """Returns the entries of topics by name, then by cluster."""
    alike: dict[tuple[object, ...], list[Topic]] = {}
    for topic in sorted(topics, key=lambda topic: (topic.name, topic.cluster)):
        same = (
            topic.name,
            topic.partitions,
            topic.replication,
            tuple(sorted(topic.config.items())),
            topic.protect,
            topic.on_remove,
        )
        alike.setdefault(same, []).append(topic)
    values = []
    for topic, *others in alike.values():
        value = values_of(topic, replace(defaults, name=topic.name, cluster=topic.cluster))
        if others:
            value["cluster"] = [topic.cluster, *(other.cluster for other in others)]
        values.append(value)
    return values


def quota_values(quotas: Iterable[Quota]) -> list[dict[str, Value]]:
    """Returns the entries of quotas by entity; equal ones of several clusters are one."""
    clusters: dict[Quota, list[str]] = {}
    for quota in sorted(quotas, key=lambda quota: (quota.entity.name, quota.cluster)):
        clusters.setdefault(replace(quota, cluster="", source=None), []).append(quota.cluster)
    entries = []
    for quota, named in clusters.items():
        value = values_of(replace(quota, cluster=named[0]))
        entries.append(value if len(named) == 1 else {**value, "cluster": named})
    return entries


def _flow_values(topology: Topology) -> list[dict[str, Value]]:
    """Returns the entries of all flows by name; those with files have only the keys of such a flow."""
    entries = {name: values_of(flow) for name, flow in topology.flows.items()}
    for name, flow in topology.file_flows.items():
        keys = LINES_FLOW_KEYS if flow.from_files else FILE_FLOW_KEYS
        entries[name] = {key: value for key, value in values_of(flow).items() if key in keys}
    return [entries[name] for name in sorted(entries)]


def topology_yaml(topology: Topology, header: Sequence[str] = (), notes: Sequence[str] = ()) -> str:
    """Returns the YAML of a topology, with comments: `header` at the beginning, `notes` at the end.

    A literal secret is never written: it becomes a reference to an environment variable.
    """
    sections = [
        [*_comments(header), f"apiVersion: {API_VERSION}", *pair("name", topology.name)],
        ["clusters:", *_named({name: values_of(cluster) for name, cluster in topology.clusters.items()})],
        *_topics(topology.topics),
        _listed("acls", acl_values(acl.rule for acl in topology.acls)),
        _listed("quotas", quota_values(topology.quotas)),
        _section("endpoints", {name: values_of(endpoint) for name, endpoint in topology.endpoints.items()}),
        _section("registries", {name: values_of(registry) for name, registry in topology.registries.items()}),
        _listed("flows", _flow_values(topology)),
        _listed("cutovers", [values_of(cutover) for cutover in topology.cutovers]),
        _jobs(topology),
        _section("internal", values_of(topology.internal)),
        _section("policies", values_of(topology.policies)),
        _section("drill", values_of(topology.drill)),
        list(_comments(notes)),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def secret_notes(cluster: Cluster) -> list[Diagnostic]:
    """Returns a warning for each literal secret, with the variable that takes its place in the text."""
    return [
        warning(
            f"{key} of {cluster.name} is a secret and not written out",
            f"set the environment variable {secret_variable(cluster.name, key)}",
        )
        for key, value in cluster.client.items()
        if isinstance(value, str) and looks_secret(key)
    ]


def _topics(topics: Sequence[Topic]) -> Iterator[list[str]]:
    defaults = topic_defaults(topics)
    shared = {key: value for key, value in values_of(defaults).items() if key not in ("name", "cluster")}
    if shared:
        yield ["defaults:", *pair("topic", shared, 2)]
    yield _listed("topics", topic_values(topics, defaults))


def _listed(key: str, values: Sequence[Value]) -> list[str]:
    if not values:
        return []
    lines = [f"{key}:"]
    for value in values:
        lines += item(value, 2)
    return lines


def _named(values: Mapping[str, Value]) -> Iterator[str]:
    for key, value in values.items():
        yield from pair(key, value, 2)


def _jobs(topology: Topology) -> list[str]:
    """Returns the jobs that have keys; every other one exists without being declared."""
    declared = {name: values for name, job in topology.jobs.items() if (values := values_of(job))}
    return ["jobs:", *_named(declared)] if declared else []


def _section(key: str, values: Mapping[str, Value]) -> list[str]:
    return list(pair(key, values)) if values else []


def _comments(lines: Iterable[str]) -> Iterator[str]:
    """Yields each text as a comment; a long one continues on indented lines."""
    for line in lines:
        parts = wrap(
            printable(line), WIDTH - 2, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )
        for part in parts or [""]:
            yield f"# {part}".rstrip()
