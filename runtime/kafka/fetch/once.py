"""One fetch without a session: for who reads a single partition, or looks at a few records of it."""

from __future__ import annotations

from runtime.batch import Batch, PartitionLocation, walk
from runtime.contract.topic_ids import is_other_topic
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.codes import ErrorCode
from runtime.kafka.errors import BrokerError, WireError
from runtime.kafka.protocol.fetch import (
    NO_SESSION_EPOCH,
    FetchedPartition,
    FetchedTopic,
    FetchFrom,
    FetchRequest,
    Isolation,
)
from runtime.kafka.protocol.offsets import TopicPartition

_NO_SESSION = 0
_MOST_THROTTLED_MS = 300_000  # a batch that is too large for the quota never comes


async def fetch_once(
    cluster: KafkaCluster,
    at: TopicPartition,
    offset: int,
    most_bytes: int,
    purpose: str,
    *,
    isolation: Isolation = Isolation.READ_COMMITTED,
    wait_ms: int = 0,
    by_epoch: bool = False,
    topic_id: bytes | None = None,
    within: float | None = None,
) -> FetchedPartition:
    """What is there, at once or after `wait_ms` without anything; brokers send the first batch whole, however
    little is asked for. `by_epoch`: only the newest leader answers. `topic_id`: of this topic, though another
    may have its name by now. The partition's own error stands in the answer. Raises WireError. After either,
    unless it is a quota's, the leader is asked for before it is used again.

    A client over its quota is told nothing but how long to wait, which `within` does not count. Then half as
    much is asked for: where others use the quota too, a little finds room sooner.
    """
    where = f"{at.topic}-{at.partition}"
    throttled_ms = 0
    while throttled_ms < _MOST_THROTTLED_MS:
        topic = (await cluster.topics([at.topic]))[at.topic]
        if topic.error is not ErrorCode.NONE:
            raise BrokerError(topic.error, where)
        leader = cluster.leader(*at)
        if leader is None:
            raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, where)
        start = FetchFrom(offset, leader.leader_epoch if by_epoch else -1, -1, most_bytes)
        asked_id = topic_id or topic.id
        known = not is_other_topic(asked_id, topic.id)
        request = FetchRequest(
            wait_ms,
            1 if wait_ms else 0,
            most_bytes,
            isolation,
            _NO_SESSION,
            NO_SESSION_EPOCH,
            {(asked_id, at.partition): start},
            topics={asked_id: FetchedTopic(at.topic, topic.id)} if known else {},
        )
        try:
            response = await cluster.call(leader.leader, request, purpose, within)
            if response.error is not ErrorCode.NONE:
                raise BrokerError(response.error, where)
        except WireError:
            cluster.doubt(at.topic)
            raise
        if response.partitions:
            (answer,) = response.partitions
            if answer.error is not ErrorCode.NONE:
                cluster.doubt(at.topic)
            return answer
        if response.throttle_ms <= 0:
            cluster.doubt(at.topic)
            raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, where, "no answer for it")
        throttled_ms += response.throttle_ms
        most_bytes = max(1, most_bytes // 2)
    why = f"throttled for {throttled_ms / 1000:.0f} s; is a batch larger than the quota lets through?"
    raise BrokerError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, where, why)


async def holds_record(cluster: KafkaCluster, at: TopicPartition, offset: int) -> bool:
    """Whether a record lies at the offset, committed or not: no marker, and nothing that is gone. Raises
    WireError.
    """
    answer = await fetch_once(cluster, at, offset, 1, "look", isolation=Isolation.READ_UNCOMMITTED)
    if answer.error is ErrorCode.OFFSET_OUT_OF_RANGE:
        return False
    if answer.error is not ErrorCode.NONE:
        raise BrokerError(answer.error, f"{at.topic}-{at.partition}")
    for one in walk(answer.records, PartitionLocation(*at)).sets:
        if one.base_offset <= offset < one.next_offset:
            return not (isinstance(one, Batch) and one.control)
    return False
