"""Asks brokers whether a principal may make, write, read and delete topics that do not exist yet.

Nothing is changed. Brokers check rights before they look for the topic, so requests that name a topic that
does not exist tell the right: an offset commit tells READ on topic and group, a produce request tells WRITE.
The controllers of Kafka in KRaft mode look for the topic before they check DELETE, so this right follows from
the ACLs. CREATE is not asked here: a plan is validated by the brokers (`verify_on_broker`).
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from planner.kafka import ClusterEndpoint, admin, explain, is_transient
from planner.kafka.clients import error_of
from planner.kafka.connection_errors import WireFailure
from planner.kafka.connections import Session
from planner.model.diagnostic import Failure, error
from runtime.contract.client.settings import wire_settings
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.produce import ProducePartition, ProduceRequest

USED = ("DELETE", "DESCRIBE", "READ", "WRITE")  # on a topic that is written, copied, read and deleted
_GROUP_USED = ("DELETE", "DESCRIBE", "READ")
_EVERYONE = "User:*"
_MORE_S = 5.0
_PAUSE_S = 0.25
_ANY: Any = None  # as a principal and a host, which librdkafka then does not filter by


def missing_rights(
    endpoint: ClusterEndpoint, topics: Sequence[str], groups: Sequence[str], principal: str, timeout_s: float
) -> list[str]:
    """Returns the rights that are missing, as `WRITE on topic NAME`; none of the topics may exist.

    `principal` is the client's, by which ACLs are read; empty where it is not known. What the brokers do not
    tell counts as allowed. Failure: the cluster does not answer, or a topic exists.
    """
    client = admin(endpoint)  # lives until the answers are there
    try:
        missing = _patiently(partial(_undescribed, client, endpoint, topics, timeout_s), timeout_s)
        writable = set(topics) - _not_writable(endpoint, topics, timeout_s)
        missing |= {("WRITE", "topic", topic) for topic in topics if topic not in writable}
        for group in groups:
            missing |= _patiently(partial(_uncommitted, client, group, topics, timeout_s), timeout_s)
            missing |= _patiently(partial(_group_rights, client, group, timeout_s), timeout_s)
        missing |= {
            ("DELETE", "topic", topic)
            for topic in topics
            if _no_delete(client, topic, principal, timeout_s, writable=topic in writable)
        }
    except KafkaException as failure:
        raise _silent(endpoint, explain(failure)) from None
    except WireFailure as failure:
        raise _silent(endpoint, failure.why) from None
    return [f"{operation} on {kind} {name}" for operation, kind, name in sorted(missing)]


def missing_on_existing(endpoint: ClusterEndpoint, topics: Sequence[str], timeout_s: float) -> list[str]:
    """Returns the rights that are missing on topics that exist, as the broker tells them."""
    client = admin(endpoint)
    asked = client.describe_topics(
        TopicCollection(list(topics)), include_authorized_operations=True, request_timeout=timeout_s
    )
    found = []
    for topic, answer in sorted(asked.items()):
        try:
            allowed = answer.result(timeout_s + _MORE_S).authorized_operations
        except KafkaException as failure:
            raise _silent(endpoint, f"{topic}: {explain(failure)}") from None
        names = {one.name for one in allowed or ()}
        found += [f"{one} on topic {topic}" for one in USED if allowed is not None and one not in names]
    return found


Missing = tuple[str, str, str]  # the operation, the kind of resource, its name


def _patiently(ask: Callable[[], Iterator[Missing]], timeout_s: float) -> set[Missing]:
    """Asks again while an error may pass: a new cluster has no coordinator of groups for some seconds."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return set(ask())
        except KafkaException as failure:
            if not is_transient(failure) or time.monotonic() > deadline:
                raise
        time.sleep(_PAUSE_S)


def _undescribed(
    client: AdminClient, endpoint: ClusterEndpoint, topics: Sequence[str], timeout_s: float
) -> Iterator[Missing]:
    asked = client.describe_topics(TopicCollection(list(topics)), request_timeout=timeout_s)
    for topic, answer in asked.items():
        try:
            answer.result(timeout_s + _MORE_S)
        except KafkaException as failure:
            match _code(failure):
                case KafkaError.UNKNOWN_TOPIC_OR_PART:
                    continue
                case KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    # Each of the others would imply DESCRIBE.
                    yield from ((one, "topic", topic) for one in USED)
                case _:
                    raise
        else:
            raise Failure(error(f"topic {topic} exists at {endpoint.cluster}", "run the command again"))


def refused_writes(endpoint: ClusterEndpoint, topics: Sequence[str], timeout_s: float) -> set[str]:
    """Returns the topics that the broker refuses to let this principal write. Nothing is written."""
    try:
        return _not_writable(endpoint, topics, timeout_s)
    except WireFailure as failure:
        raise _silent(endpoint, failure.why) from None


def _not_writable(endpoint: ClusterEndpoint, topics: Sequence[str], timeout_s: float) -> set[str]:
    """Returns the topics that the broker refuses to write; the request holds no records."""
    settings = wire_settings(endpoint.bootstrap, endpoint.settings, endpoint.token_command)
    session = Session(settings, timeout_s)
    request = ProduceRequest(
        None, int(timeout_s * 1000), [ProducePartition(topic, 0, [b""]) for topic in topics]
    )
    try:
        answer = session.ask(lambda connection: connection.call(request))
    finally:
        session.close()
    return {one.topic for one in answer.partitions if one.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED}


def _uncommitted(
    client: AdminClient, group: str, topics: Sequence[str], timeout_s: float
) -> Iterator[Missing]:
    """Commits offset 0 of topics that do not exist: brokers store none of these, and tell READ on both."""
    asked = [ConsumerGroupTopicPartitions(group, [Place(topic, 0, 0) for topic in topics])]
    for answer in client.alter_consumer_group_offsets(asked, request_timeout=timeout_s).values():
        try:
            places = answer.result(timeout_s + _MORE_S).topic_partitions or []
        except KafkaException as failure:
            match _code(failure):
                case KafkaError.GROUP_AUTHORIZATION_FAILED:
                    yield "READ", "group", group
                case KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    yield from (("READ", "topic", topic) for topic in topics)
                case KafkaError.UNKNOWN_TOPIC_OR_PART:
                    pass
                case _:
                    raise
            continue
        for place in places:
            code = place.error.code() if place.error is not None else None
            if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                yield "READ", "topic", place.topic
            elif code == KafkaError.GROUP_AUTHORIZATION_FAILED:
                yield "READ", "group", group


def _group_rights(client: AdminClient, group: str, timeout_s: float) -> Iterator[Missing]:
    """Yields what the broker does not allow on a group; it tells that of groups that do not exist too."""
    asked = client.describe_consumer_groups(
        [group], include_authorized_operations=True, request_timeout=timeout_s
    )
    for answer in asked.values():
        try:
            allowed = answer.result(timeout_s + _MORE_S).authorized_operations
        except KafkaException as failure:
            match _code(failure):
                case KafkaError.GROUP_AUTHORIZATION_FAILED:
                    yield from ((one, "group", group) for one in _GROUP_USED)
                case KafkaError.GROUP_ID_NOT_FOUND:
                    pass
                case _:
                    raise
            continue
        if allowed is not None:
            names = {one.name for one in allowed}
            yield from ((one, "group", group) for one in _GROUP_USED if one not in names)


def _no_delete(client: AdminClient, topic: str, principal: str, timeout_s: float, *, writable: bool) -> bool:
    """Returns whether ACLs forbid to delete a topic. `writable`: the broker lets the principal write it."""
    if not principal:
        return False
    wanted = AclBindingFilter(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.MATCH,
        _ANY,
        _ANY,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    try:
        found = client.describe_acls(wanted, request_timeout=timeout_s).result(timeout_s + _MORE_S)
    except KafkaException:
        return False  # no authorizer, or no right to see its rules
    return delete_is_missing(found, principal, writable=writable)


def delete_is_missing(rules: Iterable[AclBinding], principal: str, *, writable: bool) -> bool:
    """Returns whether rules forbid DELETE.

    Where the broker lets the principal write, and the rules do not allow that, they do not decide: the
    principal is a super user, or topics without rules are open.
    """
    own = [one for one in rules if one.principal in (principal, _EVERYONE)]
    decides = not writable or _allowed(own, AclOperation.WRITE)
    return decides and not _allowed(own, AclOperation.DELETE)


def _allowed(rules: Iterable[AclBinding], operation: AclOperation) -> bool:
    matching = [one for one in rules if one.operation in (operation, AclOperation.ALL)]
    denied = any(one.permission_type is AclPermissionType.DENY for one in matching)
    return not denied and any(one.permission_type is AclPermissionType.ALLOW for one in matching)


def _code(failure: KafkaException) -> int | None:
    found = error_of(failure)
    return None if found is None else found.code()


def _silent(endpoint: ClusterEndpoint, why: str) -> Failure:
    return Failure(
        error(
            f"the rights at {endpoint.cluster} can't be read: {why}",
            "repl doctor CLUSTER shows what is wrong",
        )
    )
