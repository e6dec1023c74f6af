"""Real clients of a drill: producers that count what was acknowledged, consumer groups, and readers."""

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from planner.model.diagnostic import Failure, error

PATIENCE_S = 60.0
_POLL_S = 0.1
_TICK_S = 0.02
_KEYS = 50
_READ = {"isolation.level": "read_committed", "auto.offset.reset": "earliest", "enable.auto.commit": False}


class DrillProducer:
    """Writes numbered records to topics of one cluster.

    `acknowledged` has their values by topic, each with the monotonic time of the acknowledgement.
    """

    def __init__(
        self, cluster: str, client: Mapping[str, Any], topics: Sequence[str], numbers: "count[int]"
    ) -> None:
        self.acknowledged: dict[str, dict[bytes, float]] = {topic: {} for topic in topics}
        self._cluster = cluster
        self._numbers = numbers
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
            raise Failure(error(f"{self._cluster} acknowledged no records within {PATIENCE_S:g} s"))

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

    def _go_on(self, rate: float) -> None:
        began, written = time.monotonic(), 0
        while not self._stop.wait(_TICK_S):
            while written < (time.monotonic() - began) * rate:
                self._write_one()
                written += 1
            self._producer.poll(0)

    def _write_one(self) -> None:
        for topic, acknowledged in self.acknowledged.items():
            number = next(self._numbers)
            value = json.dumps({"drill": number, "from": self._cluster}).encode()

            def delivered(
                failure: object, _: Message, value: bytes = value, to: dict[bytes, float] = acknowledged
            ) -> None:
                if failure is None:
                    to[value] = time.monotonic()

            try:
                self._producer.produce(topic, value, f"key-{number % _KEYS}", on_delivery=delivered)
            except BufferError:  # the cluster is lost: nothing is acknowledged any more
                self._producer.poll(_TICK_S)


class DrillConsumer:
    """A consumer of a group that reads committed records and commits its place."""

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
                found.append(message.value() or b"")
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
                    found.append(message.value() or b"")
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


def values_at(client: Mapping[str, Any], topic: str) -> list[bytes]:
    """Returns the values of all committed records of a topic, up to its present end."""
    consumer = Consumer({**client, **_READ, "group.id": "repl-drill-reader", "log_level": 0})
    try:
        known = consumer.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions
        found: list[bytes] = []
        for number in known:
            at = TopicPartition(topic, number)
            low, high = consumer.get_watermark_offsets(at, timeout=PATIENCE_S)
            if low < high:
                at.offset = low
                consumer.assign([at])
                found += _until(consumer, at, high)
        return found
    except KafkaException as failure:
        raise Failure(error(f"{topic} can't be read: {failure.args[0].str()}")) from None
    finally:
        consumer.close()


def _until(consumer: Consumer, at: TopicPartition, end: int) -> list[bytes]:
    """Reads a partition until its position reaches the end; markers of transactions are passed too."""
    found: list[bytes] = []
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        message = consumer.poll(_POLL_S)
        if message is not None and message.error() is None:
            found.append(message.value() or b"")
        (place,) = consumer.position([at])
        if place.offset >= end:
            return found
    raise Failure(error(f"{at.topic}-{at.partition} could not be read to its end within {PATIENCE_S:g} s"))
