"""A topic as a read_committed consumer sees it, by librdkafka, which shares nothing with the copy."""

import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple, Self

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from runtime.contract.records.provenance import HEADER, Origin, decode
from tests.checker.shapes import Headers, digest
from tests.records import passing

PATIENCE = 60.0
KEY_SHOWN = 40


class Seen(NamedTuple):
    offset: int
    timestamp: int
    digest: bytes
    content: bytes  # the digest without the timestamp
    key: str  # as a report shows it
    hop: Origin | None = None  # what the header of the last hop says


# A record's key, value and headers → its value and headers in the copy; None for one that is not copied.
Change = Callable[[bytes | None, bytes | None, Headers], tuple[bytes | None, Headers] | None]
Log = dict[int, list[Seen]]  # by partition, in the order that the consumer gave them


class Reader:
    """All partitions from their beginning; `drain` as often as one likes."""

    def __init__(
        self, client: dict[str, Any], topic: str, *, hops: int = 0, change: Change | None = None
    ) -> None:
        """`hops`: so many provenance headers stand behind a record's own. `change`: which records count, and
        with which values and headers.
        """
        self._change = change
        self.log: Log = {}
        self._hops = hops
        self._topic = topic
        self._consumer = Consumer(
            {
                **client,
                "group.id": "checker",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.message.max.bytes": 10_000_000,
                "queued.max.messages.kbytes": 65_536,
                "fetch.wait.max.ms": 50,
            }
        )
        self._ended: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()

    @property
    def records(self) -> int:
        return sum(len(seen) for seen in self.log.values())

    def drain(self, *, settle: float = 0.2, patience: float = PATIENCE) -> Log:
        """Read until every partition has ended and nothing more has come for `settle` seconds.

        It fails where nothing comes for `patience` seconds.
        """
        self._assign_new()
        quiet = time.monotonic()
        while len(self._ended) < len(self.log) or time.monotonic() - quiet < settle:
            assert time.monotonic() < quiet + patience, (
                f"{self._topic}: no record and no end in {patience} s, ended are {self._ended}"
            )
            for message in self._consumer.consume(1000, timeout=min(settle, 0.05)):
                quiet = time.monotonic()
                self._take(message)
        return self.log

    def _assign_new(self) -> None:
        """Partitions may have been added since."""
        described = self._consumer.list_topics(self._topic, timeout=PATIENCE).topics[self._topic]
        new = sorted(set(described.partitions) - set(self.log))
        if new:
            self._consumer.incremental_assign([TopicPartition(self._topic, at, 0) for at in new])
            self.log.update((at, []) for at in new)

    def _take(self, message: Message) -> None:
        partition, error = message.partition(), message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            assert passing(error), error
            return
        assert partition is not None
        if error is not None:
            self._ended.add(partition)
            return
        self._ended.discard(partition)
        given: Any = message.headers() or []
        value, headers = message.value(), list(given)
        if self._change is not None:
            copied = self._change(message.key(), value, headers)
            if copied is None:
                return
            value, headers = copied
        self.log[partition].append(_seen(message, value, headers, self._hops))


def _seen(message: Message, value: bytes | None, headers: Headers, hops: int) -> Seen:
    hop = None
    for _ in range(hops):
        name, origin = headers.pop() if headers else ("", None)
        hop = decode(origin) if name == HEADER else None
    key = message.key()
    _, timestamp = message.timestamp()
    shown = "null" if key is None else repr(key[:KEY_SHOWN])[1:]
    whole, content = digest(timestamp, key, value, headers), digest(None, key, value, headers)
    return Seen(message.offset() or 0, timestamp, whole, content, shown, hop)


def read(
    client: dict[str, Any],
    topic: str,
    *,
    hops: int = 0,
    change: Change | None = None,
    patience: float = PATIENCE,
) -> Log:
    with Reader(client, topic, hops=hops, change=change) as reader:
        return reader.drain(patience=patience)


def partitions_of(client: dict[str, Any], topic: str) -> int:
    described = AdminClient(client).list_topics(topic, timeout=PATIENCE).topics[topic]
    return len(described.partitions)
