"""Reads the logs of partitions: their bounds and settings, and committed records.

A record comes with its producer id, by which provenance is decided. The rate of reading can be limited.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import AsyncIterator, Callable, Collection, Container, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from msgspec import Struct, field

from runtime.audit.ledger import AuditFailure, as_audit_failure, open_cluster
from runtime.batch import Batch, RecordSet, records
from runtime.batch.layout import LOG_APPEND_TIME, NO_PRODUCER
from runtime.contract.client.endpoint import ClusterEndpoint
from runtime.contract.client.secrets import ClientSecrets
from runtime.contract.records.consumer_record import ConsumerRecord
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.naming import TopicPartition, is_other_topic
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import BrokerError, ConnectionFailure, ErrorCode, Refusal, WireError
from runtime.kafka.fetch import fetch_loaded
from runtime.kafka.protocol.fetch import FetchedPartition, Isolation
from runtime.kafka.protocol.offsets import EARLIEST, LATEST
from runtime.kafka.queries import known_offsets, log_start, offsets_of, topic_configs
from runtime.kafka.records import visible_sets
from runtime.kafka.timing import RetryDeadline
from runtime.slot.budget import TokenBucket

_LOOKUP_BYTES = 1 << 20


class RecordsExpired(Exception):
    """Retention deleted records that were still to be read: the log begins at `start`."""

    def __init__(self, start: int) -> None:
        super().__init__(f"retention took the offsets below {start} meanwhile")
        self.start = start


async def _fetch(
    cluster: KafkaCluster,
    at: TopicPartition,
    position: int,
    max_bytes: int = _LOOKUP_BYTES,
    purpose: str = "read",
    topic_id: bytes | None = None,
) -> FetchedPartition:
    """Fetches once what a read_committed reader may read. Raises WireError, RecordsExpired."""
    answer = await fetch_loaded(cluster, at, position, max_bytes, purpose, topic_id=topic_id)
    if answer.error is ErrorCode.OFFSET_OUT_OF_RANGE:
        start = await log_start(cluster, at)
        if start > position:
            raise RecordsExpired(start)
        raise BrokerError(answer.error, str(at))
    return answer


async def _batches(
    cluster: KafkaCluster, at: TopicPartition, position: int, end: float = math.inf
) -> AsyncIterator[tuple[int, list[tuple[RecordSet, bool]]]]:
    """Yields the batches of one fetch after the other, and the offset of each fetch, up to `end`.

    It goes on at the log start where records have expired. Raises WireError, BatchFailure.
    """
    while position < end:
        try:
            sets = visible_sets(await _fetch(cluster, at, position), at)
        except RecordsExpired as expired:
            position = expired.start
            continue
        if not sets:
            return
        yield position, sets
        position = max(position + 1, sets[-1][0].next_offset)


async def fetch_records(
    cluster: KafkaCluster, at: TopicPartition, start: int, end: int, limit: int
) -> list[ConsumerRecord]:
    """Returns at most `limit` records of the offsets `start … end-1`, in order.

    Raises WireError, BatchFailure.
    """
    fetched: list[ConsumerRecord] = []
    if limit <= 0:
        return fetched
    async for position, sets in _batches(cluster, at, start, end):
        for member, committed in sets:
            if committed:
                fetched += _records(member, at, position, end)
            if len(fetched) >= limit:
                return fetched[:limit]
    return fetched


async def fetch_places(
    cluster: KafkaCluster,
    at: TopicPartition,
    topic_id: bytes | None,
    offsets: Iterable[int],
    read: Callable[[int], None] = lambda _: None,
) -> dict[int, ConsumerRecord]:
    """Returns the committed records at these offsets, of those that still hold one.

    `topic_id` of None means the topic that has the name now. `read` receives the number of bytes of each
    fetch. Raises WireError, BatchFailure.
    """
    fetched: dict[int, ConsumerRecord] = {}
    left = sorted(set(offsets))
    while left:
        try:
            answer = await _fetch(cluster, at, left[0], topic_id=topic_id)
        except RecordsExpired as expired:
            left = [offset for offset in left if offset >= expired.start]
            continue
        except BrokerError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            del left[0]  # it is behind the end of the log
            continue
        read(len(answer.records))
        sets, wanted = visible_sets(answer, at), set(left)
        if not sets:
            break
        for member, committed in sets:
            if committed:
                within = _records(member, at, left[0], left[-1] + 1)
                fetched.update((record.offset, record) for record in within if record.offset in wanted)
        behind = max(sets[-1][0].next_offset, left[0] + 1)
        left = [offset for offset in left if offset >= behind]
    return fetched


async def find_record(
    cluster: KafkaCluster,
    at: TopicPartition,
    start: int,
    producer_ids: Container[int],
    wanted: Callable[[ConsumerRecord], bool],
) -> ConsumerRecord | None:
    """Returns the first wanted committed record from `start` on that one of the producer ids wrote.

    Batches of other ids are skipped undecoded. Raises WireError, BatchFailure.
    """
    async for position, sets in _batches(cluster, at, start):
        for member, committed in sets:
            if isinstance(member, Batch) and committed and member.producer_id in producer_ids:
                for record in _records(member, at, position, member.next_offset):
                    if wanted(record):
                        return record
    return None


def _records(member: RecordSet, at: TopicPartition, start: int, end: int) -> list[ConsumerRecord]:
    producer, appended = NO_PRODUCER, False
    if isinstance(member, Batch):
        producer, appended = member.producer_id, bool(member.attributes & LOG_APPEND_TIME)
    return [
        ConsumerRecord(at.topic, at.partition, *record, producer, appended)
        for record in records(member, at)
        if start <= record.offset < end
    ]


_CONFIGS_HINT = "its brokers must answer, and its principal needs DESCRIBE_CONFIGS (docs/operations.md)"
_FETCH_BYTES = 2 << 20
_PAUSE_S = 0.1
_GONE = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_OPEN_WITHIN_S = 60.0  # many tasks of an application connect at the same time
_SETTLE_S = 2.0  # a new leader's high watermark lags for a short time


class LogBounds(NamedTuple):
    """The log start offset, and the offset up to which a reader can read."""

    start: int
    end: int


async def log_bounds(
    cluster: KafkaCluster,
    places: Collection[TopicPartition],
    within_s: float,
    isolation: Isolation = Isolation.READ_COMMITTED,
) -> dict[TopicPartition, LogBounds]:
    """Returns the bounds of the partitions whose leader answers. Raises WireError."""
    starts, ends = await asyncio.gather(
        known_offsets(cluster, places, EARLIEST, within=within_s),
        known_offsets(cluster, places, LATEST, isolation, within_s),
    )
    return {at: LogBounds(start, ends[at]) for at, start in starts.items() if at in ends}


async def bounds_of(
    cluster: KafkaCluster,
    places: Collection[TopicPartition],
    within_s: float,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> dict[TopicPartition, LogBounds]:
    """Returns the bounds of the partitions where all are needed. Raises WireError."""
    starts, ends = await asyncio.gather(
        offsets_of(cluster, dict.fromkeys(places, EARLIEST), within=within_s),
        offsets_of(cluster, dict.fromkeys(places, LATEST), isolation, within_s),
    )
    return {at: LogBounds(starts[at], ends[at]) for at in places}


class PartitionLogs(Struct, frozen=True):
    """Holds the facts about one cluster's logs; a partition whose leader does not answer has no bounds.

    `refused` are the topics whose metadata the cluster does not give, for example without the right to it.
    """

    ids: Mapping[str, bytes]
    bounds: Mapping[TopicPartition, LogBounds]
    compacted: frozenset[str]
    refused: Mapping[str, ErrorCode] = field(default_factory=dict)

    def problem(self, at: TopicPartition, topic_id: bytes, cluster: str, did: str) -> str:
        """Returns why the partition can't be compared, or nothing. The topic of this id `did` something."""
        if at.topic in self.refused:
            return self.refusal(at.topic, cluster)
        if at.topic not in self.ids:
            return f"there is no topic {at.topic} at {cluster}"
        if is_other_topic(topic_id, self.ids[at.topic]):
            return f"{at.topic} at {cluster} is not the topic that {did}: it was recreated"
        return self.leaderless(at, cluster)

    def refusal(self, topic: str, cluster: str) -> str:
        """Returns a text where the cluster does not say whether the topic exists."""
        if topic not in self.refused:
            return ""
        return f"the metadata of {topic} at {cluster} can't be read: {self.refused[topic].name}"

    def leaderless(self, at: TopicPartition, cluster: str) -> str:
        """Returns a text where the partition's leader did not answer."""
        if at in self.bounds:
            return ""
        return f"{at} at {cluster} has no leader that answers"


@asynccontextmanager
async def open_spec(spec: ClusterSpec, name: str) -> AsyncIterator[KafkaCluster]:
    """Opens the cluster of the spec and refuses any other.

    Raises AuditFailure, also for errors inside the block.
    """
    secrets = ClientSecrets(os.environ)
    with as_audit_failure(name):
        settings = secrets.resolve(spec.bootstrap, spec.client)
    reach = ClusterEndpoint(name, spec.bootstrap, settings, secrets.token_command(name), spec.id)
    async with open_cluster(reach, _OPEN_WITHIN_S) as cluster:
        yield cluster


async def logs_of(
    cluster: KafkaCluster, name: str, places: Collection[TopicPartition], within_s: float
) -> PartitionLogs:
    """Reads the logs of the given partitions. Raises WireError, AuditFailure."""
    names = {at.topic for at in places}
    topics = await cluster.topics(names, fresh=True)
    existing = [at for at in places if not topics[at.topic].error]
    bounds, settings = await asyncio.gather(
        log_bounds(cluster, existing, within_s),
        settings_of(cluster, name, sorted({at.topic for at in existing}), ["cleanup.policy"]),
    )
    return PartitionLogs(
        ids={name: topic.id for name, topic in topics.items() if not topic.error},
        bounds=bounds,
        compacted=frozenset(
            topic for topic, config in settings.items() if "compact" in config["cleanup.policy"]
        ),
        refused={
            name: topic.error
            for name, topic in topics.items()
            if topic.error and topic.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        },
    )


async def settings_of(
    cluster: KafkaCluster, name: str, topics: Sequence[str], keys: Sequence[str]
) -> dict[str, dict[str, str]]:
    """Returns the effective values of these settings of existing topics, by the topic's name.

    Raises WireError, AuditFailure.
    """
    settings: dict[str, dict[str, str]] = {}
    async for topic in topic_configs(cluster, topics, keys):
        if topic.error is not ErrorCode.NONE:
            why = f"the settings of {topic.name} can't be read: {Refusal(topic.error, topic.message).text}"
            raise AuditFailure(name, why, _CONFIGS_HINT)
        settings[topic.name] = {entry.key: str(entry.value) for entry in topic.entries}
    return settings


class OpenTransactionTimeout(Exception):
    """An open transaction before the end does not end in time."""


class CommittedRecordReader:
    """Reads one side: iterate over it, or call `next_sets` until `ended`.

    `bucket` limits its rate, `topic_id` of None means the topic that has the name now. Raises WireError,
    BatchFailure, RecordsExpired, OpenTransactionTimeout.
    """

    def __init__(
        self,
        cluster: KafkaCluster,
        at: TopicPartition,
        topic_id: bytes | None,
        low: int,
        high: int,
        within_s: float,
        bucket: TokenBucket | None = None,
        max_bytes: int = _FETCH_BYTES,
    ) -> None:
        self.position = low
        self._cluster, self._at, self._topic_id = cluster, at, topic_id
        self._high, self._within_s, self._max_bytes = high, within_s, max_bytes
        self._bucket = bucket or TokenBucket(None, time.monotonic)

    @property
    def ended(self) -> bool:
        return self.position >= self._high

    async def __aiter__(self) -> AsyncIterator[list[ConsumerRecord]]:
        """Yields the records of one fetch after the other: the list may be empty."""
        while not self.ended:
            begin, fetched = self.position, list[ConsumerRecord]()
            for member, committed in await self.next_sets():
                if committed:
                    fetched += _records(member, self._at, begin, self._high)
            yield fetched

    async def next_sets(self) -> list[tuple[RecordSet, bool]]:
        """Returns the batches of one fetch, also markers, and whether a read_committed reader sees them."""
        answer = await self._answer()
        if answer is None:
            self.position = self._high
            return []
        self._bucket.take(len(answer.records))
        sets = visible_sets(answer, self._at)
        for number, (member, _) in enumerate(sets, 1):
            self.position = max(self.position, member.next_offset)
            if self.ended:
                return sets[:number]
        return sets

    async def _answer(self) -> FetchedPartition | None:
        """Returns a response that holds records; None where the log ends before: the rest is missing."""
        settling, timeout = RetryDeadline(_SETTLE_S), RetryDeadline(self._within_s)
        while True:
            while (wait := self._bucket.wait_s()) > 0:
                await asyncio.sleep(wait)
                timeout.extend(wait)
            failure: WireError | OpenTransactionTimeout
            try:
                answer = await _fetch(
                    self._cluster, self._at, self.position, self._max_bytes, "verify", self._topic_id
                )
                if len(answer.records):
                    return answer
                short = answer.high_watermark < self._high
                failure = OpenTransactionTimeout(
                    f"a transaction is open at offset {answer.last_stable_offset}"
                )
            except WireError as error:
                code = error.code if isinstance(error, BrokerError) else None
                short = code is ErrorCode.OFFSET_OUT_OF_RANGE  # it is behind the end of the log
                if code is not None and not short and (not code.retriable or code in _GONE):
                    raise
                if code is None and not isinstance(error, ConnectionFailure):
                    raise
                failure = error
            settled, timed_out = settling.over(), timeout.over()
            if short and settled:
                return None
            if timed_out:
                raise failure
            await asyncio.sleep(_PAUSE_S)
