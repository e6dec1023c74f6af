"""Real clients of a drill: producers that count what was acknowledged, consumer groups, and readers."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from planner.drill.load.records import DRILL_HEADER, LoadRecord, numbered
from planner.model.diagnostic import Failure, error

MakeRecord = Callable[[str, str, int], LoadRecord]  # of a cluster, a topic and a number

PATIENCE_S = 60.0
_POLL_S = 0.1
_TICK_S = 0.02
_READ = {"isolation.level": "read_committed", "auto.offset.reset": "earliest", "enable.auto.commit": False}


class DrillRecord(NamedTuple):
    """A record that was read. `id` tells it apart from all others: its header of the drill, or its value.

    A tombstone that a flow makes of a filtered record has neither, so its place tells it apart.
    """

    id: bytes
    key: bytes | None
    value: bytes | None


def read_record(message: Message) -> DrillRecord:
    """Returns a message as a record."""
    key, value = message.key(), message.value()
    place = f"{message.topic()}-{message.partition()} @ {message.offset()}"
    id_ = dict(message.headers() or ()).get(DRILL_HEADER, place if value is None else value)
    return DrillRecord(_bytes(id_) or b"", _bytes(key), _bytes(value))


def _bytes(content: str | bytes | None) -> bytes | None:
    """Returns what librdkafka gave: bytes, though its types also know text."""
    return content.encode() if isinstance(content, str) else content


def _of_number(cluster: str, _topic: str, number: int) -> LoadRecord:
    return numbered(cluster, number)


class DrillProducer:
    """Writes records to topics of one cluster, each with a number of its own.

    `acknowledged` has their ids by topic, each with the monotonic time of the acknowledgement; `places` has
    the partition and offset of each.
    """

    def __init__(
        self,
        cluster: str,
        client: Mapping[str, Any],
        topics: Sequence[str],
        numbers: "count[int]",
        make: MakeRecord = _of_number,
    ) -> None:
        self.acknowledged: dict[str, dict[bytes, float]] = {topic: {} for topic in topics}
        self.places: dict[bytes, tuple[int, int]] = {}
        self.cluster = cluster
        self._numbers = numbers
        self._make = make
        self._producer = Producer(
            {
                **client,
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": int(PATIENCE_S * 1000),
                "log_level": 0,
            }
        )
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def write(self, records: int) -> None:
        """Writes so many records to each topic, and returns when all were acknowledged."""
        for _ in range(records):
            self._write_one()
        if self._producer.flush(PATIENCE_S):
            raise Failure(error(f"{self.cluster} acknowledged no records within {PATIENCE_S:g} s"))

    def start(self, rate: float) -> None:
        """Writes at a rate until `stop`."""
        self._thread = threading.Thread(target=self._go_on, args=(rate,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the writing. Records that were not acknowledged are given up."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self._producer.purge()
        self._producer.flush(1.0)

    def ends(self) -> dict[tuple[str, int], int]:
        """Returns the offset behind the last acknowledged record of each partition."""
        found: dict[tuple[str, int], int] = {}
        for topic, acknowledged in self.acknowledged.items():
            for id_ in list(acknowledged):  # a load may go on
                partition, offset = self.places[id_]
                found[topic, partition] = max(found.get((topic, partition), 0), offset + 1)
        return found

    def _go_on(self, rate: float) -> None:
        began, written = time.monotonic(), 0
        while not self._stop.wait(_TICK_S):
            while written < (time.monotonic() - began) * rate:
                self._write_one()
                written += 1
            self._producer.poll(0)

    def _write_one(self) -> None:
        for topic, acknowledged in self.acknowledged.items():
            record = self._make(self.cluster, topic, next(self._numbers))

            def delivered(
                failure: object,
                message: Message,
                id_: bytes = record.id,
                to: dict[bytes, float] = acknowledged,
            ) -> None:
                if failure is None:
                    self.places[id_] = message.partition() or 0, message.offset() or 0
                    to[id_] = time.monotonic()

            headers = list(record.headers)
            try:
                self._producer.produce(
                    topic, record.value, record.key, on_delivery=delivered, headers=headers
                )
            except BufferError:  # the cluster is lost: nothing is acknowledged any more
                self._producer.poll(_TICK_S)


class DrillConsumer:
    """A consumer of a group that reads committed records and commits its place. Records are their ids."""

    def __init__(self, client: Mapping[str, Any], group: str, topics: Sequence[str]) -> None:
        self._consumer = Consumer({**client, **_READ, "group.id": group, "log_level": 0})
        self._consumer.subscribe(list(topics))

    def read(self, enough: Callable[[list[bytes]], bool], within_s: float = PATIENCE_S) -> list[bytes]:
        """Reads until it is enough or the time is over, and commits what was read."""
        found: list[bytes] = []
        deadline = time.monotonic() + within_s
        while not enough(found) and time.monotonic() < deadline:
            message = self._consumer.poll(_POLL_S)
            if message is not None and message.error() is None:
                found.append(read_record(message).id)
        if found:
            self._consumer.commit(asynchronous=False)
        return found

    def read_to_end(self, on_first: Callable[[], None]) -> list[bytes]:
        """Reads from where the group stands to the present end of its topics, and commits what was read."""
        found: list[bytes] = []
        ends: dict[tuple[str, int], int] | None = None
        deadline = time.monotonic() + PATIENCE_S
        try:
            while ends is None or not self._reached(ends):
                if time.monotonic() > deadline:
                    raise Failure(
                        error(f"a group could not read its topics to their end in {PATIENCE_S:g} s")
                    )
                message = self._consumer.poll(_POLL_S)
                if message is not None and message.error() is None:
                    if not found:
                        on_first()
                    found.append(read_record(message).id)
                if ends is None and (assigned := self._consumer.assignment()):
                    ends = self._ends(assigned)
            if found:
                self._consumer.commit(asynchronous=False)
        except KafkaException as failure:
            raise Failure(error(f"a group can't read its topics: {failure.args[0].str()}")) from None
        return found

    def _ends(self, assigned: list[TopicPartition]) -> dict[tuple[str, int], int]:
        """Returns the ends of the partitions that have records behind the group's offsets."""
        ends = {}
        for place in self._consumer.committed(assigned, timeout=PATIENCE_S):
            low, high = self._consumer.get_watermark_offsets(place, timeout=PATIENCE_S)
            if (place.offset if place.offset >= 0 else low) < high:
                ends[place.topic, place.partition] = high
        return ends

    def _reached(self, ends: dict[tuple[str, int], int]) -> bool:
        places = self._consumer.position([TopicPartition(*one) for one in ends]) if ends else []
        return all(one.offset >= ends[one.topic, one.partition] for one in places)

    def close(self) -> None:
        self._consumer.close()


def records_at(client: Mapping[str, Any], topic: str) -> list[DrillRecord]:
    """Returns all committed records of a topic, up to its present end."""
    return [record for records in partitions_at(client, topic).values() for record in records]


def partitions_at(client: Mapping[str, Any], topic: str) -> dict[int, list[DrillRecord]]:
    """Returns the committed records of each partition in their order, up to its present end."""
    consumer = Consumer({**client, **_READ, "group.id": "repl-drill-reader", "log_level": 0})
    try:
        known = consumer.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions
        found: dict[int, list[DrillRecord]] = {}
        for number in known:
            at = TopicPartition(topic, number)
            low, high = consumer.get_watermark_offsets(at, timeout=PATIENCE_S)
            found[number] = []
            if low < high:
                at.offset = low
                consumer.assign([at])
                found[number] = _until(consumer, at, high)
        return found
    except KafkaException as failure:
        raise Failure(error(f"{topic} can't be read: {failure.args[0].str()}")) from None
    finally:
        consumer.close()


def shows(client: Mapping[str, Any], ends: Mapping[tuple[str, int], int]) -> bool:
    """Returns whether consumers can read partitions up to these offsets."""
    consumer = Consumer({**client, **_READ, "group.id": "repl-drill-reader", "log_level": 0})
    try:
        return all(
            consumer.get_watermark_offsets(TopicPartition(*at), timeout=PATIENCE_S)[1] >= end
            for at, end in ends.items()
        )
    except KafkaException:
        return False
    finally:
        consumer.close()


def _until(consumer: Consumer, at: TopicPartition, end: int) -> list[DrillRecord]:
    """Reads a partition until its position reaches the end; markers of transactions are passed too."""
    found: list[DrillRecord] = []
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        message = consumer.poll(_POLL_S)
        if message is not None and message.error() is None:
            found.append(read_record(message))
        (place,) = consumer.position([at])
        if place.offset >= end:
            return found
    raise Failure(error(f"{at.topic}-{at.partition} could not be read to its end within {PATIENCE_S:g} s"))
