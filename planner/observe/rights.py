"""Asks brokers whether a principal may make, write, read and delete topics that do not exist yet.

Nothing is changed. Brokers check rights before they look for the topic, so requests that name a topic that
does not exist tell the right: an offset commit tells READ on topic and group, a produce request tells WRITE.
The controllers of Kafka in KRaft mode look for the topic before they check DELETE, so this right follows from
the ACLs. CREATE is not asked here: a plan is validated by the brokers (`verify_on_broker`).
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from planner.kafka.client import ClusterClient
from planner.kafka.failures import ClusterFailure, RequestRefused, Unreadable
from planner.kafka.principals import read_acls
from planner.model.diagnostic import Failure, error
from planner.model.topology import AclRule
from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.administration import OPERATIONS
from runtime.kafka.protocol.groups import CommittedOffset, DescribeGroupsRequest, OffsetCommitRequest
from runtime.kafka.protocol.metadata import AnyMetadataRequest, Operations
from runtime.kafka.protocol.produce import ProducePartition, ProduceRequest

USED = ("DELETE", "DESCRIBE", "READ", "WRITE")  # on a topic that is written, copied, read and deleted
_GROUP_USED = ("DELETE", "DESCRIBE", "READ")
_EVERYONE = "User:*"
_PAUSE_S = 0.25

Missing = tuple[str, str, str]  # the operation, the kind of resource, its name
Result = TypeVar("Result")


async def missing_rights(
    client: ClusterClient, topics: Sequence[str], groups: Sequence[str], principal: str, timeout_s: float
) -> list[str]:
    """Returns the rights that are missing, as `WRITE on topic NAME`; none of the topics may exist.

    `principal` is the client's, by which ACLs are read; empty where it is not known. What the brokers do not
    tell counts as allowed. Failure: the cluster does not answer, or a topic exists.
    """
    try:
        missing = await _undescribed(client, topics)
        not_writable = await _not_writable(client, topics)
        missing |= {("WRITE", "topic", topic) for topic in not_writable}
        for group in groups:
            missing |= await patiently(partial(_uncommitted, client, group, topics), timeout_s)
            missing |= await patiently(partial(_group_rights, client, group), timeout_s)
        rules = None  # without an authorizer, or without the right to see its rules
        if principal:
            with suppress(Unreadable):
                rules = await read_acls(client)
    except ClusterFailure as failure:
        raise _silent(client, failure.why) from None
    for topic in topics if rules is not None else ():
        about = [rule for rule in rules or () if rule.covers(topic)]
        if delete_is_missing(about, principal, writable=topic not in not_writable):
            missing.add(("DELETE", "topic", topic))
    return [f"{operation} on {kind} {name}" for operation, kind, name in sorted(missing)]


async def missing_on_existing(client: ClusterClient, topics: Sequence[str]) -> list[str]:
    """Returns the rights that are missing on topics that exist, as the broker tells them."""
    if not topics:
        return []
    try:
        described = (await client.ask(AnyMetadataRequest(topics, rights=True))).topics
    except ClusterFailure as failure:
        raise _silent(client, failure.why) from None
    missing = []
    for topic in sorted(described, key=lambda topic: topic.name):
        if topic.error:
            raise _silent(client, f"{topic.name}: {RequestRefused(topic.error).why}")
        missing += [f"{operation} on topic {topic.name}" for operation in not_in(topic.rights, USED)]
    return missing


async def refused_writes(client: ClusterClient, topics: Sequence[str]) -> set[str]:
    """Returns the topics that the broker refuses to let this principal write. Nothing is written."""
    try:
        return await _not_writable(client, topics)
    except ClusterFailure as failure:
        raise _silent(client, failure.why) from None


async def patiently(ask: Callable[[], Awaitable[Result]], timeout_s: float) -> Result:
    """Asks again while an error may pass: a new cluster has no coordinator of groups for some seconds."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return await ask()
        except ClusterFailure as failure:
            if not failure.transient or time.monotonic() > deadline:
                raise
        await asyncio.sleep(_PAUSE_S)


async def _undescribed(client: ClusterClient, topics: Sequence[str]) -> set[Missing]:
    missing: set[Missing] = set()
    for topic in (await client.ask(AnyMetadataRequest(topics))).topics:
        match topic.error:
            case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                pass
            case ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                # Each of the others would imply DESCRIBE.
                missing |= {(operation, "topic", topic.name) for operation in USED}
            case ErrorCode.NONE:
                raise Failure(error(f"topic {topic.name} exists at {client.name}", "run the command again"))
            case code:
                raise RequestRefused(code)
    return missing


async def _not_writable(client: ClusterClient, topics: Sequence[str]) -> set[str]:
    """Returns the topics that the broker refuses to write; the request holds no records."""
    request = ProduceRequest(None, 10_000, [ProducePartition(topic, 0, [b""]) for topic in topics])
    produced = (await client.ask(request)).partitions
    return {
        partition.topic for partition in produced if partition.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    }


async def _uncommitted(client: ClusterClient, group: str, topics: Sequence[str]) -> set[Missing]:
    """Commits offset 0 of topics that do not exist: brokers store none of these, and tell READ on both."""
    offsets = {TopicPartition(topic, 0): CommittedOffset(0) for topic in topics}
    try:
        errors = await client.ask_coordinator(group, OffsetCommitRequest(group, offsets))
    except RequestRefused as refused:
        if refused.code is ErrorCode.GROUP_AUTHORIZATION_FAILED:
            return {("READ", "group", group)}
        raise
    missing: set[Missing] = set()
    for place, code in errors.items():
        match code:
            case ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                missing.add(("READ", "topic", place.topic))
            case ErrorCode.GROUP_AUTHORIZATION_FAILED:
                missing.add(("READ", "group", group))
            case _ if RequestRefused(code).transient:
                raise RequestRefused(code)
            case _:
                pass
    return missing


async def _group_rights(client: ClusterClient, group: str) -> set[Missing]:
    """Returns what the broker does not allow on a group; it tells that of groups that do not exist too."""
    try:
        described = (await client.ask_coordinator(group, DescribeGroupsRequest([group])))[group]
    except RequestRefused as refused:
        described = refused.code
    if described is ErrorCode.GROUP_AUTHORIZATION_FAILED:
        return {(operation, "group", group) for operation in _GROUP_USED}
    if isinstance(described, ErrorCode):
        raise RequestRefused(described)
    return {(operation, "group", group) for operation in not_in(described.rights, _GROUP_USED)}


def not_in(rights: Operations | None, needed: Collection[str]) -> list[str]:
    """Returns the operations that are not allowed; none where the broker does not tell."""
    allowed = needed if rights is None else {OPERATIONS.get(number) for number in rights}
    return [operation for operation in needed if operation not in allowed]


def delete_is_missing(rules: Iterable[AclRule], principal: str, *, writable: bool) -> bool:
    """Returns whether rules about a topic forbid DELETE.

    Where the broker lets the principal write, and the rules do not allow that, they do not decide: the
    principal is a super user, or topics without rules are open.
    """
    matching = [rule for rule in rules if rule.principal in (principal, _EVERYONE)]
    decides = not writable or _allowed(matching, "WRITE")
    return decides and not _allowed(matching, "DELETE")


def _allowed(rules: Iterable[AclRule], operation: str) -> bool:
    matching = [rule for rule in rules if rule.operation in (operation, "ALL")]
    denied = any(rule.permission == "DENY" for rule in matching)
    return not denied and any(rule.permission == "ALLOW" for rule in matching)


def _silent(client: ClusterClient, why: str) -> Failure:
    what = f"the rights at {client.name} can't be read: {why}"
    return Failure(error(what, "repl doctor CLUSTER shows what is wrong"))
