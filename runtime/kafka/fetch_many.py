"""This module fetches several partitions of one broker in one request, without a fetch session."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from runtime.contract.spec.naming import TopicPartition, is_other_topic
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.connection import MOST_THROTTLED_S
from runtime.kafka.errors import BrokerError, ErrorCode, WireError
from runtime.kafka.protocol.fetch import (
    NO_SESSION,
    NO_SESSION_EPOCH,
    FetchedPartition,
    FetchedTopic,
    FetchFrom,
    FetchRequest,
    FetchResponse,
    Isolation,
)

_BATCH_START = struct.Struct(">qi")  # the base offset, and the bytes that follow these fields


async def fetch_many(
    cluster: KafkaCluster,
    node: int,
    starts: Mapping[TopicPartition, FetchFrom],
    purpose: str,
    *,
    topic_ids: Mapping[TopicPartition, bytes],
    isolation: Isolation,
    wait_ms: int = 0,
    within: float | None,
) -> dict[TopicPartition, FetchedPartition]:
    """Fetches partitions of one broker: returns what exists, at once or after `wait_ms` without new records.

    The response has at most the sum of all `FetchFrom.max_bytes`, or one batch: a broker ignores the limits
    only for the first partition with records. The result lacks a partition whose first batch has no room:
    fetch that one again with others that are fewer. It has the first partition in any case, and the own error
    of each partition that has one.

    `topic_ids` are the topics to read, although other topics may have their names by now. Raises WireError.
    After either error, unless a quota caused it, the leader is looked up before its next use.

    A client over its quota gets only a throttle time, which `within` does not count. The next request then
    wants half as many bytes: where others use the quota too, a smaller response passes sooner.
    """
    wanted = dict(starts)
    throttled_ms = 0
    while throttled_ms < MOST_THROTTLED_S * 1000:  # a batch that is too large for the quota never arrives
        request = _request(cluster, wanted, topic_ids, isolation, wait_ms)
        try:
            response = await cluster.call(node, request, purpose, within)
            if response.error is not ErrorCode.NONE:
                raise BrokerError(response.error, _name(wanted))
        except WireError:
            _doubt(cluster, wanted)
            raise
        if response.partitions or response.throttle_ms <= 0:
            answers = _answers(wanted, request, response)
            _doubt(cluster, (at for at, answer in answers.items() if answer.error is not ErrorCode.NONE))
            if not answers and len(wanted) == 1:
                _doubt(cluster, wanted)
                raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, _name(wanted), "no answer for it")
            return answers
        throttled_ms += response.throttle_ms
        wanted = {at: replace(start, max_bytes=max(1, start.max_bytes // 2)) for at, start in wanted.items()}
    why = f"throttled for {throttled_ms / 1000:.0f} s; is a batch larger than the quota lets through?"
    raise BrokerError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, _name(wanted), why)


def _request(
    cluster: KafkaCluster,
    wanted: Mapping[TopicPartition, FetchFrom],
    topic_ids: Mapping[TopicPartition, bytes],
    isolation: Isolation,
    wait_ms: int,
) -> FetchRequest:
    """Returns the request. It has the partitions in the order of `wanted`."""
    topics: dict[bytes, FetchedTopic] = {}
    partitions: dict[tuple[bytes, int], FetchFrom] = {}
    for at, start in wanted.items():
        topic, topic_id = cluster.topic(at.topic), topic_ids[at]
        if topic is not None and not is_other_topic(topic_id, topic.id):
            topic_id = topic.id  # The ids of a topic from before and after an upgrade are not mixed.
            topics[topic_id] = FetchedTopic(at.topic, topic_id)
        partitions[topic_id, at.partition] = start
    return FetchRequest(
        wait_ms,
        1 if wait_ms else 0,
        sum(start.max_bytes for start in wanted.values()),
        isolation,
        NO_SESSION,
        NO_SESSION_EPOCH,
        partitions,
        topics=topics,
    )


def _answers(
    wanted: Mapping[TopicPartition, FetchFrom], request: FetchRequest, response: FetchResponse
) -> dict[TopicPartition, FetchedPartition]:
    """Returns the partitions that are answered; those without room in the response are left out."""
    places = dict(zip(request.partitions, wanted, strict=True))
    answers: dict[TopicPartition, FetchedPartition] = {}
    for answer in response.partitions:
        at = places.get((answer.topic_id, answer.partition))
        if at is not None and (len(wanted) == 1 or _is_whole(answer, wanted[at].offset, request.isolation)):
            answers[at] = answer
    return answers


def _is_whole(answer: FetchedPartition, offset: int, isolation: Isolation) -> bool:
    """Returns whether the answer has an error, a whole batch, or nothing because nothing is there."""
    if answer.error is not ErrorCode.NONE:
        return True
    if len(answer.records) >= _BATCH_START.size:
        size: int = _BATCH_START.unpack_from(answer.records)[1]
        return len(answer.records) >= _BATCH_START.size + size
    committed = isolation is Isolation.READ_COMMITTED
    return offset >= (answer.last_stable_offset if committed else answer.high_watermark)


def _doubt(cluster: KafkaCluster, partitions: Iterable[TopicPartition]) -> None:
    for topic in {at.topic for at in partitions}:
        cluster.doubt(topic)


def _name(partitions: Iterable[TopicPartition]) -> str:
    """Returns the first partition's name, and the number of the others."""
    first, *others = partitions
    name = str(first)
    return f"{name} and {len(others)} more" if others else name
