"""Reads the newest committed values for slots, drivers and group sync: the ledger and the producer directory.

The ledger also tells of undecided writes. The producer directory holds the producer ids of flows: batch
provenance, which prevents cycles of records (R5).
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from runtime.contract.records.ledger import (
    Generation,
    GenerationKey,
    OrphanedKey,
    Orphans,
    PartitionKey,
    Progress,
    ProgressKey,
    ReplayedKey,
    UnreadableRecord,
    decode_generation,
    decode_key,
    decode_orphaned,
    decode_progress,
    decode_replayed,
    encode_key,
    flow_of_key,
    partition_of,
)
from runtime.contract.records.provenance import (
    ClusterTopic,
    FlowProducer,
    decode_producer,
    decode_producer_key,
    encode_producer,
    encode_producer_key,
)
from runtime.contract.spec import naming
from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import BrokerError, ErrorCode
from runtime.kafka.records import InternalRecord, batches_of, plain
from runtime.kafka.timing import Gathered
from runtime.ledger.records import InternalTopicScan, TopicReplaced
from runtime.ledger.transaction_writer import send

_POLL_S = 0.02


class UndecidedProgress(Struct, frozen=True):
    """A transaction that is not decided yet has written this partition's progress.

    A caller that resumes from it must wait, because a broker acknowledges the end of a transaction before its
    markers are written. A caller that only displays progress uses `committed`.
    """

    committed: Progress | None


class _ProgressByFlow:
    """Holds the decoded progress of each flow of a ledger partition, so that a flow reads only its own.

    Flows share a partition: a record that can't be read stops only its own flow (R7).
    """

    def __init__(self) -> None:
        self._progress: dict[str, dict[PartitionKey, Progress]] = {}
        self._unreadable: dict[str, dict[bytes, UnreadableRecord]] = {}

    def take(self, news: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Takes the records that changed; None is a removed value."""
        for key, value in news:
            flow = flow_of_key(key)
            if flow is not None:
                self._take_one(flow, key, value)

    def _take_one(self, flow: str, key: bytes, value: bytes | None) -> None:
        unreadable = self._unreadable.get(flow)
        if unreadable is not None:
            unreadable.pop(key, None)
        try:
            match decode_key(key), value:
                case ProgressKey(of), None:
                    self._progress.get(flow, {}).pop(of, None)
                case ProgressKey(of), bytes(encoded):
                    self._progress.setdefault(flow, {})[of] = decode_progress(encoded)
        except UnreadableRecord as error:
            if value is not None:
                self._unreadable.setdefault(flow, {})[key] = error

    def of(self, flow: str) -> dict[PartitionKey, Progress]:
        """Returns the progress of a flow. Raises UnreadableRecord where a record of it can't be read."""
        for error in self._unreadable.get(flow, {}).values():
            raise error
        return dict(self._progress.get(flow, {}))


class Ledger:
    """A ledger owns the scans of the ledger partitions that were read so far.

    A flow must be refreshed before its values are requested. One scan serves all flows of a ledger partition.
    """

    def __init__(self, cluster: KafkaCluster, partitions: int) -> None:
        self._cluster = cluster
        self._scans: dict[int, InternalTopicScan] = {}
        self._by_flow: dict[int, _ProgressByFlow] = {}
        self.partitions = partitions

    @classmethod
    async def open(cls, cluster: KafkaCluster) -> Ledger:
        """Returns the ledger of a cluster, not read yet. Raises WireError."""
        topic = (await cluster.topics([naming.LEDGER], fresh=True))[naming.LEDGER]
        if topic.error is not ErrorCode.NONE:
            raise BrokerError(topic.error, naming.LEDGER)
        return cls(cluster, len(topic.partitions))

    def partition(self, flow: str) -> int:
        """Returns the ledger partition that holds the flow's records."""
        return partition_of(flow, self.partitions)

    async def refresh(self, flow: str, within: float = 30.0, *, exact: bool = False) -> None:
        """Reads the flow's ledger partition up to a high watermark taken now, with `exact` not further.

        Raises WireError, TopicReplaced, BatchFailure. A ledger that was replaced is read from its beginning
        at the next refresh.
        """
        try:
            await self._scan(flow).refresh(within, exact=exact)
        except TopicReplaced:
            self._scans.pop(self.partition(flow), None)
            self._by_flow.pop(self.partition(flow), None)
            raise

    async def refresh_all(self, flows: Iterable[str], within: float = 30.0) -> None:
        """Reads the ledger partitions of these flows, each of them once, as they were when this call began.

        Raises what `refresh` raises.
        """
        flow_of_each = {self.partition(flow): flow for flow in flows}
        await asyncio.gather(*(self.refresh(flow, within, exact=True) for flow in flow_of_each.values()))

    async def decided(self, flow: str, within: float = 30.0) -> None:
        """Refreshes until no open transaction has written the flow's generation.

        A broker acknowledges the end of a transaction before its markers are written. Raises WireError
        where one stays open for longer than `within` seconds.
        """
        await self.refresh(flow, within)
        until = time.monotonic() + within
        while self.undecided(flow):
            if time.monotonic() > until:
                raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS, f"who may copy {flow}")
            await asyncio.sleep(_POLL_S)
            await self.refresh(flow, within)

    def generation(self, flow: str) -> Generation | None:
        """Returns the newest committed generation of a flow."""
        value = self._scan(flow).fold.get(encode_key(GenerationKey(flow)))
        return decode_generation(value) if value is not None else None

    def undecided(self, flow: str) -> bool:
        """Returns whether a transaction that is not decided yet has written the flow's generation."""
        return self._scan(flow).fold.undecided(encode_key(GenerationKey(flow)))

    def progress(self, key: PartitionKey) -> Progress | UndecidedProgress | None:
        """Returns the progress of one partition, or UndecidedProgress where an open transaction has written
        it.
        """
        committed = self.committed(key)
        undecided = self._scan(key.flow).fold.undecided(encode_key(ProgressKey(key)))
        return UndecidedProgress(committed) if undecided else committed

    def decided_progress(self, key: PartitionKey) -> Progress | None:
        """Returns the progress of one partition. Raises BrokerError where an open transaction wrote it."""
        progress = self.progress(key)
        if isinstance(progress, UndecidedProgress):
            raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS, f"where {key.at} stands")
        return progress

    def committed(self, key: PartitionKey) -> Progress | None:
        """Returns the newest committed progress of one partition."""
        value = self._scan(key.flow).fold.get(encode_key(ProgressKey(key)))
        return decode_progress(value) if value is not None else None

    def all_progress(self, flow: str) -> dict[PartitionKey, Progress]:
        """Returns the committed progress of every partition that the flow ever copied."""
        scan = self._scan(flow)
        by_flow = self._by_flow.setdefault(self.partition(flow), _ProgressByFlow())
        by_flow.take(scan.fold.news())
        return by_flow.of(flow)

    def orphans(self, flow: str) -> defaultdict[PartitionKey, Orphans]:
        """Returns the orphaned ranges and the replayed ones of each partition; most have none."""
        orphans = defaultdict[PartitionKey, Orphans](Orphans)
        for key, value in self._scan(flow).fold.items():
            match decode_key(key) if flow_of_key(key) == flow else None:
                case OrphanedKey(of, low):
                    orphaned = *orphans[of].orphaned, (low, decode_orphaned(value))
                    orphans[of] = replace(orphans[of], orphaned=orphaned)
                case ReplayedKey(of, low):
                    replayed = *orphans[of].replayed, (low, decode_replayed(value))
                    orphans[of] = replace(orphans[of], replayed=replayed)
        return orphans

    def generations(self, flows: Iterable[str]) -> dict[str, Generation]:
        """Returns the newest committed generations of these flows; a flow without one is left out."""
        return {flow: generation for flow in flows if (generation := self.generation(flow)) is not None}

    def _scan(self, flow: str) -> InternalTopicScan:
        partition = self.partition(flow)
        if partition not in self._scans:
            self._scans[partition] = InternalTopicScan(self._cluster, naming.LEDGER, partition)
        return self._scans[partition]


_NO_PRODUCER = -1
_MAX_NATIVE = 100_000
_MISSING_S, _MOST_MISSING_S = 1.0, 60.0
_REGISTERED_TOGETHER = 1_000  # producer ids of several callers
_PARTITION = 0


class ProducerDirectory:
    """The directory holds the content of `__repl.producers` of one cluster.

    An unknown id is looked up once, up to a high watermark taken after the fetch that contained it. An id
    that is not found there is no flow's producer. Without an answer, no batch is copied.

    Where the topic does not exist yet, no flow writes there, and every id is native. A broker may learn late
    of a new topic, so this is looked up again, soon after a new id and then less and less often: on a slow
    link, each time costs a round trip. A topic that was read before is an error where it is missing: another
    answer would send copied records back (R5).
    """

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster
        self._scan: InternalTopicScan | None = None
        self._flows: dict[int, FlowProducer] = {}
        self._native: set[int] = set()
        self._native_until = math.inf
        self._missing_s = _MISSING_S
        self._unreadable: dict[
            int | None, UnreadableRecord
        ] = {}  # The key None stands for a record of an unknown producer.

    def unknown(self, producer_ids: Iterable[int]) -> bool:
        """Returns whether any of the ids must be resolved first."""
        native = self._native if asyncio.get_running_loop().time() < self._native_until else ()
        return any(
            producer_id not in self._flows and producer_id not in native
            for producer_id in producer_ids
            if producer_id != _NO_PRODUCER
        )

    async def resolve(self, producer_ids: Iterable[int]) -> None:
        """Looks ids up, after which each of them is known.

        It fails closed: it raises WireError, TopicReplaced, BatchFailure, and UnreadableRecord where the
        record of one of the ids can't be read.
        """
        wanted = set(producer_ids)
        topic = (await self._cluster.topics([naming.PRODUCERS], fresh=self._scan is None))[naming.PRODUCERS]
        if topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            if self._scan is not None:
                raise BrokerError(topic.error, naming.PRODUCERS)
            again = wanted <= self._native
            self._missing_s = min(2 * self._missing_s, _MOST_MISSING_S) if again else _MISSING_S
            self._native_until = asyncio.get_running_loop().time() + self._missing_s
        else:
            if self._scan is None:
                self._native.clear()
                self._native_until = math.inf
                self._scan = InternalTopicScan(self._cluster, naming.PRODUCERS, _PARTITION)
            try:
                await self._scan.refresh()
            except TopicReplaced:
                self._native.clear()
                self._scan = InternalTopicScan(self._cluster, naming.PRODUCERS, _PARTITION)
                raise
            self._take_news(self._scan)
        for key, error in self._unreadable.items():
            if key is None or key in wanted:
                raise error
        if len(self._native) > _MAX_NATIVE:
            self._native.clear()
        self._native.update(producer_id for producer_id in wanted if producer_id not in self._flows)

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
            producer_id
            for producer_id in producer_ids
            if (flow := self._flows.get(producer_id)) is not None
            and (native_only or flow.home(topic) == home)
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


async def register(cluster: KafkaCluster, producer_id: int, producer: FlowProducer) -> None:
    """Writes the flow of a producer id to the directory, before the id's first data. Raises WireError.

    The record is written outside a transaction, because it is true whether a transaction commits or not.
    Callers that wait at the same time share a request.
    """

    async def write(producers: Mapping[int, FlowProducer]) -> None:
        records = [
            InternalRecord(encode_producer_key(producer_id), encode_producer(flow))
            for producer_id, flow in producers.items()
        ]
        for batch in batches_of(records):
            await send(cluster, TopicPartition(naming.PRODUCERS, _PARTITION), plain(batch))

    gathered = cluster.gathered.setdefault(register, Gathered(write, _REGISTERED_TOGETHER, resend=True))
    await gathered.ask({producer_id: producer})
