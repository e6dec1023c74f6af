"""Writes numbered records through many producers at once, and remembers what each was told of its records."""

import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests.checker.reader import partitions_of
from tests.checker.shapes import Shaped, Spec, digest, shaped
from tests.records import settled

PATIENCE = 120.0


class Sent(NamedTuple):
    number: int
    timestamp: int
    digest: bytes


@dataclass
class Written:
    """By partition. What the writer could not learn (a producer that died, a time-out) is in none of them."""

    committed: dict[int, list[Sent]] = field(default_factory=lambda: defaultdict(list))
    aborted: dict[int, list[Sent]] = field(default_factory=lambda: defaultdict(list))
    unknown: int = 0

    @property
    def records(self) -> int:
        return sum(len(sent) for sent in self.committed.values())


KINDS: list[dict[str, Any]] = [
    {"compression.type": "none", "linger.ms": 20},
    {"transactional.id": "", "compression.type": "none", "linger.ms": 5},
    {"compression.type": "lz4", "linger.ms": 20},
    {"compression.type": "none", "linger.ms": 0},
    {"transactional.id": "", "compression.type": "zstd", "linger.ms": 5},
    {"compression.type": "gzip", "linger.ms": 50},
    {"compression.type": "snappy", "linger.ms": 20},
    {"compression.type": "zstd", "linger.ms": 5},
]


def write(
    client: dict[str, Any],
    topic: str,
    spec: Spec | None = None,
    *,
    stop: threading.Event | None = None,
    written: Written | None = None,
) -> Written:
    """All of the spec's records, or those until `stop` is set; returns when every one is decided, and readers
    see it."""
    spec = spec or Spec()
    written = written or Written()
    stop = stop or threading.Event()
    dice = random.Random(spec.seed)
    partitions = partitions_of(client, topic)
    lanes = [_Lane(client, topic, at, spec, written) for at in range(spec.producers)]
    began = time.monotonic()
    for number in range(spec.first, spec.first + spec.records):
        if stop.is_set():
            break
        if spec.rate:
            due = began + (number - spec.first) / spec.rate
            stop.wait(max(due - time.monotonic(), 0))
        dice.choice(lanes).send(shaped(number, spec), dice.randrange(partitions), dice)
    for lane in lanes:
        lane.finish(commit=dice.random() < 0.8)
    settled(client, topic)
    return written


class _Lane:
    """One producer. A transactional one commits or aborts every few records; made anew when it failed."""

    def __init__(self, client: dict[str, Any], topic: str, at: int, spec: Spec, written: Written) -> None:
        kind = KINDS[at % len(KINDS)]
        self._transactional = "transactional.id" in kind
        self._settings = {
            "message.max.bytes": 8_000_000,
            "queue.buffering.max.kbytes": 65_536,
            "enable.idempotence": True,
            "transaction.timeout.ms": 30_000,
            "log_level": 2,
            **client,
            **kind,
        }
        if self._transactional:
            self._settings["transactional.id"] = f"checker-{topic}-{spec.seed}-{spec.first}-{at}"
        else:
            self._settings.pop("transaction.timeout.ms")
        self._topic = topic
        self._written = written
        self._producer: Producer | None = None
        self._open: list[tuple[int, Sent]] = []  # of the transaction
        self._failed = False

    def send(self, record: Shaped, partition: int, dice: random.Random) -> None:
        if self._transactional and len(self._open) >= dice.randrange(1, 60):
            self.finish(commit=dice.random() < 0.7)
        number, timestamp, key, value, headers = record
        sent = Sent(number, timestamp, digest(timestamp, key, value, headers))
        given: Any = headers
        while True:
            try:
                producer = self._ready()
                told = self._told(partition, sent)
                producer.produce(
                    self._topic, value, key, partition, on_delivery=told, timestamp=timestamp, headers=given
                )
            except BufferError:
                self._poll(0.1)
            except KafkaException:  # the transaction failed underneath: begin anew, with this record
                self._give_up()
            else:
                break
        if self._transactional:
            self._open.append((partition, sent))
        self._poll(0)

    def _poll(self, timeout: float) -> None:
        if self._producer is not None:
            self._producer.poll(timeout)

    def finish(self, *, commit: bool) -> None:
        if self._producer is None:
            return
        if not self._transactional:
            left = self._producer.flush(PATIENCE)
            assert not left, f"{left} records were not decided in {PATIENCE} s"
            return
        try:
            self._end(self._producer, commit=commit)
        except KafkaException:
            self._give_up()

    def _ready(self) -> Producer:
        if self._producer is None:
            self._producer = Producer(self._settings)
            if self._transactional:
                _retried(self._producer.init_transactions)
        if self._transactional and not self._open:
            self._producer.begin_transaction()
        return self._producer

    def _end(self, producer: Producer, *, commit: bool) -> None:
        if commit:
            try:
                _retried(producer.commit_transaction)
            except KafkaException as failure:
                if not failure.args[0].txn_requires_abort():
                    raise
                commit = False
        if not commit:
            # What was not sent yet would be forgotten: nothing aborted would stand in the log, and a broker
            # that knows of no transaction calls its end an invalid state.
            producer.flush(PATIENCE)
            _retried(producer.abort_transaction)
        decided = self._written.committed if commit else self._written.aborted
        for partition, sent in self._open:
            decided[partition].append(sent)
        self._open = []

    def _give_up(self) -> None:
        self._written.unknown += len(self._open)
        self._open = []
        self._producer = None

    def _told(self, partition: int, sent: Sent) -> Any:
        if self._transactional:
            return None

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self._written.committed[partition].append(sent)
            else:
                self._written.unknown += 1

        return delivered


def _retried(step: Any) -> None:
    limit = time.monotonic() + PATIENCE
    while True:
        try:
            step(PATIENCE / 4)
        except KafkaException as failure:
            if not failure.args[0].retriable() or time.monotonic() > limit:
                raise
        else:
            return


class Writing:
    """A writer in the background."""

    def __init__(self, client: dict[str, Any], topic: str, spec: Spec) -> None:
        self._stop = threading.Event()
        self._threads = ThreadPoolExecutor(1, "writer")
        self._written = Written()
        self._done = self._threads.submit(write, client, topic, spec, stop=self._stop, written=self._written)

    @property
    def written(self) -> Written:
        """Stops it, and waits until every record is decided."""
        self.stop()
        return self._done.result()

    @property
    def so_far(self) -> int:
        """How many are committed."""
        return self._written.records

    def wait_for(self, records: int, patience: float = PATIENCE) -> None:
        """Until so many are committed."""
        limit = time.monotonic() + patience
        while self.so_far < records:
            if self._done.done():
                self._done.result()
                raise AssertionError(f"the writer ended with {self._written.records} records")
            assert time.monotonic() < limit, f"{self._written.records} of {records} records in {patience} s"
            self._stop.wait(0.02)

    def stop(self) -> None:
        self._stop.set()
        self._threads.shutdown()


@contextmanager
def writing(client: dict[str, Any], topic: str, spec: Spec | None = None) -> Iterator[Writing]:
    """Writes until the block ends, or the spec's records are all written."""
    writer = Writing(client, topic, spec or Spec(records=10**9, rate=500))
    try:
        yield writer
    finally:
        writer.stop()
