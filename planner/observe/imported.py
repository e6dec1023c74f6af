"""Pure: makes a topology from what live clusters hold, and reports what was left out."""

import re
from collections.abc import Iterable, Mapping

from msgspec import structs

from planner.graph.messages import few
from planner.model.diagnostic import Diagnostic, note, warning
from planner.model.observed import (
    ClusterDetailsRequest,
    ConfigSource,
    ObservedCluster,
    ObservedTopic,
)
from planner.model.topology import QUOTA_KEYS, Acl, Cluster, Quota, QuotaEntity, Topic, Topology
from planner.model.topology.quotas import FRACTIONS, quota_of
from runtime.contract.spec.selection import regex

# Internal topics of Kafka and its tools, which are not managed by hand.
_CLUSTER_INTERNAL = re.compile(r"__.*")
# Set while replicas move, and removed afterwards.
_TEMPORARY = frozenset({"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"})
_LISTED = 50  # names in one diagnostic
# The topology language does not have these operations.
_UNKNOWN_OPERATIONS = frozenset({"TWO_PHASE_COMMIT"})


def import_request(cluster: ObservedCluster, pattern: str | None) -> ClusterDetailsRequest:
    """Returns what an import has to read of one cluster."""
    return ClusterDetailsRequest(
        configs=dict.fromkeys(_selected_topics(cluster.topics, pattern), frozenset()),
        acls=pattern is None,
        quotas=pattern is None,
        scram_users=pattern is None,
    )


def import_topology(
    name: str,
    declared: Mapping[str, Cluster],
    clusters: Iterable[ObservedCluster],
    pattern: str | None = None,
) -> tuple[Topology, list[Diagnostic]]:
    """Returns a topology with the explicitly set values only, so that planning it changes nothing.

    The diagnostics are about objects that were left out.
    """
    topics: list[Topic] = []
    acls: list[Acl] = []
    quotas: list[Quota] = []
    diagnostics: list[Diagnostic] = []
    pinned: dict[str, Cluster] = {}
    for cluster in clusters:
        chosen = _selected_topics(cluster.topics, pattern)
        topics += (
            Topic(topic.name, cluster.name, topic.partitions, topic.usual_replication, _explicit(topic))
            for topic in (cluster.topics[name] for name in chosen if name not in cluster.hidden)
        )
        acls += (Acl(rule) for rule in cluster.acls or () if rule.operation not in _UNKNOWN_OPERATIONS)
        quotas += (
            quota_of(cluster.name, entity, limits)
            for name, values in cluster.quotas.items()
            for entity in [QuotaEntity.named(name)]
            if (limits := _declarable(entity, values))
        )
        diagnostics += _left_out(cluster, pattern)
        pinned[cluster.name] = structs.replace(declared[cluster.name], id=cluster.id or None)
    return Topology(name, pinned, tuple(topics), tuple(acls), tuple(quotas)), diagnostics


def _selected_topics(names: Iterable[str], pattern: str | None) -> list[str]:
    if pattern is None:
        return sorted(name for name in names if not _CLUSTER_INTERNAL.fullmatch(name))
    wanted = regex(pattern)
    return sorted(name for name in names if wanted.matches(name))


def _explicit(topic: ObservedTopic) -> dict[str, str]:
    return {
        key: value.value
        for key, value in sorted(topic.config.items())
        if value.source is ConfigSource.TOPIC and value.value is not None and key not in _TEMPORARY
    }


def _left_out(cluster: ObservedCluster, pattern: str | None) -> Iterable[Diagnostic]:
    name = cluster.name
    if hidden := sorted(cluster.hidden):
        yield warning(
            f"not authorized to describe {len(hidden)} of {name}'s topics: {few(hidden, 5)}",
            "give the principal DESCRIBE and DESCRIBE_CONFIGS on them, then import again",
        )
    if pattern is None:
        internal = sorted(topic for topic in cluster.topics if _CLUSTER_INTERNAL.fullmatch(topic))
        if internal:
            yield note(
                f"left out {len(internal)} of {name}'s topics that begin with __: {few(internal, 5)}",
                "--topics includes them",
            )
    if "acls" in cluster.unreadable:
        yield warning(
            f"the ACLs of {name} are left out: {cluster.unreadable['acls']}",
            "give the principal DESCRIBE on the cluster, then import again",
        )
    yield from _principals(cluster)
    for rule in cluster.acls or ():
        if rule.operation in _UNKNOWN_OPERATIONS:
            yield warning(f"left out the ACL {rule.name} of {name}: {rule.operation} can't be declared")
    for topic in cluster.topics.values():
        replicas = {len(partition) for partition in topic.replicas}
        if len(replicas) > 1:
            yield warning(
                f"the partitions of {name}'s {topic.name} have "
                f"{' and '.join(map(str, sorted(replicas)))} replicas; "
                f"{topic.usual_replication} is written",
                "if they are being reassigned, wait until that ends and import again",
            )
        if _TEMPORARY & topic.config.keys():
            yield note(f"left out the replication throttles of {name}'s {topic.name}: they are temporary")


def _declarable(entity: QuotaEntity, values: Mapping[str, float]) -> dict[str, float]:
    """Returns the limits that a topology can declare: positive numbers, whole ones where Kafka wants such."""
    if (entity.user or "").startswith("User:"):
        return {}
    return {
        key: value
        for key, value in values.items()
        if key in QUOTA_KEYS and value > 0 and (key in FRACTIONS or isinstance(value, int))
    }


def _principals(cluster: ObservedCluster) -> Iterable[Diagnostic]:
    """Lists the limits that a topology can't declare, and the SCRAM users, whose secrets Kafka keeps."""
    odd = [
        f"{entity}: {key}={value:.15g}"
        for name, values in cluster.quotas.items()
        for entity in [QuotaEntity.named(name)]
        for key, value in values.items()
        if key not in _declarable(entity, values)
    ]
    if odd:
        yield warning(
            f"left out limits of {cluster.name} that a topology can't declare: {'; '.join(odd[:_LISTED])}",
            "kafka-configs.sh sets them at another cluster",
        )
    if cluster.scram_users:
        users = [f"{name} ({', '.join(mechanisms)})" for name, mechanisms in cluster.scram_users.items()]
        more = f"; and {len(users) - _LISTED} more" if len(users) > _LISTED else ""
        plural = "s" if len(users) != 1 else ""
        yield note(
            f"{cluster.name} has {len(users)} SCRAM user{plural}: {'; '.join(users[:_LISTED])}{more}",
            "each needs a new secret at another cluster: Kafka never returns secrets",
        )
    if "quotas" in cluster.unreadable:
        yield note(f"the client quotas of {cluster.name} are left out: {cluster.unreadable['quotas']}")
    if "scram" in cluster.unreadable:
        yield note(f"the SCRAM users of {cluster.name} are not listed: {cluster.unreadable['scram']}")
