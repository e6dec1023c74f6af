"""This module fetches records: of one partition once, or in an incremental fetch session at one broker.

In a session each request and response holds only changes. The broker remembers the partitions and their
positions; a fetch of a thousand idle partitions is a few dozen bytes each way. In a session the broker moves
a partition that had data to the end of its order, so a full response starves no partition; without one (its
cache is full) this module keeps the order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from runtime.batch import Batch, walk
from runtime.contract.client.settings import WireSettings
from runtime.contract.spec.naming import TopicPartition, is_from_kafka, is_other_topic
from runtime.kafka.cluster import CONTROL, KafkaCluster
from runtime.kafka.errors import BrokerError, Disconnected, ErrorCode, WireError
from runtime.kafka.fetch_many import fetch_many
from runtime.kafka.protocol.fetch import (
    FULL_SESSION_EPOCH,
    NO_SESSION,
    NO_SESSION_EPOCH,
    FetchedPartition,
    FetchedTopic,
    FetchFrom,
    FetchRequest,
    FetchResponse,
    Isolation,
    unknown_topic,
)
from runtime.kafka.protocol.last_decoded import LastDecoded
from runtime.kafka.protocol.metadata import DecodedTopics, MetadataRequest, TopicMetadata
from runtime.kafka.protocol.request import Request
from runtime.kafka.timing import now_ms

_LOAD_WAITS_MS = (0, 500, 2_000, 8_000)  # brokers before Kafka 3.8 load for as long as a fetch waits


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
    """Fetches one partition: returns what exists, at once or after `wait_ms` without new records.

    A broker sends the first batch whole, whatever the requested size is. With `by_epoch` only the newest
    leader answers. With `topic_id` only this topic is read, although another may have its name by now. Errors
    and quotas are those of `fetch_many`; the only own error of the answer is OFFSET_OUT_OF_RANGE.
    """
    topic = (await cluster.topics([at.topic]))[at.topic]
    if topic.error is not ErrorCode.NONE:
        raise BrokerError(topic.error, str(at))
    leader = cluster.leader(*at)
    if leader is None:
        raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, str(at))
    start = FetchFrom(offset, leader.leader_epoch if by_epoch else -1, -1, most_bytes)
    answers = await fetch_many(
        cluster,
        leader.leader,
        {at: start},
        purpose,
        topic_ids={at: topic_id or topic.id},
        isolation=isolation,
        wait_ms=wait_ms,
        within=within,
    )
    answer = answers[at]
    if answer.error not in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
        raise BrokerError(answer.error, str(at))
    return answer


async def fetch_loaded(
    cluster: KafkaCluster,
    at: TopicPartition,
    offset: int,
    most_bytes: int,
    purpose: str,
    *,
    isolation: Isolation = Isolation.READ_COMMITTED,
    topic_id: bytes | None = None,
) -> FetchedPartition:
    """Fetches as `fetch_once` does, and waits for records that the broker has to load.

    A broker with older segments in remote storage answers without records, and without an error, where it
    has not loaded them in time. This is told from the end of the log: a log always ends with a batch,
    whatever compaction removed. Raises a BrokerError where the records do not come.
    """
    for wait_ms in _LOAD_WAITS_MS:
        answer = await fetch_once(
            cluster,
            at,
            offset,
            most_bytes,
            purpose,
            isolation=isolation,
            wait_ms=wait_ms,
            topic_id=topic_id,
            within=wait_ms / 1000 + cluster.settings.request_timeout_s,
        )
        committed_only = isolation is Isolation.READ_COMMITTED
        end = answer.last_stable_offset if committed_only else answer.high_watermark
        if answer.error or len(answer.records) or offset >= end:
            return answer
    why = f"no records from offset {offset} on, though the log goes on to {end}"
    raise BrokerError(ErrorCode.OFFSET_NOT_AVAILABLE, str(at), why)


async def holds_record(cluster: KafkaCluster, at: TopicPartition, offset: int) -> bool:
    """Returns whether a record, committed or not, is at the offset; markers and deleted records do not count.

    Raises WireError.
    """
    answer = await fetch_loaded(cluster, at, offset, 1, "look", isolation=Isolation.READ_UNCOMMITTED)
    for member in walk(answer.records, at).sets:
        if member.base_offset <= offset < member.next_offset:
            return not (isinstance(member, Batch) and member.control)
    return False


_LOST_SESSION = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
_HIGHEST_EPOCH = 0x7FFFFFFF
_FAREWELL_S = 1.0

Key = tuple[bytes, int]
R = TypeVar("R")


class Caller(Protocol):
    """This protocol is what a session needs of a `KafkaCluster`."""

    @property
    def settings(self) -> WireSettings: ...

    @property
    def decoded(self) -> LastDecoded[DecodedTopics]: ...

    def topic_by_id(self, topic_id: bytes) -> TopicMetadata | None: ...

    def failed_lately(self, node: int) -> bool: ...

    async def call(self, node: int, request: Request[R], purpose: str, within: float | None) -> R: ...


class FetchLimits(Struct, frozen=True):
    """The broker answers after `max_wait_ms`, or sooner with `min_bytes`.

    A batch that is larger than a limit still arrives, alone; all others respect it.
    """

    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 32 << 20


class FetchSession:
    """Runs one fetch at a time; `want` and `forget` change the next one.

    A partition stays wanted at its position until `want` moves it: after each response, the caller sets the
    next position. A partition that was answered with an error (or a diverging epoch) is no longer wanted, so
    that the caller chooses the backoff: want it again here, or in the session of its new leader. A broker
    before Kafka 3.1 is fetched from by name. A recreated topic would continue under its name there, so the
    topic ids are read after the records, and a topic with another id is answered with UNKNOWN_TOPIC_ID.
    `answered_ms` is the time of the broker's last complete response: partitions that it left out have no
    news.
    """

    def __init__(
        self,
        cluster: Caller,
        node: int,
        limits: FetchLimits,
        purpose: str = "fetch",
    ) -> None:
        self.node = node
        self.limits = limits
        self.answered_ms = 0
        self._cluster = cluster
        self._purpose = purpose
        self._wanted: dict[Key, FetchFrom] = {}
        self._in_session: dict[Key, FetchFrom] = {}
        self._changed: set[Key] = set()
        self._session_id = NO_SESSION
        self._epoch = FULL_SESSION_EPOCH
        self._read_again = False
        self._by_name = False
        self._topics: dict[bytes, FetchedTopic] = {}
        # of these, the topics that the caller names by an id made of the name
        self._with_first_ids: dict[bytes, FetchedTopic] = {}

    def __len__(self) -> int:
        return len(self._wanted)

    def want(self, topic_id: bytes, partition: int, start: FetchFrom, anew: bool = False) -> None:
        """Adds a partition, or moves it. With `anew` the broker answers even if nothing is new.

        Otherwise a broker that knows the partition would send nothing about it, also where it is forgotten
        and wanted again between two fetches.
        """
        key = (topic_id, partition)
        self._read_again |= anew and key in self._in_session
        self._wanted[key] = start
        self._changed.add(key)

    def forget(self, topic_id: bytes, partition: int) -> None:
        key = (topic_id, partition)
        self._wanted.pop(key, None)
        self._changed.add(key)

    async def fetch(self) -> tuple[FetchedPartition, ...]:
        """Returns the partitions with news; none when the wait passed without any.

        A session that the broker has evicted is started again and returns nothing this time. Raises wire
        errors; after one, the next fetch starts a new session, too.
        """
        request = self._request()
        within = self.limits.max_wait_ms / 1000 + self._cluster.settings.request_timeout_s
        try:
            response = await self._cluster.call(self.node, request, self._purpose, within)
            if response.by_name and not response.error:
                response = await self._without_other_topics(response, within)
        except BaseException:
            self._begin_anew()
            raise
        if response.error in _LOST_SESSION:
            self._begin_anew()
            return ()
        if response.error:
            self._begin_anew()
            raise BrokerError(response.error, f"fetching from broker {self.node}")
        self._accept(request, response)
        self.answered_ms = now_ms()
        return response.partitions

    async def close(self) -> None:
        """Closes the session at the broker, if it can be reached, to free the broker's memory.

        The release of partitions waits for this: a broker that failed lately gets no request.

        The request takes another connection: a broker reads no further request from the session's own one
        while a fetch waits there for records.
        """
        if self._session_id == NO_SESSION or self._cluster.failed_lately(self.node):
            return
        farewell = FetchRequest(0, 0, 0, Isolation.READ_COMMITTED, self._session_id, NO_SESSION_EPOCH, {})
        self._session_id = NO_SESSION
        self._begin_anew()
        try:
            await self._cluster.call(self.node, farewell, CONTROL, _FAREWELL_S)
        except WireError:
            return

    def _request(self) -> FetchRequest:
        if self._read_again:
            self._begin_anew()
        if self._epoch == FULL_SESSION_EPOCH:
            self._in_session = dict(self._wanted)
            self._changed.clear()
            return self._asked(FULL_SESSION_EPOCH, dict(self._in_session), ())
        changed, self._changed = self._changed, set()
        news: dict[Key, FetchFrom] = {}
        forgotten: list[Key] = []
        for key in changed:
            start = self._wanted.get(key)
            if start is None:
                if self._in_session.pop(key, None) is not None:
                    forgotten.append(key)
            elif self._in_session.get(key) != start:
                news[key] = self._in_session[key] = start
        return self._asked(self._epoch, news, forgotten)

    def _asked(
        self, epoch: int, partitions: dict[Key, FetchFrom], forgotten: list[Key] | tuple[()]
    ) -> FetchRequest:
        limits = self.limits
        if (
            self._by_name
            or epoch == FULL_SESSION_EPOCH
            or any(not is_from_kafka(key[0]) for key in partitions)
        ):
            self._resolve_topics({key[0] for key in (*self._in_session, *partitions, *forgotten)})
        return FetchRequest(
            limits.max_wait_ms,
            limits.min_bytes,
            limits.max_bytes,
            Isolation.READ_COMMITTED,
            self._session_id,
            epoch,
            partitions,
            forgotten,
            topics=self._topics if self._by_name or epoch == FULL_SESSION_EPOCH else self._with_first_ids,
        )

    def _resolve_topics(self, ids: Iterable[bytes]) -> None:
        """Resolves the ids of topics to names, and to the current ids of the cluster."""
        topics = {topic_id: self._cluster.topic_by_id(topic_id) for topic_id in ids}
        self._topics = {
            topic_id: FetchedTopic(topic.name, topic.id)
            for topic_id, topic in topics.items()
            if topic is not None
        }
        self._with_first_ids = {
            topic_id: topic for topic_id, topic in self._topics.items() if not is_from_kafka(topic_id)
        }

    async def _without_other_topics(self, response: FetchResponse, within: float) -> FetchResponse:
        """Returns the response with UNKNOWN_TOPIC_ID for partitions of topics that were recreated.

        The ids are requested after the records, from the leader that sent them: a removed id never returns,
        so an id that still exists has existed all the time.
        """
        fetched = [
            partition
            for partition in response.partitions
            if len(partition.records) and is_from_kafka(partition.topic_id)
        ]
        names = {partition.topic_id: self._topics[partition.topic_id].name for partition in fetched}
        if not names:
            return response
        request = MetadataRequest(sorted(names.values()), decoded=self._cluster.decoded)
        metadata = await self._cluster.call(self.node, request, self._purpose, within)
        if not metadata.brokers:  # a broker that has just started knows no topic yet
            raise Disconnected(f"broker {self.node}", "it names no brokers yet", sent=False)
        ids = {topic.name: topic.id for topic in metadata.topics if not topic.error}
        gone = {
            topic_id
            for topic_id, name in names.items()
            if name not in ids or is_other_topic(topic_id, ids[name])
        }
        return replace(
            response,
            partitions=tuple(
                unknown_topic(partition.topic_id, partition.partition)
                if partition.topic_id in gone
                else partition
                for partition in response.partitions
            ),
        )

    def _accept(self, request: FetchRequest, response: FetchResponse) -> None:
        self._session_id = response.session_id
        self._by_name = response.by_name
        if response.session_id == NO_SESSION:
            self._epoch = FULL_SESSION_EPOCH
        else:
            self._epoch = 1 if request.session_epoch == _HIGHEST_EPOCH else request.session_epoch + 1
        for partition in response.partitions:
            key = (partition.topic_id, partition.partition)
            if partition.error or partition.diverging is not None:
                # Unless the caller moved it meanwhile, it must not fail again at once.
                if self._wanted.get(key) == self._in_session.get(key):
                    self.forget(*key)
            elif self._session_id == NO_SESSION and partition.records and key in self._wanted:
                self._wanted[key] = self._wanted.pop(key)

    def _begin_anew(self) -> None:
        """Makes the next fetch start a new session; the old session's id lets the broker drop that one."""
        self._epoch = FULL_SESSION_EPOCH
        self._in_session = {}
        self._read_again = False
