"""A partition of a topic as a log: reads to its end, waits for more records, and appends records."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Generic, NamedTuple, Self, TypeVar

from planner.kafka.client import BrokerConnection, ClusterClient
from planner.kafka.failures import ClusterFailure, NoAnswer, RequestRefused, Unreadable
from planner.model.diagnostic import Failure, error
from runtime.batch import Batch, BatchFailure, Record, next_sequence
from runtime.contract.spec import naming
from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.committed_values import CommittedValues
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.fetch import (
    NO_SESSION,
    NO_SESSION_EPOCH,
    FetchedPartition,
    FetchedTopic,
    FetchFrom,
    FetchRequest,
    Isolation,
)
from runtime.kafka.protocol.offsets import EARLIEST, LATEST, ListOffsetsRequest
from runtime.kafka.protocol.produce import ProducePartition, ProduceRequest
from runtime.kafka.protocol.transactions import InitProducerIdRequest, ProducerIdentity
from runtime.kafka.records import InternalRecord, batches_of, committed, plain

READ_SECONDS = 30.0
_AGAIN_SECONDS = 0.2
_FETCH_BYTES = 8 << 20
_LONGEST_WAIT_S = 1.0  # of a fetch for new records


async def read(client: ClusterClient, topic: str, partition: int = 0) -> list[Record]:
    """Returns the whole log, up to the end that it has now. A topic that does not exist is an empty log."""
    async with LogReader(client, topic, partition) as log:
        return await log.read_to_end()


T = TypeVar("T")


class _PartitionReader(ABC, Generic[T]):
    """Reads a partition from its log start on, and continues from its last position.

    The methods raise Failure where the principal may not read the topic, or no leader answers in time.
    """

    isolation: ClassVar[Isolation]

    def __init__(self, client: ClusterClient, topic: str, partition: int = 0) -> None:
        self._client = client
        self._at = TopicPartition(topic, partition)
        self._leader: BrokerConnection | None = None
        self._topic_id = b""
        self._position: int | None = None

    @abstractmethod
    def _read(self, response: FetchedPartition, position: int) -> tuple[list[T], int]:
        """Returns what a response holds from `position` on, and the position behind it.

        Raises BatchFailure.
        """

    def _skip_to(self, start: int) -> None:
        """Continues at a log start that moved past the position."""
        self._position = start

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._drop_leader()

    async def read_to_end(self) -> list[T]:
        """Returns the records since the last call, up to the present end. The first call returns all.

        After a transient failure it continues, for at most READ_SECONDS without a new record.
        """
        records: list[T] = []
        end: int | None = None
        deadline = time.monotonic() + READ_SECONDS
        while end is None or (self._position or 0) < end:
            try:
                leader = await self._connected()
                if leader is None:
                    return []
                if end is None:
                    end = await self._offset(leader, LATEST)
                    continue
                before = self._position
                records += await self._fetch(leader, 0.0)
                if self._position != before:
                    deadline = time.monotonic() + READ_SECONDS
                    continue
            except ClusterFailure as failure:
                if not failure.transient_for_new_topic or time.monotonic() > deadline:
                    raise unusable(self._client, self._at.topic, failure) from failure
                self._drop_leader()
            if time.monotonic() > deadline:
                raise Failure(
                    error(
                        f"{self._at.topic} at {self._client.name} could not be read to its end within "
                        f"{READ_SECONDS:.0f} s",
                        "check that its partition has a leader, then run this again",
                    )
                )
            await asyncio.sleep(_AGAIN_SECONDS)
        return records

    async def read_more(self, seconds: float) -> list[T]:
        """Returns records that arrive within some time, as soon as there are any."""
        records: list[T] = []
        deadline = time.monotonic() + seconds
        while not records and (left := deadline - time.monotonic()) > 0:
            try:
                leader = await self._connected()
                if leader is not None:
                    records = await self._fetch(leader, left)
                    continue
            except ClusterFailure as failure:
                if not failure.transient_for_new_topic:
                    raise unusable(self._client, self._at.topic, failure) from failure
                self._drop_leader()
            await asyncio.sleep(min(left, _AGAIN_SECONDS))
        return records

    async def _connected(self) -> BrokerConnection | None:
        """Returns the connection to the leader, with a position; None while the topic does not exist."""
        if self._leader is None or self._leader.closed:
            try:
                self._leader, self._topic_id = await self._client.dial_leader(self._at)
            except RequestRefused as refused:
                if refused.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and self._position is None:
                    return None
                raise
        if self._position is None:
            self._position = await self._offset(self._leader, EARLIEST)
        return self._leader

    async def _offset(self, leader: BrokerConnection, at: int) -> int:
        """Returns the log start offset, or the end offset at this isolation level."""
        offsets = await leader.call(ListOffsetsRequest(self.isolation, {self._at: at}))
        listed = offsets.get(self._at, ErrorCode.UNKNOWN_SERVER_ERROR)
        if isinstance(listed, ErrorCode):
            raise RequestRefused(listed)
        return listed.offset

    async def _fetch(self, leader: BrokerConnection, wait_s: float) -> list[T]:
        """Returns the next records; none if there are none, or none arrive in time."""
        position = self._position or 0
        request = FetchRequest(
            int(min(wait_s, _LONGEST_WAIT_S) * 1000),
            1 if wait_s else 0,
            _FETCH_BYTES,
            self.isolation,
            NO_SESSION,
            NO_SESSION_EPOCH,
            {(self._topic_id, self._at.partition): FetchFrom(position, max_bytes=_FETCH_BYTES)},
            topics={self._topic_id: FetchedTopic(self._at.topic, self._topic_id)},
        )
        response = await leader.call(request)
        if response.error:
            raise RequestRefused(response.error)
        records: list[T] = []
        for partition in response.partitions:
            if partition.error is ErrorCode.OFFSET_OUT_OF_RANGE:  # retention has passed the position
                self._skip_to(await self._offset(leader, EARLIEST))
            elif partition.error:
                raise RequestRefused(partition.error)
            else:
                try:
                    read, self._position = self._read(partition, position)
                except BatchFailure as failure:
                    raise Unreadable(str(failure)) from None
                records += read
        return records

    def _drop_leader(self) -> None:
        if self._leader is not None:
            self._leader.close()
            self._leader = None


class LogReader(_PartitionReader[Record]):
    """Reads the committed records of a partition in their order, up to the first open transaction."""

    isolation = Isolation.READ_COMMITTED

    def _read(self, response: FetchedPartition, position: int) -> tuple[list[Record], int]:
        records, behind = committed(response, self._at, position)
        if behind == position and response.last_stable_offset > position and not response.records:
            behind = response.last_stable_offset  # compaction removed all that was left
        return records, behind


class ValueReader(_PartitionReader[tuple[bytes, bytes | None]]):
    """Reads the newest committed value of each key of a compacted topic, None for one that was removed.

    An open transaction of one producer does not hide what others commit behind it. A job that died may leave
    one open for half a minute.
    """

    isolation = Isolation.READ_UNCOMMITTED

    def __init__(self, client: ClusterClient, topic: str, partition: int = 0) -> None:
        super().__init__(client, topic, partition)
        self._values = CommittedValues(keep_values=False)

    def _read(
        self, response: FetchedPartition, position: int
    ) -> tuple[list[tuple[bytes, bytes | None]], int]:
        self._values.take_response(response, self._at)
        behind = max(position, self._values.position)
        if behind == position and response.high_watermark > position and not response.records:
            behind = response.high_watermark  # compaction removed all that was left
        self._values.position = behind
        return self._values.news(), behind

    def _skip_to(self, start: int) -> None:
        super()._skip_to(start)
        self._values.skip_to(start)


def compacted(records: Iterable[Record]) -> Mapping[bytes, Record]:
    """Returns the last record of each key, without tombstones, as compaction would leave them."""
    last: dict[bytes, Record] = {}
    for record in records:
        if record.value is None:
            last.pop(record.key or b"", None)
        else:
            last[record.key or b""] = record
    return last


WRITE_SECONDS = 60.0
_PRODUCE_S = 10.0
# The broker has forgotten this producer, or what it wrote last: it writes on with a new identity.
_FORGOTTEN = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)


class Appended(NamedTuple):
    """Where and when a record was appended. The offset is -1 where the broker does not know it any more."""

    offset: int
    at_ms: int


class LogWriter:
    """Appends records to partitions, each once and in order: an idempotent producer."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self._turn = asyncio.Lock()
        self._identity: ProducerIdentity | None = None
        self._sequences: dict[TopicPartition, int] = {}
        self._leaders: dict[TopicPartition, BrokerConnection] = {}

    def close(self) -> None:
        """Closes the connections to the leaders."""
        for leader in self._leaders.values():
            leader.close()
        self._leaders.clear()

    async def append(
        self,
        topic: str,
        records: Iterable[tuple[bytes, bytes | None]],
        *,
        seconds: float = WRITE_SECONDS,
        partition: int = 0,
    ) -> list[Appended]:
        """Writes the records to a partition and waits until all in-sync replicas have them.

        Returns where they are, in order. Raises ClusterFailure. The time includes that of waiting for other
        callers, so that their timeouts do not add up.
        """
        wanted = [InternalRecord(*record) for record in records]
        appended: list[Appended] = []
        try:
            async with asyncio.timeout(seconds), self._turn:
                await self._append_all(TopicPartition(topic, partition), wanted, appended)
        except TimeoutError:
            waiting = len(wanted) - len(appended)
            raise NoAnswer(
                f"{topic}: {waiting} of {len(wanted)} records were not acknowledged in {seconds:.0f} s"
            ) from None
        return appended

    async def _append_all(
        self, at: TopicPartition, wanted: Sequence[InternalRecord], appended: list[Appended]
    ) -> None:
        try:
            for batch in batches_of(wanted):
                base_offset, append_ms = await self._append(at, batch)
                at_ms = batch.max_timestamp if append_ms < 0 else append_ms
                appended += [
                    Appended(base_offset + place if base_offset >= 0 else -1, at_ms)
                    for place in range(batch.records)
                ]
        except BaseException:
            # Whether the last batch was written is not known, so its sequence can't be used again.
            self._identity = None
            self._sequences.clear()
            self._drop_leader(at)
            raise

    async def _append(self, at: TopicPartition, batch: Batch) -> Appended:
        """Sends the batch until it is acknowledged. Its append time is -1 if the producer's counts.

        The same sequence number is sent again, so a batch whose answer was lost is not written twice.
        """
        while True:
            try:
                return await self._send(at, batch)
            except RequestRefused as refused:
                if refused.code in _FORGOTTEN:
                    self._identity = None
                    self._sequences.clear()
                elif not refused.transient_for_new_topic:
                    raise
            except ClusterFailure as failure:
                if not failure.transient:
                    raise
            self._drop_leader(at)
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _send(self, at: TopicPartition, batch: Batch) -> Appended:
        if self._identity is None:
            identity = await self._client.ask(InitProducerIdRequest(None, 0))
            if isinstance(identity, ErrorCode):
                raise RequestRefused(identity)
            self._identity = identity
        leader = self._leaders.get(at)
        if leader is None or leader.closed:
            leader = self._leaders[at] = (await self._client.dial_leader(at))[0]
        sequence = self._sequences.get(at, 0)
        stamped = plain(
            batch._replace(
                producer_id=self._identity.producer_id,
                producer_epoch=self._identity.epoch,
                base_sequence=sequence,
            )
        )
        request = ProduceRequest(
            None, int(_PRODUCE_S * 1000), [ProducePartition(at.topic, at.partition, stamped)]
        )
        (produced,) = (await leader.call(request)).partitions
        if produced.error and produced.error is not ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            raise RequestRefused(produced.error, produced.message)
        self._sequences[at] = next_sequence(sequence, batch.records)
        return Appended(produced.base_offset, produced.log_append_time_ms)

    def _drop_leader(self, at: TopicPartition) -> None:
        leader = self._leaders.pop(at, None)
        if leader is not None:
            leader.close()


def unusable(client: ClusterClient, what: str, failure: ClusterFailure) -> Failure:
    """Returns a Failure that says why an internal topic can't be used."""
    return Failure(
        error(
            f"{what} at {client.name} cannot be used: {failure.why}",
            "the principal of this cluster needs CREATE, DESCRIBE, READ and WRITE on topics with the prefix "
            f"{naming.INTERNAL_PREFIX} (docs/operations.md), and the brokers must answer",
        )
    )
