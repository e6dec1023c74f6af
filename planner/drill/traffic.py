"""Real clients of a drill: producers that count what was acknowledged, consumer groups, and readers."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from planner.drill.load.records import DRILL_HEADER, LoadRecord, numbered
from planner.model.diagnostic import Failure, error

MakeRecord = Callable[[str, str, int], LoadRecord]  # of a cluster, a topic and a number
Ends = Mapping[tuple[str, int], int]  # the offset behind the last record of each partition

PATIENCE_S = 60.0
_POLL_S = 0.1
_LOOK_S = 1.0
_TICK_S = 0.02
_READ = {
    "isolation.level": "read_committed",
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "log_level": 0,
}


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


class Acknowledged(NamedTuple):
    """An acknowledgement: its monotonic time, and where the record is."""

    at: float
    partition: int
    offset: int


def _of_number(cluster: str, _topic: str, number: int) -> LoadRecord:
    return numbered(cluster, number)


class DrillProducer:
    """Writes records to topics of one cluster, each with a number of its own.

    `acknowledged` has their ids by topic, each with its acknowledgement.
    """

    def __init__(
        self,
        cluster: str,
        client: Mapping[str, Any],
        topics: Sequence[str],
        numbers: "count[int]",
        make: MakeRecord = _of_number,
    ) -> None:
        self.acknowledged: dict[str, dict[bytes, Acknowledged]] = {topic: {} for topic in topics}
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

    def ends(self) -> Ends:
        """Returns the offset behind the last acknowledged record of each partition."""
        ends: dict[tuple[str, int], int] = {}
        for topic, acknowledged in self.acknowledged.items():
            for record in list(acknowledged.values()):  # a load may go on
                place = topic, record.partition
                ends[place] = max(ends.get(place, 0), record.offset + 1)
        return ends

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


class Passage(NamedTuple):
    """What a consumer read from its group's offsets to the ends that its topics had when it began.

    `first_at` is the monotonic time of the first record; None where there was none.
    """

    ids: list[bytes]
    ends: Ends
    first_at: float | None


class DrillConsumer:
    """A consumer of a group that reads committed records and commits its offsets. Records are their ids."""

    def __init__(self, client: Mapping[str, Any], group: str, topics: Sequence[str]) -> None:
        self.counts = Counter(dict.fromkeys(topics, 0))  # records that it has taken, by topic
        self._topics = list(topics)
        self._consumer = Consumer({**client, **_READ, "group.id": group})
        self._consumer.subscribe(self._topics)

    def __enter__(self) -> "DrillConsumer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._consumer.close()

    def take(
        self, records: int, may_grow: Callable[[], bool] = lambda: True, within_s: float = PATIENCE_S
    ) -> list[bytes]:
        """Reads so many records, about as many of each topic, and commits behind exactly these.

        Topics with few records leave their share to the others. It returns fewer where the time is over, or
        all topics were read to their ends and `may_grow` says that nothing is written to them.
        """
        ids: list[bytes] = []
        behind: dict[tuple[str, int], int] = {}  # the offset behind the last record that was taken
        shares = Counter(
            {
                topic: records // len(self._topics) + (number < records % len(self._topics))
                for number, topic in enumerate(self._topics)
            }
        )
        held: dict[tuple[str, int], int] = {}  # paused partitions, each with the first offset left out
        deadline, look_at = time.monotonic() + within_s, time.monotonic() + _LOOK_S
        while len(ids) < records and time.monotonic() < deadline:
            message = self._consumer.poll(_POLL_S)
            if message is not None and message.error() is None:
                topic, partition, offset = (
                    str(message.topic()),
                    message.partition() or 0,
                    message.offset() or 0,
                )
                if shares[topic] > 0:
                    shares[topic] -= 1
                    self.counts[topic] += 1
                    ids.append(read_record(message).id)
                    behind[topic, partition] = offset + 1
                elif (topic, partition) not in held:
                    held[topic, partition] = offset
                    self._consumer.pause([TopicPartition(topic, partition)])
            elif time.monotonic() > look_at:
                look_at = time.monotonic() + _LOOK_S
                if not self._at_end(held):
                    continue
                if held:
                    shares.update(dict.fromkeys({topic for topic, _ in held}, records))
                    for (topic, partition), offset in held.items():
                        self._consumer.seek(TopicPartition(topic, partition, offset))
                        self._consumer.resume([TopicPartition(topic, partition)])
                    held.clear()
                elif not may_grow():
                    break
        if behind:
            offsets = [TopicPartition(*place, offset) for place, offset in behind.items()]
            self._consumer.commit(offsets=offsets, asynchronous=False)
        return ids

    def read_to_end(self) -> Passage:
        """Reads from the group's offsets to the present end of its topics, and commits what was read."""
        ids: list[bytes] = []
        first_at, ends, wanted = None, None, dict[tuple[str, int], int]()
        deadline = time.monotonic() + PATIENCE_S
        try:
            while ends is None or not self._reached(wanted):
                if time.monotonic() > deadline:
                    topics = ", ".join(self._topics)
                    raise Failure(error(f"a group could not read {topics} to the end in {PATIENCE_S:g} s"))
                message = self._consumer.poll(_POLL_S)
                if message is not None and message.error() is None:
                    first_at = first_at or time.monotonic()
                    ids.append(read_record(message).id)
                if ends is None and (assigned := self._consumer.assignment()):
                    ends = {}
                    for place, start, end in self._spans(assigned):
                        ends[place] = end
                        if start < end:
                            wanted[place] = end
            if ids:
                self._consumer.commit(asynchronous=False)
        except KafkaException as failure:
            raise Failure(error(f"a group can't read its topics: {failure.args[0].str()}")) from None
        return Passage(ids, ends, first_at)

    def _spans(self, assigned: list[TopicPartition]) -> Iterator[tuple[tuple[str, int], int, int]]:
        """Yields the partitions, each with the group's offset and the end."""
        for place in self._consumer.committed(assigned, timeout=PATIENCE_S):
            low, high = self._consumer.get_watermark_offsets(place, timeout=PATIENCE_S)
            yield (place.topic, place.partition), place.offset if place.offset >= 0 else low, high

    def _reached(self, ends: Ends) -> bool:
        places = self._consumer.position([TopicPartition(*place) for place in ends]) if ends else []
        return all(place.offset >= ends[place.topic, place.partition] for place in places)

    def _at_end(self, held: Iterable[tuple[str, int]]) -> bool:
        """Returns whether every assigned partition that is not held was read to its present end."""
        assigned = self._consumer.assignment()
        reading = [place for place in assigned if (place.topic, place.partition) not in set(held)]
        ends = {place: end for place, start, end in self._spans(reading) if start < end} if reading else {}
        return bool(assigned) and self._reached(ends)


@contextmanager
def _reader(client: Mapping[str, Any]) -> Iterator[Consumer]:
    consumer = Consumer({**client, **_READ, "group.id": "repl-drill-reader"})
    try:
        yield consumer
    finally:
        consumer.close()


def partitions_at(
    client: Mapping[str, Any], topic: str, ends: Ends | None = None
) -> dict[int, list[DrillRecord]]:
    """Returns the committed records of each partition in their order, up to its present end or this one."""
    try:
        with _reader(client) as consumer:
            records: dict[int, list[DrillRecord]] = {}
            for number in consumer.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions:
                place = TopicPartition(topic, number)
                low, high = _watermarks(consumer, place)
                end = high if ends is None else min(high, ends.get((topic, number), high))
                place.offset = low
                records[number] = _read_until(consumer, place, end) if low < end else []
            return records
    except KafkaException as failure:
        raise Failure(error(f"{topic} can't be read: {failure.args[0].str()}")) from None


def _watermarks(consumer: Consumer, place: TopicPartition) -> tuple[int, int]:
    """Returns the first offset and the end of a partition. A leader that moves is asked again."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return consumer.get_watermark_offsets(place, timeout=PATIENCE_S)
        except KafkaException as failure:
            if not failure.args[0].retriable() or time.monotonic() > deadline:
                raise
            time.sleep(_LOOK_S)


def shows(client: Mapping[str, Any], ends: Ends) -> bool:
    """Returns whether consumers can read partitions up to these offsets."""
    try:
        with _reader(client) as consumer:
            return all(
                consumer.get_watermark_offsets(TopicPartition(*place), timeout=PATIENCE_S)[1] >= end
                for place, end in ends.items()
            )
    except KafkaException:
        return False


def _read_until(consumer: Consumer, start: TopicPartition, end: int) -> list[DrillRecord]:
    """Reads a partition until its position reaches the end; markers of transactions are passed too."""
    records: list[DrillRecord] = []
    consumer.assign([start])
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        message = consumer.poll(_POLL_S)
        if message is not None and message.error() is None and (message.offset() or 0) < end:
            records.append(read_record(message))
        (place,) = consumer.position([start])
        if place.offset >= end:
            return records
    raise Failure(
        error(f"{start.topic}-{start.partition} could not be read to its end within {PATIENCE_S:g} s")
    )
