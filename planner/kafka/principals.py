"""ACL rules, client quotas and SCRAM users: read from a cluster, and named as a topology names them."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from planner.kafka.client import BrokerConnection, ClusterClient
from planner.kafka.failures import TooOld, Unreadable, meaning
from planner.model.topology import AclRule, QuotaEntity
from planner.model.topology.quotas import DEFAULT_ENTITY, entity_of, number
from runtime.kafka.errors import ErrorCode, Refusal
from runtime.kafka.protocol.administration import (
    DescribeAclsRequest,
    DescribeClientQuotasRequest,
    DescribeScramRequest,
    QuotaEntry,
)

_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}

Limits = Mapping[str, float]
Answer = TypeVar("Answer")


def _allowed(answer: Answer | Refusal, client: ClusterClient, what: str, right: str = "DESCRIBE") -> Answer:
    """Returns the answer. Raises Unreadable where the principal lacks the right."""
    if isinstance(answer, Refusal):
        raise Unreadable(
            f"not authorized to describe the {what} of {client.name} ({meaning(answer.error)})",
            f"it needs {right} on the cluster",
        )
    return answer


async def read_acls(
    client: ClusterClient, broker: BrokerConnection | None = None
) -> tuple[AclRule, ...] | None:
    """Returns the rules, sorted, as any broker shows them, or as this one does.

    Rules of unknown kinds are left out. None if the cluster has no authorizer.
    """
    request = DescribeAclsRequest()
    answer = await (client.ask(request) if broker is None else broker.call(request))
    if isinstance(answer, Refusal) and answer.error is ErrorCode.SECURITY_DISABLED:
        return None
    rules = (binding.rule(client.name) for binding in _allowed(answer, client, "ACLs"))
    return tuple(sorted(rule for rule in rules if rule is not None))


async def read_quotas(
    client: ClusterClient, broker: BrokerConnection | None = None
) -> dict[QuotaEntity, Limits]:
    """Returns the limits of each entity, as any broker shows them, or as this one does.

    Raises Unreadable without the right, and before Kafka 2.6.
    """
    request = DescribeClientQuotasRequest()
    try:
        answer = await (client.ask(request) if broker is None else broker.call(request))
    except TooOld as failure:
        raise Unreadable(f"{failure.where} does not list client quotas: it is older than Kafka 2.6") from None
    return quotas_of(_allowed(answer, client, "client quotas", "DESCRIBE_CONFIGS"), client.name)


def quotas_of(entries: Iterable[QuotaEntry], cluster: str) -> dict[QuotaEntity, Limits]:
    """Returns the limits of each entity, sorted. Entities of types that are no client's are left out."""
    quotas: dict[QuotaEntity, Limits] = {}
    for entry in entries:
        # A user that is really named <default> can't be told from the default in a topology.
        if DEFAULT_ENTITY in entry.entity.values():
            continue
        parts = {kind: DEFAULT_ENTITY if name is None else name for kind, name in entry.entity.items()}
        entity = entity_of(parts)
        if entity is not None and entry.values:
            try:
                quotas[entity] = {key: number(value) for key, value in sorted(entry.values.items())}
            except ValueError as wrong:
                raise Unreadable(f"the client quotas of {cluster} can't be read: {wrong}") from None
    return dict(sorted(quotas.items(), key=lambda pair: pair[0].name))


def kafka_entity(entity: QuotaEntity) -> dict[str, str | None]:
    """Returns the parts of an entity as Kafka's requests have them: None is the default of its type."""
    return {kind: None if name == DEFAULT_ENTITY else name for kind, name in entity.parts.items()}


async def read_scram_users(client: ClusterClient) -> dict[str, tuple[str, ...]]:
    """Returns the mechanisms of each user with SCRAM credentials, sorted. Kafka never returns their secrets.

    Raises Unreadable without the right, and before Kafka 2.7.
    """
    try:
        answer = await client.ask(DescribeScramRequest())
    except TooOld as failure:
        raise Unreadable(f"{failure.where} does not list SCRAM users: it is older than Kafka 2.7") from None
    return {
        user.name: tuple(_MECHANISMS.get(kind, f"mechanism {kind}") for kind in sorted(user.iterations))
        for user in sorted(_allowed(answer, client, "SCRAM users"), key=lambda user: user.name)
        if user.error is ErrorCode.NONE
    }
