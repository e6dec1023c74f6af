"""Topics and groups, the same for both sides: written in two halves, committed after each."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from confluent_kafka import (
    ConsumerGroupTopicPartitions,  # noqa: TID251 - commits alone
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from tests.records import create_topic, wait_for

PARTITIONS: Final = 2
_BATCH: Final = 20  # records in a transaction
_COMPACTED: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "100",
}


@dataclass(frozen=True, slots=True)
class Shape:
    """A topic, and its group. `stands`: what part of each partition's records the group has read after
    the first half is written, and in the end; None where it never commits.
    """

    name: str
    records: int
    stands: tuple[tuple[float, float] | None, ...]
    config: Mapping[str, str] = field(default_factory=dict)
    keys: int | None = None
    transactional: bool = False
    pause_s: float = 0.0

    @property
    def topic(self) -> str:
        return f"offsets-{self.name}"

    @property
    def group(self) -> str:
        return f"offsets-{self.name}-app"


SHAPES: Final = (
    Shape("low-volume", 40, ((0.2, 0.7), (0.2, 0.7)), pause_s=0.05),
    Shape("far-behind", 10_000, ((0.01, 0.05), (0.02, 0.08))),
    Shape("halfway", 10_000, ((0.25, 0.5), (0.3, 0.6))),
    Shape("at-the-end", 10_000, ((0.5, 1.0), (0.5, 1.0))),
    Shape("partly", 4_000, ((0.3, 0.8), None)),
    Shape("compacted", 4_000, ((0.2, 0.5), (0.2, 0.9)), config=_COMPACTED, keys=100),
    Shape("transactional", 4_000, ((0.3, 0.6), (0.3, 0.9)), transactional=True),
)

Written = dict[tuple[str, int], dict[bytes, int]]  # by topic and partition: where each value lies


class Source:
    """The source as the applications use it."""

    def __init__(self, client: Mapping[str, Any]) -> None:
        self._client = dict(client)
        self._admin = AdminClient(self._client)
        self._numbers = {shape.topic: itertools.count() for shape in SHAPES}
        self.written: Written = {(shape.topic, one): {} for shape in SHAPES for one in range(PARTITIONS)}

    def create(self) -> None:
        for shape in SHAPES:
            create_topic(self._client, shape.topic, PARTITIONS, config={"retention.ms": "-1", **shape.config})

    def write_half(self) -> None:
        for shape in SHAPES:
            producer = self._producer(shape)
            records = self._records(shape)
            while some := tuple(itertools.islice(records, _BATCH)):
                if shape.transactional:
                    self._transaction(producer, shape, some)
                else:
                    self._produce(producer, shape, some)
            assert producer.flush(60) == 0

    def commit(self, half: int) -> None:
        """Where each group stands, as an administrator commits: nobody is connected."""
        asked = []
        for shape in SHAPES:
            offsets = [
                TopicPartition(shape.topic, partition, self._offset(shape, partition, part[half]))
                for partition, part in enumerate(shape.stands)
                if part is not None
            ]
            asked.append(ConsumerGroupTopicPartitions(shape.group, offsets))
        for one in asked:
            wait_for(partial(self._committed, one))

    def _committed(self, asked: ConsumerGroupTopicPartitions) -> bool:
        """Not yet where the broker still opens the topic of the groups."""
        (done,) = self._admin.alter_consumer_group_offsets([asked]).values()
        try:
            return not any(at.error for at in done.result(30).topic_partitions)
        except KafkaException:
            return False

    def _offset(self, shape: Shape, partition: int, part: float) -> int:
        """Behind so many of the partition's records."""
        offsets = sorted(self.written[shape.topic, partition].values())
        return offsets[-1] + 1 if part >= 1 else offsets[int(part * len(offsets))]

    def _producer(self, shape: Shape) -> Producer:
        config = {**self._client, "linger.ms": 5, "enable.idempotence": True}
        if not shape.transactional:
            return Producer(config)
        producer = Producer({**config, "transactional.id": f"{shape.topic}-{time.time_ns()}"})
        producer.init_transactions(30)
        return producer

    def _records(self, shape: Shape) -> Iterator[tuple[int, bytes | None, bytes]]:
        numbers = self._numbers[shape.topic]
        for number in itertools.islice(numbers, shape.records // 2):
            key = b"k%d" % (number % shape.keys) if shape.keys else None
            yield number % PARTITIONS, key, b"%s-%d" % (shape.name.encode(), number)

    def _transaction(self, producer: Producer, shape: Shape, some: tuple[Any, ...]) -> None:
        """One of four is aborted."""
        producer.begin_transaction()
        aborts = int(some[0][2].rsplit(b"-", 1)[1]) // _BATCH % 4 == 3
        self._produce(producer, shape, some)
        assert producer.flush(30) == 0
        if aborts:
            producer.abort_transaction(30)
            for partition, _, value in some:
                del self.written[shape.topic, partition][value]
        else:
            producer.commit_transaction(30)

    def _produce(self, producer: Producer, shape: Shape, some: tuple[Any, ...]) -> None:
        for partition, key, value in some:
            producer.produce(shape.topic, value, key, partition=partition, on_delivery=self._lies)
        producer.poll(0)
        if shape.pause_s:
            producer.flush(30)
            time.sleep(shape.pause_s * len(some))

    def _lies(self, problem: object, message: Message) -> None:
        assert problem is None, problem
        topic, partition, value, offset = (
            message.topic(),
            message.partition(),
            message.value(),
            message.offset(),
        )
        assert topic is not None
        assert partition is not None
        assert value is not None
        assert offset is not None
        self.written[topic, partition][value] = offset
