"""Copies a topic at least once with confluent-kafka alone: python -m tests.bench.copy.librdkafka_process FILE

Once a second it waits for all deliveries and then commits the consumed offsets. So after a kill some records
are copied twice, and none is lost. It ends at SIGTERM, or with an error at the first record that is not
delivered.
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.bench.copy.librdkafka import Copy

_AT_ONCE = 5_000
_IDLE_S = 0.05  # how long a poll waits for the first record
_COMMIT_EVERY_S = 1.0
_FLUSH_S = 60.0


class Copier:
    def __init__(self, copy: Copy) -> None:
        self._topic = copy.mirror_topic
        self._room = int(copy.producer["queue.buffering.max.messages"])
        self._failed: KafkaError | None = None
        self._positions: dict[int, int] = {}
        self._consumer = Consumer(copy.consumer)
        self._producer = Producer({**copy.producer, "on_delivery": self._delivered})
        self._gather_s = copy.gather_s
        self._consumer.subscribe([copy.topic])
        self._source = copy.topic
        self._ended = False

    def end(self, *_: object) -> None:
        self._ended = True

    def run(self) -> None:
        """Copies until `end`. Raises KafkaException where a record can't be read or is not delivered."""
        committed = time.monotonic()
        while not self._ended:
            messages = self._consumed()
            if messages:
                self._produce(messages)
            self._producer.poll(0)
            if time.monotonic() - committed > _COMMIT_EVERY_S:
                self._commit()
                committed = time.monotonic()
        self._commit()
        self._consumer.close()

    def _consumed(self) -> list[Message]:
        """Returns the next records: those of some time, or those that are there as soon as there is one."""
        if self._gather_s:
            return self._consumer.consume(_AT_ONCE, self._gather_s)
        first = self._consumer.poll(_IDLE_S)
        return [first, *self._consumer.consume(_AT_ONCE - 1, 0)] if first is not None else []

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        self._failed = self._failed or error

    def _produce(self, messages: list[Message]) -> None:
        for message in messages:
            if (error := message.error()) is not None:
                raise KafkaException(error)
        while len(self._producer) > self._room - len(messages):
            self._producer.poll(0.02)
        for message in messages:
            self._producer.produce(
                self._topic,
                message.value(),
                message.key(),
                partition=_partition(message),
                timestamp=message.timestamp()[1],
                headers=message.headers() or [],
            )
        for message in messages:
            if (offset := message.offset()) is not None:
                self._positions[_partition(message)] = offset + 1

    def _commit(self) -> None:
        """Commits the consumed offsets after all of the records before them were delivered."""
        left = self._producer.flush(_FLUSH_S)
        if self._failed is not None:
            raise KafkaException(self._failed)
        if left:
            raise SystemExit(f"{self._topic}: {left} records were not delivered in {_FLUSH_S:.0f} s")
        offsets = [TopicPartition(self._source, *position) for position in self._positions.items()]
        if offsets:
            self._consumer.commit(offsets=offsets, asynchronous=False)


def _partition(message: Message) -> int:
    partition = message.partition()
    assert partition is not None, "only a message with an error has no partition"
    return partition


def main(file: str) -> None:
    copier = Copier(msgspec.json.decode(Path(file).read_bytes(), type=Copy))
    signal.signal(signal.SIGTERM, copier.end)
    copier.run()


if __name__ == "__main__":
    main(sys.argv[1])
