"""Tries ACL rules on the copy: a principal of the drill gets rights, and brokers are asked what it may do.

Without a right there would be nothing to take away: the principal may write each protected mirror, until
`protect: acl` denies it, and it may read each topic whose rules `acls.sync` brings to the mirror.
"""

from collections.abc import Collection, Iterable
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
from planner.kafka import ClusterEndpoint
from planner.model.topology import Protect
from planner.observe.rights import refused_writes

WITHIN_S = 60.0  # for brokers to know a rule
_REQUEST_S = 30.0
_ANY: Any = None  # as a name and a host, which librdkafka then does not filter by


def protected_routes(replica: Replica, routes: Iterable[DrillRoute]) -> list[DrillRoute]:
    """Returns those of the routes whose mirrors only the job may write."""
    flows = replica.topology.flows
    return [one for one in routes if flows[one.flow].protect is Protect.ACL and not one.shared]


def synced_routes(replica: Replica, routes: Iterable[DrillRoute]) -> list[DrillRoute]:
    """Returns those of the routes whose mirrors get the rules of their source topics."""
    return [one for one in routes if replica.topology.flows[one.flow].acls_sync]


def grant_rights(replica: Replica, routes: Collection[DrillRoute]) -> None:
    """Lets the drill's principal read source topics, and write mirrors, where flows have a say in it."""
    wanted = {
        (one.destination, _rule(one.mirror, AclOperation.WRITE)) for one in protected_routes(replica, routes)
    }
    wanted |= {(one.source, _rule(one.topic, AclOperation.READ)) for one in synced_routes(replica, routes)}
    for cluster in sorted({cluster for cluster, _ in wanted}):
        admin = AdminClient({**replica.client(cluster), "log_level": 0})
        for one in admin.create_acls([rule for at, rule in wanted if at == cluster]).values():
            one.result(_REQUEST_S)


def writable(replica: Replica, cluster: str, topics: Collection[str]) -> set[str]:
    """Returns the topics of a cluster that the drill's principal may write."""
    client = replica.client(cluster, OTHER)
    endpoint = ClusterEndpoint(cluster, client.pop("bootstrap.servers"), client)
    return set(topics) - refused_writes(endpoint, sorted(topics), _REQUEST_S)


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


def _rule(topic: str, operation: AclOperation) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        f"User:{OTHER}",
        "*",
        operation,
        AclPermissionType.ALLOW,
    )
