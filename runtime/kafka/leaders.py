"""This module groups partitions by leader, and sends requests about many partitions to their leaders."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Generic, NamedTuple, TypeVar

from msgspec import Struct

from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.cluster import CONTROL, KafkaCluster
from runtime.kafka.errors import AuthenticationFailed, ConnectionFailure, ErrorCode, Unsupported
from runtime.kafka.protocol.metadata import NO_LEADER, TopicMetadata
from runtime.kafka.protocol.request import Request
from runtime.kafka.timing import Gathered, in_time, jittered

Q = TypeVar("Q")
A = TypeVar("A")

DEFAULT_S = 10.0
_TOGETHER = 10_000  # partitions of several callers in one request
UNANSWERED = frozenset({ErrorCode.NETWORK_EXCEPTION, ErrorCode.SASL_AUTHENTICATION_FAILED})
"""The codes of partitions whose leader could not be asked."""
_GONE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class LeaderGroups(NamedTuple):
    """The partitions of each leader, in the given order, and the errors of partitions without a leader."""

    by_node: dict[int, list[TopicPartition]]
    errors: dict[TopicPartition, ErrorCode]


def group_by_leader(
    topics: Mapping[str, TopicMetadata], partitions: Iterable[TopicPartition]
) -> LeaderGroups:
    """Groups partitions by the leader that the metadata name; each is in one group or has an error."""
    groups = LeaderGroups({}, {})
    for at in partitions:
        topic = topics.get(at.topic)
        if topic is None or topic.error or at.partition not in topic.partitions:
            groups.errors[at] = (topic.error if topic else None) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif (leader := topic.partitions[at.partition].leader) == NO_LEADER:
            groups.errors[at] = ErrorCode.LEADER_NOT_AVAILABLE
        else:
            groups.by_node.setdefault(leader, []).append(at)
    return groups


Answers = Mapping[TopicPartition, A | ErrorCode]


async def by_leader(
    cluster: KafkaCluster,
    questions: Mapping[TopicPartition, Q],
    request: Callable[[Mapping[TopicPartition, Q]], Request[Answers[A]]],
    kind: Hashable,
    within: float,
) -> dict[TopicPartition, A | ErrorCode]:
    """Sends the request to each partition's leader, to all at once, within the given time.

    A leader that fails delays the other partitions no longer than that. A broker that can't be reached is
    NETWORK_EXCEPTION for its partitions, and a failed login, or an identity that TLS does not verify, is
    SASL_AUTHENTICATION_FAILED. Callers that wait for the same broker at the same time, with requests of the
    same `kind`, share a request.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    answers: dict[TopicPartition, A | ErrorCode] = {}
    left = dict(questions)
    fresh = False
    pause = 0.02
    while left:
        names = {key.topic for key in left}
        try:
            topics = await in_time(cluster.topics(names, fresh), deadline - loop.time(), "asking for leaders")
        except ConnectionFailure:
            if not answers:
                raise
            break  # the partitions that are left keep their last error
        groups = group_by_leader(topics, left)
        answers.update(groups.errors)
        remaining = max(0.001, deadline - loop.time())
        asking = (
            _ask(cluster, node, request, kind, {at: left[at] for at in some}, remaining)
            for node, some in groups.by_node.items()
        )
        for some in await asyncio.gather(*asking):
            answers.update(some)
        codes = {key: code for key in left if isinstance(code := answers[key], ErrorCode)}
        # A missing topic is final, because only the caller knows whether it will be created.
        left = {key: questions[key] for key, code in codes.items() if code.retriable and code not in _GONE}
        if not left or loop.time() + pause >= deadline:
            break
        await asyncio.sleep(jittered(pause))
        pause = min(1.0, pause * 2)
        fresh = True
    return answers


class _Question(Struct, Generic[Q], frozen=True, eq=False):
    """A question about one partition, and the seconds that its caller waits, which make no difference."""

    about: Q
    within: float

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Question) and self.about == other.about

    __hash__ = None  # type: ignore[assignment]


async def _ask(
    cluster: KafkaCluster,
    node: int,
    request: Callable[[Mapping[TopicPartition, Q]], Request[Answers[A]]],
    kind: Hashable,
    queries: Mapping[TopicPartition, Q],
    within: float,
) -> dict[TopicPartition, A | ErrorCode]:
    async def send(questions: dict[TopicPartition, _Question[Q]]) -> Answers[A]:
        """Sends the questions of all callers in one request."""
        longest = max(DEFAULT_S, *(question.within for question in questions.values()))
        abouts = {at: question.about for at, question in questions.items()}
        return await cluster.call(node, request(abouts), CONTROL, longest)

    gathered = cluster.gathered.setdefault((node, kind), Gathered(send, _TOGETHER, resend=True))
    mine = {at: _Question(about, within) for at, about in queries.items()}
    try:
        response = await in_time(gathered.ask(mine), within, f"asking broker {node}")
    except ConnectionFailure:
        return dict.fromkeys(queries, ErrorCode.NETWORK_EXCEPTION)
    except AuthenticationFailed:
        return dict.fromkeys(queries, ErrorCode.SASL_AUTHENTICATION_FAILED)
    except Unsupported:
        return dict.fromkeys(queries, ErrorCode.UNSUPPORTED_VERSION)
    return {at: response.get(at, ErrorCode.UNKNOWN_SERVER_ERROR) for at in queries}
