"""Real clients of a drill: producers that count what was acknowledged, consumer groups, and a reader."""

import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import islice, zip_longest
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from planner.drill.load import DRILL_HEADER, DrillLoad
from planner.kafka import ClusterEndpoint
from planner.kafka.librdkafka import client_settings, producer
from planner.model.diagnostic import Failure, error

Ends = Mapping[tuple[str, int], int]  # the offset behind the last record of each partition

WITHIN_S = 60.0
_POLL_S = 0.1
_TICK_S = 0.02


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
        self._refused = Counter[str]()  # records, by the reason
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def writes(self) -> bool:
        """Returns whether it was started and not stopped."""
        return self._thread is not None and not self._stop.is_set()

    def write(self, records: int) -> None:
        """Writes so many records to each topic, and returns when all were acknowledged.

        Failure where a record was refused, or not acknowledged in time.
        """
        for _ in range(records):
            self._write_to_each()
        if self._producer.flush(WITHIN_S):
            raise Failure(error(f"{self.cluster} acknowledged no records within {WITHIN_S:g} s"))
        if self._refused:
            (reason, _), *_others = self._refused.most_common()
            raise Failure(error(f"{self.cluster} did not take {self._refused.total():,} records: {reason}"))

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
                failure: KafkaError | None,
                message: Message,
                topic: str = topic,
                id_: bytes = record.id,
                acknowledged: dict[bytes, Acknowledged] = acknowledged,
            ) -> None:
                if failure is None:
                    at = time.monotonic()
                    acknowledged[id_] = Acknowledged(at, message.partition() or 0, message.offset() or 0)
                else:
                    self._refused[f"{topic}: {failure.str()}"] += 1

            headers = list(record.headers)
            while not self._stop.is_set():
                try:
                    self._producer.produce(
                        topic, record.value, record.key, on_delivery=delivered, headers=headers
                    )
                except BufferError:  # too many are not acknowledged yet
                    self._producer.poll(_TICK_S)
                else:
                    break


class DrillConsumer(AbstractContextManager["DrillConsumer"]):
    """A consumer of a group that reads committed records and commits its offsets. Records are their ids.

    `ends` are the offsets at which partitions ended. `first_at` is the monotonic time of the first record;
    None where there was none.
    """

    def __init__(self, endpoint: ClusterEndpoint, group: str, topics: Sequence[str]) -> None:
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
                "enable.partition.eof": True,
            }
        )
        self._consumer.subscribe(self._topics)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._consumer.close()

    def take(self, records: int, *, growing: bool = True) -> dict[str, list[bytes]]:
        """Reads so many records, about as many of each topic, and commits behind exactly these.

        Topics with few records leave their share to the others. It returns fewer where the time is over, or
        all topics were read to their ends and are not `growing`. It is called once: records that were read
        and not taken are left to the next consumer of the group.
        """
        unread: dict[str, list[Message]] = {topic: [] for topic in self._topics}
        share = -(-records // len(self._topics))
        deadline = time.monotonic() + WITHIN_S
        while lacking := [topic for topic, messages in unread.items() if len(messages) < share]:
            enough = sum(map(len, unread.values())) >= records
            at_end = (enough or not growing) and self._is_at_end(lacking if enough else self._topics)
            if at_end or time.monotonic() > deadline:
                break
            if (message := self._poll()) is not None:
                unread[str(message.topic())].append(message)
        turns = (message for turn in zip_longest(*unread.values()) for message in turn if message is not None)
        taken = list(islice(turns, records))
        if behind := {_place(message): (message.offset() or 0) + 1 for message in taken}:
            offsets = [TopicPartition(*place, offset) for place, offset in behind.items()]
            self._consumer.commit(offsets=offsets, asynchronous=False)
        ids: dict[str, list[bytes]] = {topic: [] for topic in self._topics}
        for message in taken:
            ids[str(message.topic())].append(_id_of(message))
        return ids

    def read_to_end(self) -> list[bytes]:
        """Reads from the group's offsets to the present end of its topics, and commits what was read."""
        ids: list[bytes] = []
        ends: dict[tuple[str, int], int] = {}
        deadline = time.monotonic() + WITHIN_S
        try:
            while not self._is_at_end(self._topics, ends):
                if time.monotonic() > deadline:
                    topics = ", ".join(self._topics)
                    raise Failure(error(f"a group could not read {topics} to the end in {WITHIN_S:g} s"))
                if (message := self._poll()) is not None:
                    self.first_at = self.first_at or time.monotonic()
                    ids.append(_id_of(message))
                ends = self.ends | ends  # what is written meanwhile is not waited for
            if ids:
                self._consumer.commit(asynchronous=False)
        except KafkaException as failure:
            raise Failure(error(f"a group can't read its topics: {failure.args[0].str()}")) from None
        self.ends = ends
        return ids

    def _poll(self) -> Message | None:
        """Returns the next record; None where there is none yet. It keeps which partitions are at an end."""
        message = self._consumer.poll(_POLL_S)
        if message is None:
            return None
        failure = message.error()
        if failure is None:
            self.ends.pop(_place(message), None)
            return message
        if failure.code() == KafkaError._PARTITION_EOF:
            self.ends[_place(message)] = message.offset() or 0
        return None

    def _is_at_end(self, topics: Collection[str], ends: Ends | None = None) -> bool:
        """Returns whether the group has these topics, and has read each of their partitions completely."""
        assigned = [place for place in self._consumer.assignment() if place.topic in topics]
        read_ends = self.ends if ends is None else ends
        return bool(assigned) and all((place.topic, place.partition) in read_ends for place in assigned)


def _place(message: Message) -> tuple[str, int]:
    return str(message.topic()), message.partition() or 0


def _id_of(message: Message) -> bytes:
    headers: Any = message.headers() or ()
    value: Any = message.value()  # bytes or None, though the types of librdkafka also know text
    return record_id(*_place(message), message.offset() or 0, value, headers)


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
