"""A cluster whose brokers send the batches of logs as Kafka does: for what fetches many partitions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runtime.batch import walk
from runtime.contract.client.settings import WireSettings, wire_settings
from runtime.contract.records.ledger import UnreadableRecord
from runtime.contract.spec.naming import TopicPartition
from runtime.contract.spec.naming import TopicPartition as At
from runtime.kafka.errors import Disconnected, ErrorCode
from runtime.kafka.protocol.fetch import FetchedPartition, FetchFrom, FetchRequest, FetchResponse
from runtime.kafka.protocol.metadata import NO_LEADER, Partition, TopicMetadata
from runtime.kafka.protocol.offsets import EARLIEST, ListedOffset, ListOffsetsRequest

HERE = TopicPartition("a log", 0)


@dataclass(frozen=True, slots=True)
class PartitionLog:
    """The batches of a partition. `error` answers each fetch. `end` is the log end if no batch reaches it.

    `aborted` are the producers of aborted transactions, each with the first offset.
    """

    batches: Sequence[bytes] = ()
    leader: int = 1
    start: int = 0
    end: int = -1
    error: ErrorCode = ErrorCode.NONE
    aborted: tuple[tuple[int, int], ...] = ()

    @property
    def next_offset(self) -> int:
        sets = walk(b"".join(self.batches), HERE).sets
        return max([self.start, self.end, *(one.next_offset for one in sets)])

    def read(self, offset: int, most: int, *, whole: bool) -> bytes:
        """At most `most` bytes from the batch with the offset on, or with `whole` at least that batch."""
        left = [one for one in self.batches if walk(one, HERE).sets[0].next_offset > offset]
        if not left or (len(left[0]) > most and not whole):
            return b""
        return b"".join(left)[: max(most, len(left[0]))]


@dataclass(slots=True)
class PartitionLogs:
    """`silent` brokers answer nothing. `asked` and `sizes` are of the fetches that others answered."""

    logs: Mapping[At, PartitionLog]
    ids: Mapping[str, bytes]
    silent: Collection[int] = ()
    asked: list[FetchRequest] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    doubted: list[str] = field(default_factory=list)
    gathered: dict[Any, Any] = field(default_factory=dict)
    settings: WireSettings = field(default_factory=lambda: wire_settings("one:9092", {}))

    async def topics(self, names: Iterable[str], fresh: bool = False) -> dict[str, TopicMetadata]:
        return {name: self.topic(name) for name in names}

    def topic(self, name: str) -> TopicMetadata:
        partitions = {
            at.partition: Partition(at.partition, log.leader, 5, (1,), (1,))
            for at, log in self.logs.items()
            if at.topic == name
        }
        return TopicMetadata(name, self.ids[name], ErrorCode.NONE, False, partitions)

    def leader(self, topic: str, partition: int) -> Partition | None:
        found = self.topic(topic).partitions.get(partition)
        return found if found is not None and found.leader != NO_LEADER else None

    def doubt(self, topic: str) -> None:
        self.doubted.append(topic)

    async def call(self, node: int, request: Any, purpose: str, within: float | None) -> Any:
        if node in self.silent:
            raise Disconnected(f"broker {node}", "it is silent", sent=True)
        if isinstance(request, ListOffsetsRequest):
            ends = {
                at: self.logs[at].start if time == EARLIEST else self.logs[at].next_offset
                for at, time in request.times.items()
            }
            return {at: ListedOffset(end, -1, 5) for at, end in ends.items()}
        assert isinstance(request, FetchRequest)
        self.asked.append(request)
        room, whole, answers = request.max_bytes, True, []
        for (topic_id, partition), start in request.partitions.items():
            answer = self._fetched(topic_id, partition, start, room, whole=whole)
            room -= min(room, len(answer.records))
            whole = whole and not len(answer.records)
            answers.append(answer)
        self.sizes.append(sum(len(one.records) for one in answers))
        return FetchResponse(0, ErrorCode.NONE, 0, tuple(answers))

    def _fetched(
        self, topic_id: bytes, partition: int, start: FetchFrom, room: int, *, whole: bool
    ) -> FetchedPartition:
        name = next((name for name, one in self.ids.items() if one == topic_id), None)
        log = self.logs.get(At(name or "", partition))
        error, end, records = ErrorCode.UNKNOWN_TOPIC_ID, -1, b""
        if log is not None:
            error, end = log.error, log.next_offset
            if not error and not log.start <= start.offset <= end:
                error = ErrorCode.OFFSET_OUT_OF_RANGE
            if not error:
                records = log.read(start.offset, min(room, start.max_bytes), whole=whole)
        aborted = log.aborted if log is not None else ()
        return FetchedPartition(topic_id, partition, error, end, end, 0, aborted, -1, memoryview(records))


class Producers:
    """A producer directory: the flow of each producer id. The ids in `unreadable` can't be looked up."""

    def __init__(self, flows: Mapping[int, str], unreadable: Mapping[int, Exception]) -> None:
        self._flows = flows
        self._unreadable = unreadable

    def unknown(self, producer_ids: Iterable[int]) -> bool:
        return any(one in self._unreadable for one in producer_ids)

    async def resolve(self, producer_ids: Iterable[int]) -> None:
        for one in producer_ids:
            raise self._unreadable.get(one, UnreadableRecord("unknown"))

    def flow_of(self, producer_id: int) -> str | None:
        return self._flows.get(producer_id)
