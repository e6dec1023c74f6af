"""The producers of a drill: a record that is not taken is a failure, and none is dropped."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, Message

from planner.drill import traffic
from planner.drill.load import DrillLoad
from planner.drill.traffic import DrillProducer
from planner.kafka import ClusterEndpoint
from planner.model.diagnostic import Failure


class Accepted:
    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 7


class FakeProducer:
    """Answers each record in turn. Before each of them its queue is full once."""

    def __init__(self, answers: Sequence[KafkaError | None]) -> None:
        self.answers = list(answers)
        self.full = True

    def produce(self, *_: object, on_delivery: Callable[[Any, Message], None], **__: object) -> None:
        self.full = not self.full
        if not self.full:
            raise BufferError
        on_delivery(self.answers.pop(0), cast(Message, Accepted()))

    def poll(self, _seconds: float) -> None: ...

    def flush(self, _seconds: float) -> int:
        return 0


def drill_producer(monkeypatch: pytest.MonkeyPatch, *answers: KafkaError | None) -> DrillProducer:
    monkeypatch.setattr(traffic, "producer", lambda *_: FakeProducer(answers))
    return DrillProducer(ClusterEndpoint("dc1", "127.0.0.1:1"), ["orders"], DrillLoad())


def test_records_that_find_a_full_queue_are_written_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = drill_producer(monkeypatch, None, None)
    producer.write(2)
    assert len(producer.acknowledged["orders"]) == 2


def test_records_that_a_cluster_refuses_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
    producer = drill_producer(monkeypatch, None, refused, refused)
    with pytest.raises(Failure, match=r"dc1 did not take 2 records: orders: .*too large"):
        producer.write(3)
