"""Reads the client quotas and the SCRAM users of a cluster."""

from planner.kafka.connections import BlockingConnection
from planner.kafka.errors import Unreadable, meaning
from planner.model.observed import ClientQuota, ScramUser
from runtime.kafka.codes import ErrorCode
from runtime.kafka.protocol.administration import DescribeClientQuotasRequest, DescribeScramRequest

_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


def read_quotas(connection: BlockingConnection, cluster: str) -> tuple[ClientQuota, ...]:
    """Returns the client quotas, sorted. Raises Unreadable without the right, and before Kafka 2.6."""
    if DescribeClientQuotasRequest.API not in connection.versions:
        raise Unreadable(f"{connection.where} does not list client quotas: it is older than Kafka 2.6")
    answer = connection.call(DescribeClientQuotasRequest())
    if answer.error:
        raise Unreadable(
            f"not authorized to describe the client quotas of {cluster} ({meaning(answer.error)})",
            "it needs DESCRIBE_CONFIGS on the cluster",
        )
    found = (
        ClientQuota(tuple(sorted(one.entity.items())), dict(sorted(one.values.items())))
        for one in answer.entries
    )
    return tuple(sorted(found, key=lambda quota: quota.name))


def read_scram_users(connection: BlockingConnection, cluster: str) -> tuple[ScramUser, ...]:
    """Returns the users with SCRAM credentials, sorted. Kafka never returns their secrets.

    Raises Unreadable without the right, and before Kafka 2.7.
    """
    if DescribeScramRequest.API not in connection.versions:
        raise Unreadable(f"{connection.where} does not list SCRAM users: it is older than Kafka 2.7")
    answer = connection.call(DescribeScramRequest())
    if answer.error:
        raise Unreadable(
            f"not authorized to describe the SCRAM users of {cluster} ({meaning(answer.error)})",
            "it needs DESCRIBE on the cluster",
        )
    return tuple(
        ScramUser(
            one.name, tuple(_MECHANISMS.get(kind, f"mechanism {kind}") for kind in sorted(one.iterations))
        )
        for one in sorted(answer.users, key=lambda user: user.name)
        if one.error is ErrorCode.NONE
    )
