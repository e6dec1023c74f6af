"""Batch provenance: the producer ids of flows are in a directory, which prevents cycles of records (R5)."""

from __future__ import annotations

from collections.abc import Iterable

from runtime.contract.records.ledger import UnreadableRecord
from runtime.contract.records.provenance import (
    ClusterTopic,
    FlowProducer,
    decode_producer,
    decode_producer_key,
    encode_producer,
    encode_producer_key,
)
from runtime.contract.spec import naming
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.ledger.records import InternalRecord, InternalTopicScan, TopicReplaced, build, plain
from runtime.ledger.transaction_writer import send

_NO_PRODUCER = -1
_MAX_NATIVE = 100_000
_PARTITION = 0


class ProducerDirectory:
    """The directory holds the content of `__repl.producers` of one cluster.

    An unknown id is looked up once, up to a high watermark taken after the fetch that contained it. An id
    that is not found there is no flow's producer. Without an answer, no batch is copied.
    """

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster
        self._scan: InternalTopicScan | None = None
        self._flows: dict[int, FlowProducer] = {}
        self._native: set[int] = set()
        self._unreadable: dict[
            int | None, UnreadableRecord
        ] = {}  # The key None stands for a record of an unknown producer.

    def unknown(self, producer_ids: Iterable[int]) -> bool:
        """Returns whether any of the ids must be resolved first."""
        return any(
            one not in self._flows and one not in self._native for one in producer_ids if one != _NO_PRODUCER
        )

    async def resolve(self, producer_ids: Iterable[int]) -> None:
        """Looks ids up, after which each of them is known.

        It fails closed: it raises WireError, TopicReplaced, BatchFailure, and UnreadableRecord where the
        record of one of the ids can't be read.
        """
        topic = (await self._cluster.topics([naming.PRODUCERS], fresh=self._scan is None))[naming.PRODUCERS]
        if topic.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            if self._scan is None:
                self._scan = InternalTopicScan(self._cluster, naming.PRODUCERS, _PARTITION)
            try:
                await self._scan.refresh()
            except TopicReplaced:
                self._scan = None
                raise
            self._take_news(self._scan)
        wanted = set(producer_ids)
        for key, error in self._unreadable.items():
            if key is None or key in wanted:
                raise error
        if len(self._native) > _MAX_NATIVE:
            self._native.clear()
        self._native.update(one for one in wanted if one not in self._flows)

    def flow_of(self, producer_id: int) -> str | None:
        """Returns the flow that a resolved id writes for, or None for a producer of no flow."""
        producer = self._flows.get(producer_id)
        return producer.flow if producer is not None else None

    def returning_producer_ids(
        self, producer_ids: Iterable[int], topic: str, home: ClusterTopic, native_only: bool
    ) -> set[int]:
        """Returns the ids that wrote records from `home` to `topic`.

        With `native_only`, it returns the ids that write for any flow.
        """
        return {
            one
            for one in producer_ids
            if (flow := self._flows.get(one)) is not None and (native_only or flow.home(topic) == home)
        }

    def _take_news(self, scan: InternalTopicScan) -> None:
        for key, value in scan.fold.news():
            if value is None:
                continue
            producer_id: int | None = None
            try:
                producer_id = decode_producer_key(key)
                self._flows[producer_id] = decode_producer(value)
            except UnreadableRecord as error:
                self._unreadable[producer_id] = error
            else:
                self._native.discard(producer_id)
                self._unreadable.pop(producer_id, None)


async def register(cluster: KafkaCluster, producer_id: int, producer: FlowProducer, now_ms: int) -> None:
    """Writes the flow of a producer id to the directory, before the id's first data. Raises WireError.

    The record is written outside a transaction, because it is true whether a transaction commits or not.
    """
    batch = plain(
        build([InternalRecord(encode_producer_key(producer_id), encode_producer(producer))], now_ms)
    )
    await send(cluster, TopicPartition(naming.PRODUCERS, _PARTITION), batch)
