"""One fetch without a session: for who looks at a few records and not at a stream."""

from __future__ import annotations

from runtime.copy.wire.cluster import Cluster
from runtime.copy.wire.codes import ErrorCode
from runtime.copy.wire.errors import BrokerError, ConnectionFailure
from runtime.copy.wire.protocol.fetch import FetchedPartition, FetchFrom, FetchRequest, Isolation
from runtime.copy.wire.protocol.offsets import TopicPartition

_NO_SESSION, _NO_SESSION_EPOCH = 0, -1


async def fetch_once(
    cluster: Cluster, at: TopicPartition, offset: int, most_bytes: int, purpose: str
) -> FetchedPartition:
    """What is committed there, at once; brokers send the first batch whole, however little is asked for. The
    partition's own error stands in the answer. Raises WireError.
    """
    where = f"{at.topic}-{at.partition}"
    topic = (await cluster.topics([at.topic]))[at.topic]
    leader = cluster.leader(*at)
    if leader is None:
        raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, where)
    wanted = {(topic.id, at.partition): FetchFrom(offset, -1, -1, most_bytes)}
    request = FetchRequest(0, 0, most_bytes, Isolation.READ_COMMITTED, _NO_SESSION, _NO_SESSION_EPOCH, wanted)
    try:
        response = await cluster.call(leader.leader, request, purpose)
    except ConnectionFailure:
        cluster.doubt(at.topic)
        raise
    if response.error is not ErrorCode.NONE:
        raise BrokerError(response.error, where)
    (answer,) = response.partitions
    if answer.error is not ErrorCode.NONE:
        cluster.doubt(at.topic)
    return answer
