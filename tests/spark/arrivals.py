"""How long each partition of a mirror brought nothing to a reader of committed records."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from tests.records import PATIENCE_S, passing, wait_for, watermarks

_AT_ONCE = 500


class Arrivals:
    """Reads a topic from its end on, in a thread, until the block ends.

    A pause of a partition is the time between two records, as they come to the reader; also the one that
    has not ended yet.
    """

    def __init__(self, client: Mapping[str, Any], topic: str) -> None:
        self._consumer = Consumer(
            {
                **client,
                "group.id": "arrivals",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 50,
            }
        )
        partitions = sorted(self._consumer.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions)
        self._last: dict[int, float] = {}
        self._longest: dict[int, float] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read, name="arrivals")
        self._error: BaseException | None = None
        places = [TopicPartition(topic, one) for one in partitions]
        for place in places:
            _, place.offset = watermarks(self._consumer, topic, place.partition)
        self._consumer.assign(places)
        self.begin(partitions)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()
        if self._error is not None and error is None:
            raise self._error

    def begin(self, partitions: Iterable[int] = ()) -> None:
        """Forgets the pauses before now."""
        with self._lock:
            now = time.monotonic()
            self._last = dict.fromkeys(partitions or self._last, now)
            self._longest = dict.fromkeys(self._last, 0.0)

    def longest(self, partitions: Iterable[int] | None = None) -> float:
        """The longest pause of these partitions, in seconds; 0 without any."""
        with self._lock:
            now = time.monotonic()
            chosen = self._last if partitions is None else partitions
            return max((max(self._longest[one], now - self._last[one]) for one in chosen), default=0.0)

    def wait_for_all(self, within_s: float) -> None:
        """Returns when each partition has brought a record that comes from now on."""
        began = time.monotonic()
        wait_for(lambda: not self.silent_since(began), within_s, about=lambda: self.silent_since(began))

    def silent_since(self, began: float) -> list[int]:
        """The partitions that have brought no record since then."""
        if self._error is not None:
            raise self._error
        with self._lock:
            return [one for one, last in self._last.items() if last <= began]

    def _read(self) -> None:
        try:
            while not self._stop.is_set():
                messages = self._consumer.consume(_AT_ONCE, timeout=0.1)
                with self._lock:
                    for message in messages:
                        self._take(message, time.monotonic())
        except BaseException as error:  # noqa: BLE001 - raised again where it is asked for
            self._error = error

    def _take(self, message: Message, now: float) -> None:
        error, partition = message.error(), message.partition()
        if error is not None:
            if error.code() != KafkaError._PARTITION_EOF and not passing(error):
                raise AssertionError(error)
            return
        assert partition is not None
        self._longest[partition] = max(self._longest[partition], now - self._last[partition])
        self._last[partition] = now
