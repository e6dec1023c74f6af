"""Producers of a soak: every record carries a number, and the number of each acknowledged record is known."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count, cycle
from typing import Any, NamedTuple

from confluent_kafka import KafkaException, Message, Producer

from tests.records import PATIENCE_S

_TICK_S = 0.02
_FILLER = b"." * 1_000


class Place(NamedTuple):
    """A partition of a topic, by the topic's name at its home."""

    topic: str
    partition: int


@dataclass
class Sent:
    """Numbers of records since the last comparison. `unknown` were sent, and never acknowledged."""

    acknowledged: dict[Place, list[int]] = field(default_factory=dict)
    unknown: dict[Place, set[int]] = field(default_factory=dict)

    def records(self) -> int:
        return sum(map(len, self.acknowledged.values()))


def number_of(value: bytes | None) -> int:
    """Returns the number of a record. ValueError for a record that no producer of a soak wrote."""
    return int((value or b"").split(b" ", 1)[0])


class Load:
    """Writes records in turn to all partitions of some topics, at one cluster at a time.

    `names` maps a topic to its name at the cluster, so that the mirror is written after a failover.
    """

    def __init__(self, rate: float) -> None:
        self.sent = Sent()
        self.total = 0
        self._rate = rate
        self._numbers = count(1)
        self._stop = threading.Event()
        self._lost = False
        self._left = 0
        self._thread: threading.Thread | None = None

    def start(
        self, client: Mapping[str, Any], names: Mapping[str, str], partitions: Mapping[str, int]
    ) -> None:
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, args=(client, dict(names), dict(partitions)))
        self._thread.start()

    def stop(self, *, lost: bool = False) -> None:
        """Ends the writing. All records are acknowledged then, unless the cluster is lost."""
        if self._thread is None:
            return
        self._lost = lost
        self._stop.set()
        self._thread.join()
        self._thread = None
        assert lost or not self._left, f"{self._left} records were not acknowledged"

    def _run(
        self, client: Mapping[str, Any], names: Mapping[str, str], partitions: Mapping[str, int]
    ) -> None:
        producer = Producer(
            {
                **client,
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": 2_147_483_647,  # a broker that is away comes back
                "log_level": 0,
            }
        )
        places = [Place(topic, number) for topic in names for number in range(partitions[topic])]
        turns, written, began = cycle(places), 0, time.monotonic()
        while not self._stop.wait(_TICK_S):
            while written < (time.monotonic() - began) * self._rate:
                self._write(producer, next(turns), names)
                written += 1
            producer.poll(0)
        if self._lost:
            producer.purge()
            producer.flush(1.0)
        else:
            self._left = producer.flush(2 * PATIENCE_S)

    def _write(self, producer: Producer, place: Place, names: Mapping[str, str]) -> None:
        number = next(self._numbers)
        unknown = self.sent.unknown.setdefault(place, set())
        acknowledged = self.sent.acknowledged.setdefault(place, [])

        def delivered(failure: object, _: Message) -> None:
            if failure is None:
                unknown.discard(number)
                acknowledged.append(number)
                self.total += 1

        unknown.add(number)
        value = b"%d %b" % (number, _FILLER[: number % 900])
        try:
            producer.produce(
                names[place.topic], value, b"%d" % (number % 97), place.partition, on_delivery=delivered
            )
        except (
            BufferError,
            KafkaException,
        ):  # the queue is full, or the topic not known yet: it was not sent
            unknown.discard(number)
            producer.poll(_TICK_S)
