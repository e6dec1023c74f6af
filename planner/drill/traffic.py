"""Real clients of a drill: producers that count what was acknowledged, consumer groups, and a reader."""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from planner.drill.load import DRILL_HEADER, DrillLoad
from planner.kafka import ClusterClient, ClusterEndpoint, ClusterFailure, run_at
from planner.kafka.librdkafka import client_settings, producer
from planner.kafka.log import TopicRecord, read
from planner.model.diagnostic import Failure, error
from runtime.kafka.protocol.metadata import AnyMetadataRequest

Ends = Mapping[tuple[str, int], int]  # the offset behind the last record of each partition

WITHIN_S = 60.0
_POLL_S = 0.1
_TICK_S = 0.02
_LOOK_S = 1.0


class DrillRecord(NamedTuple):
    """A record that was read. `id` tells it apart from all others: its header of the drill, or its value.

    A tombstone that a flow makes of a filtered record has neither, so its place tells it apart.
    """

    id: bytes
    value: bytes | None


class Acknowledged(NamedTuple):
    """An acknowledgement: its monotonic time, and where the record is."""

    at: float
    partition: int
    offset: int


class DrillProducer:
    """Writes records of a load to topics of one cluster.

    `acknowledged` has their ids by topic, each with its acknowledgement.
    """

    def __init__(self, endpoint: ClusterEndpoint, topics: Sequence[str], load: DrillLoad) -> None:
        self.acknowledged: dict[str, dict[bytes, Acknowledged]] = {topic: {} for topic in topics}
        self.cluster = endpoint.cluster
        self._load = load
        self._producer = producer(endpoint, WITHIN_S)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def writes(self) -> bool:
        """Returns whether it was started and not stopped."""
        return self._thread is not None and not self._stop.is_set()

    def write(self, records: int) -> None:
        """Writes so many records to each topic, and returns when all were acknowledged."""
        for _ in range(records):
            self._write_to_each()
        if self._producer.flush(WITHIN_S):
            raise Failure(error(f"{self.cluster} acknowledged no records within {WITHIN_S:g} s"))

    def start(self, rate: float) -> None:
        """Writes at a rate until `stop`."""

        def write() -> None:
            began, written = time.monotonic(), 0
            while not self._stop.wait(_TICK_S):
                while written < (time.monotonic() - began) * rate:
                    self._write_to_each()
                    written += 1
                self._producer.poll(0)

        self._thread = threading.Thread(target=write, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the writing. Records that were not acknowledged are given up."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self._producer.purge()
        self._producer.flush(1.0)

    def _write_to_each(self) -> None:
        for topic, acknowledged in self.acknowledged.items():
            record = self._load.next_record(self.cluster, topic)

            def delivered(
                failure: object,
                message: Message,
                id_: bytes = record.id,
                acknowledged: dict[bytes, Acknowledged] = acknowledged,
            ) -> None:
                if failure is None:
                    at = time.monotonic()
                    acknowledged[id_] = Acknowledged(at, message.partition() or 0, message.offset() or 0)

            headers = list(record.headers)
            try:
                self._producer.produce(
                    topic, record.value, record.key, on_delivery=delivered, headers=headers
                )
            except BufferError:  # the cluster is lost: nothing is acknowledged any more
                self._producer.poll(_TICK_S)


class DrillConsumer:
    """A consumer of a group that reads committed records and commits its offsets. Records are their ids.

    `counts` are the records that it has taken, by topic. `ends` are those of its topics when it began to read
    to the end, `first_at` is the monotonic time of the first record; None where there was none.
    """

    def __init__(self, endpoint: ClusterEndpoint, group: str, topics: Sequence[str]) -> None:
        self.counts = Counter(dict.fromkeys(topics, 0))
        self.ends: dict[tuple[str, int], int] = {}
        self.first_at: float | None = None
        self._topics = list(topics)
        self._consumer = Consumer(
            {
                **client_settings(endpoint),
                "group.id": group,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        self._consumer.subscribe(self._topics)

    def __enter__(self) -> "DrillConsumer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._consumer.close()

    def take(self, records: int, may_grow: Callable[[], bool] = lambda: True) -> list[bytes]:
        """Reads so many records, about as many of each topic, and commits behind exactly these.

        Topics with few records leave their share to the others. It returns fewer where the time is over, or
        all topics were read to their ends and `may_grow` says that nothing is written to them. It is called
        once: records that were read and not taken are left to the next consumer of the group.
        """
        unread: dict[str, deque[Message]] = {topic: deque() for topic in self._topics}
        share = -(-records // len(self._topics))
        deadline, look_at = time.monotonic() + WITHIN_S, time.monotonic() + _LOOK_S
        while time.monotonic() < deadline:
            if (message := self._poll()) is not None:
                unread[str(message.topic())].append(message)
            lacking = [topic for topic, messages in unread.items() if len(messages) < share]
            if not lacking:
                break
            if time.monotonic() > look_at:
                look_at = time.monotonic() + _LOOK_S
                enough = sum(map(len, unread.values())) >= records
                if (enough or not may_grow()) and self._is_at_end(lacking if enough else unread):
                    break
        ids: list[bytes] = []
        behind: dict[tuple[str, int], int] = {}  # the offset behind the last record that was taken
        while len(ids) < records and any(unread.values()):
            for topic, messages in unread.items():
                if messages and len(ids) < records:
                    message = messages.popleft()
                    self.counts[topic] += 1
                    ids.append(_id_of(message))
                    behind[topic, message.partition() or 0] = (message.offset() or 0) + 1
        if behind:
            offsets = [TopicPartition(*place, offset) for place, offset in behind.items()]
            self._consumer.commit(offsets=offsets, asynchronous=False)
        return ids

    def read_to_end(self) -> list[bytes]:
        """Reads from the group's offsets to the present end of its topics, and commits what was read."""
        ids: list[bytes] = []
        unread: Ends = {}
        deadline = time.monotonic() + WITHIN_S
        try:
            while not self.ends or not self._has_reached(unread):
                if time.monotonic() > deadline:
                    topics = ", ".join(self._topics)
                    raise Failure(error(f"a group could not read {topics} to the end in {WITHIN_S:g} s"))
                if (message := self._poll()) is not None:
                    self.first_at = self.first_at or time.monotonic()
                    ids.append(_id_of(message))
                if not self.ends and (assigned := self._consumer.assignment()):
                    spans = list(self._spans(assigned))
                    self.ends = {place: end for place, _, end in spans}
                    unread = {place: end for place, start, end in spans if start < end}
            if ids:
                self._consumer.commit(asynchronous=False)
        except KafkaException as failure:
            raise Failure(error(f"a group can't read its topics: {failure.args[0].str()}")) from None
        return ids

    def _poll(self) -> Message | None:
        message = self._consumer.poll(_POLL_S)
        return message if message is not None and message.error() is None else None

    def _spans(self, assigned: list[TopicPartition]) -> Iterator[tuple[tuple[str, int], int, int]]:
        """Yields the partitions, each with the group's offset and the end."""
        for place in self._consumer.committed(assigned, timeout=WITHIN_S):
            low, high = self._consumer.get_watermark_offsets(place, timeout=WITHIN_S)
            yield (place.topic, place.partition), place.offset if place.offset >= 0 else low, high

    def _has_reached(self, ends: Ends) -> bool:
        places = self._consumer.position([TopicPartition(*place) for place in ends]) if ends else []
        return all(place.offset >= ends[place.topic, place.partition] for place in places)

    def _is_at_end(self, topics: Collection[str]) -> bool:
        """Returns whether these topics were read to their present ends."""
        assigned = [place for place in self._consumer.assignment() if place.topic in topics]
        ends = {place: end for place, start, end in self._spans(assigned) if start < end} if assigned else {}
        return bool(assigned) and self._has_reached(ends)


def _id_of(message: Message) -> bytes:
    headers: Any = message.headers() or ()
    value: Any = message.value()  # bytes or None, though the types of librdkafka also know text
    return record_id(str(message.topic()), message.partition() or 0, message.offset() or 0, value, headers)


def record_id(
    topic: str,
    partition: int,
    offset: int,
    value: bytes | None,
    headers: Iterable[tuple[str, bytes | None]],
) -> bytes:
    """Returns what tells a record apart."""
    place = f"{topic}-{partition} @ {offset}".encode()
    return dict(headers).get(DRILL_HEADER, place if value is None else value) or b""


def partitions_at(
    endpoint: ClusterEndpoint, topic: str, ends: Ends | None = None
) -> dict[int, list[DrillRecord]]:
    """Returns the committed records of each partition in their order, up to its present end or this one."""

    async def partitions(cluster: ClusterClient) -> dict[int, list[TopicRecord]]:
        (described,) = (await cluster.ask(AnyMetadataRequest([topic]))).topics
        return {number: await read(cluster, topic, number) for number in sorted(described.partitions)}

    try:
        logs = run_at(endpoint, partitions, WITHIN_S)
    except ClusterFailure as failure:
        raise Failure(error(f"{topic} can't be read: {failure.why}", failure.hint)) from None
    return {
        number: [
            DrillRecord(record_id(topic, number, record.offset, record.value, record.headers), record.value)
            for record in records
            if ends is None or record.offset < ends.get((topic, number), record.offset + 1)
        ]
        for number, records in logs.items()
    }
