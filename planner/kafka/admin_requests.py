"""Sends the admin requests that librdkafka lacks: client quotas, SCRAM users, and moves of replicas.

They go through the Kafka client (`runtime.kafka`). Failures of `alter_quotas` and `quotas_at_each_broker` are
those of librdkafka, KafkaException, so that they are sent again and shown alike.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException

from planner.kafka.clients import ClusterEndpoint
from planner.kafka.connection_errors import Closed, NoAnswer, NoConnection, Unreadable, WireFailure, meaning
from planner.kafka.connections import BlockingConnection, Session
from planner.model.observed import ScramUser
from planner.model.topology import QuotaEntity
from planner.model.topology.quotas import DEFAULT_ENTITY, entity_of, number
from runtime.contract.client.secrets import redacted
from runtime.contract.client.settings import ClientSettingsError, wire_settings
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.administration import (
    AlterClientQuotasRequest,
    AlterReassignmentsRequest,
    DescribeClientQuotasRequest,
    DescribeScramRequest,
    QuotaAlteration,
    QuotaEntry,
    Refusal,
)
from runtime.kafka.protocol.metadata import AnyMetadataRequest
from runtime.kafka.protocol.offsets import TopicPartition

TIMEOUT_S = 10.0
_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_DIAL_S = 5.0

Limits = Mapping[str, float]


class LimitsChange(NamedTuple):
    """The limits of one entity that are set, and those that are removed."""

    entity: QuotaEntity
    set: Limits
    unset: Sequence[str]


def read_quotas(connection: BlockingConnection, cluster: str) -> dict[QuotaEntity, Limits]:
    """Returns the limits of each entity. Raises Unreadable without the right, and before Kafka 2.6."""
    if DescribeClientQuotasRequest.API not in connection.versions:
        raise Unreadable(f"{connection.where} does not list client quotas: it is older than Kafka 2.6")
    answer = connection.call(DescribeClientQuotasRequest())
    if answer.error:
        raise Unreadable(
            f"not authorized to describe the client quotas of {cluster} ({meaning(answer.error)})",
            "it needs DESCRIBE_CONFIGS on the cluster",
        )
    return quotas_of(answer.entries, cluster)


def quotas_of(entries: Iterable[QuotaEntry], cluster: str) -> dict[QuotaEntity, Limits]:
    """Returns the limits of each entity, sorted. Entities of types that are no client's are left out."""
    found: dict[QuotaEntity, Limits] = {}
    for one in entries:
        # A user that is really named <default> can't be told from the default in a topology.
        if DEFAULT_ENTITY in one.entity.values():
            continue
        parts = {kind: DEFAULT_ENTITY if name is None else name for kind, name in one.entity.items()}
        entity = entity_of(parts)
        if entity is not None and one.values:
            try:
                found[entity] = {key: number(value) for key, value in sorted(one.values.items())}
            except ValueError as wrong:
                raise Unreadable(f"the client quotas of {cluster} can't be read: {wrong}") from None
    return dict(sorted(found.items(), key=lambda pair: pair[0].name))


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


def alter_quotas(
    endpoint: ClusterEndpoint,
    changes: Sequence[LimitsChange],
    *,
    validate_only: bool = False,
    timeout_s: float = TIMEOUT_S,
) -> list[KafkaException | None]:
    """Alters client quotas and returns the refusal of each change, None for one that was accepted.

    With `validate_only` the brokers check and change nothing. Raises KafkaException where none answers.
    """
    asked = [QuotaAlteration(_parts(one.entity), one.set, one.unset) for one in changes]
    with _session(endpoint, timeout_s) as session:
        answer = session.ask(lambda one: one.call(AlterClientQuotasRequest(asked, validate_only)))
    refusals = (answer.refused.get(frozenset(one.entity.items())) for one in asked)
    return [
        None
        if one is None
        else KafkaException(KafkaError(one.error, one.message or meaning(one.error), retriable=False))
        for one in refusals
    ]


def quotas_at_each_broker(
    endpoint: ClusterEndpoint, timeout_s: float = TIMEOUT_S
) -> dict[int, Mapping[QuotaEntity, Limits]]:
    """Returns the limits that each live broker shows, by its id. Raises KafkaException where none answers."""
    found: dict[int, Mapping[QuotaEntity, Limits]] = {}
    with _session(endpoint, timeout_s) as session:
        for broker in session.ask(lambda one: one.call(AnyMetadataRequest(()))).brokers:
            try:
                connection = session.dial((broker.host, broker.port), _DIAL_S)
            except (Closed, NoAnswer, NoConnection):
                continue  # a broker that is down reads the quotas when it starts again
            try:
                found[broker.node_id] = read_quotas(connection, endpoint.cluster)
            finally:
                connection.close()
    return found


def _parts(entity: QuotaEntity) -> dict[str, str | None]:
    return {kind: None if name == DEFAULT_ENTITY else name for kind, name in entity.parts.items()}


@contextmanager
def _session(endpoint: ClusterEndpoint, timeout_s: float) -> Iterator[Session]:
    try:
        settings = wire_settings(endpoint.bootstrap, endpoint.settings, endpoint.token_command)
        session = Session(settings, timeout_s)
    except ClientSettingsError as wrong:
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, str(wrong))) from None
    except WireFailure as failure:
        raise _raised(failure) from None
    try:
        yield session
    except WireFailure as failure:
        raise _raised(failure) from None
    finally:
        session.close()


def _raised(failure: WireFailure) -> KafkaException:
    """Maps a failure. A refused login stays refused; a broker that does not answer may recover."""
    passing = isinstance(failure, Closed | NoAnswer | NoConnection)
    why = f"{failure.why}; {failure.way_out}" if failure.way_out else failure.why
    return KafkaException(KafkaError(KafkaError._TRANSPORT if passing else KafkaError._FAIL, why))


class ReassignmentFailure(Exception):
    """Says why replicas are not moved. `transient`: the same request may succeed later."""

    def __init__(self, why: str, *, transient: bool = False) -> None:
        super().__init__(redacted(why))
        self.transient = transient


def move_replicas(
    endpoint: ClusterEndpoint, replicas: Mapping[tuple[str, int], Sequence[int]], timeout_s: float = TIMEOUT_S
) -> None:
    """Sends the reassignment and returns when the controller took it; the brokers then copy.

    `replicas` are by topic and partition, the preferred leader first. Raises ReassignmentFailure. If the
    controller refuses one partition, the request fails, and the others may have been taken.
    """
    try:
        settings = wire_settings(endpoint.bootstrap, endpoint.settings, endpoint.token_command)
        session = Session(settings, timeout_s)
    except ClientSettingsError as wrong:
        raise ReassignmentFailure(str(wrong)) from None
    except WireFailure as failure:
        raise _failure(failure) from None
    try:
        cluster = session.ask(lambda connection: connection.call(AnyMetadataRequest(())))
        addresses = {one.node_id: (one.host, one.port) for one in cluster.brokers}
        if cluster.controller not in addresses:
            raise ReassignmentFailure(f"{endpoint.cluster} has no controller at present", transient=True)
        controller = session.dial(addresses[cluster.controller], timeout_s)
        wanted = {TopicPartition(*place): brokers for place, brokers in replicas.items()}
        answer = controller.call(AlterReassignmentsRequest(wanted, int(timeout_s * 1000)))
    except WireFailure as failure:
        raise _failure(failure) from None
    finally:
        session.close()
    if answer.refusal is not None:
        raise ReassignmentFailure(_describe(answer.refusal), transient=answer.refusal.error.retriable)
    for place, refusal in answer.refused.items():
        why = f"partition {place.partition} of {place.topic}: {_describe(refusal)}"
        raise ReassignmentFailure(why, transient=refusal.error.retriable)


def _describe(refusal: Refusal) -> str:
    return meaning(refusal.error, refusal.message)


def _failure(failure: WireFailure) -> ReassignmentFailure:
    """Maps a failure. A refused login or setting stays refused; a broker that does not answer may recover."""
    why = f"{failure.why}; {failure.way_out}" if failure.way_out else failure.why
    return ReassignmentFailure(why, transient=isinstance(failure, Closed | NoAnswer | NoConnection))
