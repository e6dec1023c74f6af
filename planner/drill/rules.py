"""Tries ACL rules on the copy: principals get rights, and brokers are asked which rules there are.

The job has the rights that the topology declares for it, else those that the documentation lists. Another
principal is the drill's own. It may write each protected mirror, until `protect: acl` denies it: without a
right there would be nothing to take away. It may read each topic whose rules `acls.sync` brings to mirrors.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from planner.drill.lab_copy import OTHER
from planner.drill.replica import DrillRoute, Replica
from planner.graph.job_rights import (
    EVERY,
    JobRight,
    missing_rights,
    rights_at_destination,
    rights_at_source,
)
from planner.kafka import ClusterEndpoint, run_at
from planner.model.topology import Flow
from planner.observe.rights import refused_writes
from runtime.contract.spec.acls import AclRule
from runtime.contract.spec.selection import written_out
from runtime.contract.spec.transform import quarantine_topic

GROUPS = "drill-"  # the consumer groups of the standard drill begin so
WITHIN_S = 60.0  # for brokers to know a rule
_REQUEST_S = 30.0
# The rules of a topology can't know the groups of the standard drill.
_DRILL_GROUPS = [JobRight("GROUP", GROUPS, "PREFIXED", operation) for operation in ("DESCRIBE", "READ")]
_ANY: Any = None  # as a name and a host, which librdkafka then does not filter by


def protected_routes(replica: Replica, routes: Iterable[DrillRoute]) -> list[DrillRoute]:
    """Returns those of the routes whose mirrors only the job may write."""
    flows = replica.topology.flows
    return [one for one in routes if flows[one.flow].protect == "acl" and not one.shared]


def synced_routes(replica: Replica, routes: Iterable[DrillRoute]) -> list[DrillRoute]:
    """Returns those of the routes whose mirrors get the rules of their source topics."""
    return [one for one in routes if replica.topology.flows[one.flow].acls_sync]


def grant_rights(replica: Replica, routes: Collection[DrillRoute]) -> None:
    """Lets the drill's principal read source topics, and write mirrors, where flows have a say in it."""
    wanted = {_rule(one.destination, one.mirror, "WRITE") for one in protected_routes(replica, routes)}
    wanted |= {_rule(one.source, one.topic, "READ") for one in synced_routes(replica, routes)}
    for cluster in sorted({one.cluster for one in wanted}):
        _create(replica, cluster, [one for one in wanted if one.cluster == cluster])


def grant_job_rights(replica: Replica) -> None:
    """Gives the jobs what they need beside the declared rules: the drill's groups, and rules of elsewhere.

    A rule that exists already is given again, so it may be called after each change of the topology.
    """
    for cluster, job in replica.job_logins.items():
        rules = {one.rule(cluster, job.principal) for one in _DRILL_GROUPS}
        if not job.exact:
            rules |= {one.rule(cluster, job.principal) for one in _documented_rights(replica, cluster)}
        _create(replica, cluster, rules)


def lacking(replica: Replica, cluster: str, rights: Iterable[JobRight]) -> list[JobRight]:
    """Returns which of the rights the cluster's rules do not give to its job."""
    job = replica.job_logins[cluster]
    given = {one.rule(cluster, job.principal) for one in _DRILL_GROUPS}
    return missing_rights(
        rights,
        [one for one in _rules_at(replica, cluster) if one not in given],
        job.principal,
        open_without_rules=replica.topology.clusters[cluster].allow_everyone_if_no_acl_found,
    )


def rights_needed(flow: Flow, routes: Iterable[DrillRoute]) -> dict[str, list[JobRight]]:
    """Returns what the job of a flow needs for these routes of it, by cluster."""
    found: dict[str, list[JobRight]] = {}
    for one in routes:
        mirrors = [one.mirror, quarantine_topic(one.mirror)] if flow.quarantines else [one.mirror]
        found.setdefault(one.source, []).extend(rights_at_source(flow, [one.topic]))
        found.setdefault(one.destination, []).extend(rights_at_destination(flow, mirrors))
    return found


def _documented_rights(replica: Replica, cluster: str) -> Iterator[JobRight]:
    """Yields the rights of both roles for the topics of a cluster's flows: a failback turns the roles."""
    flows = replica.topology.flows.values()
    part = [one for one in flows if cluster in (one.source_cluster, one.destination_cluster)]
    topics = {one.topic for one in replica.routes if one.source == cluster}
    topics |= {one.mirror for one in replica.routes if one.destination == cluster}
    if replica.topology.file_flows or any(
        written_out(entry) is None for flow in part for entry in flow.topics.include
    ):
        topics = {EVERY}
    for flow in part:
        quarantines = {quarantine_topic(one) for one in topics - {EVERY}} if flow.quarantines else set()
        yield from rights_at_source(flow, topics)
        yield from rights_at_destination(flow, topics | quarantines)


def _rules_at(replica: Replica, cluster: str) -> list[AclRule]:
    admin = AdminClient({**replica.client(cluster), "log_level": 0})
    every = AclBindingFilter(
        ResourceType.ANY, _ANY, ResourcePatternType.ANY, _ANY, _ANY, AclOperation.ANY, AclPermissionType.ANY
    )
    return [
        AclRule(
            cluster,
            "CLUSTER" if one.restype is ResourceType.BROKER else one.restype.name,
            one.name,
            "PREFIXED" if one.resource_pattern_type is ResourcePatternType.PREFIXED else "LITERAL",
            one.principal,
            one.host,
            one.operation.name,
            "DENY" if one.permission_type is AclPermissionType.DENY else "ALLOW",
        )
        for one in admin.describe_acls(every).result(_REQUEST_S)
    ]


def _create(replica: Replica, cluster: str, rules: Iterable[AclRule]) -> None:
    admin = AdminClient({**replica.client(cluster), "log_level": 0})
    for made in admin.create_acls([_binding(one) for one in rules]).values():
        made.result(_REQUEST_S)


def _binding(rule: AclRule) -> AclBinding:
    return AclBinding(
        ResourceType.BROKER if rule.resource_type == "CLUSTER" else ResourceType[rule.resource_type],
        rule.resource,
        ResourcePatternType[rule.pattern],
        rule.principal,
        rule.host,
        AclOperation[rule.operation],
        AclPermissionType[rule.permission],
    )


def writable(replica: Replica, cluster: str, topics: Collection[str]) -> set[str]:
    """Returns the topics of a cluster that the drill's principal may write."""
    client = replica.client(cluster, OTHER)
    endpoint = ClusterEndpoint(cluster, client.pop("bootstrap.servers"), client)
    refused = run_at(endpoint, lambda client: refused_writes(client, sorted(topics)), _REQUEST_S)
    return set(topics) - refused


def readable(replica: Replica, cluster: str, topics: Collection[str]) -> set[str]:
    """Returns the topics of a cluster with a rule that lets the drill's principal read them."""
    admin = AdminClient({**replica.client(cluster), "log_level": 0})
    wanted = AclBindingFilter(
        ResourceType.TOPIC,
        _ANY,
        ResourcePatternType.LITERAL,
        f"User:{OTHER}",
        _ANY,
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    return {one.name for one in admin.describe_acls(wanted).result(_REQUEST_S)} & set(topics)


def _rule(cluster: str, topic: str, operation: str) -> AclRule:
    return AclRule(cluster, "TOPIC", topic, "LITERAL", f"User:{OTHER}", "*", operation, "ALLOW")
