"""On real brokers: what was rewritten and stamped is accepted, and librdkafka reads the same on both."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from runtime import batch
from runtime.batch import Codec, OutgoingBatch, RewriteReason, RewriteSpec, prepare
from runtime.contract.records.provenance import ClusterPartition, Origin, origins
from runtime.lab.lab import Lab
from tests.records import create_topic, settled, wait_for
from tests.runtime.batch.forge import legacy_bytes, record, sets
from tests.runtime.batch.raw import Copied, Raw, copy

pytestmark = pytest.mark.integration

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
PAST = 1_500_000_000_000
NOW = 1_800_000_000_000
DEADLINE = 60.0
Seen = tuple[int, int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]


class Pair:
    """dc1 and dc2, and what a test does with them."""

    def __init__(self, source: dict[str, Any], there: dict[str, Any]) -> None:
        self.source, self.there = source, there

    def topics(self, name: str, **config: str) -> None:
        for client, settings in ((self.source, config), (self.there, {})):
            create_topic(client, name, config={"retention.ms": "-1", **settings})

    def copy(self, topic: str, **fields: Any) -> Copied:
        wanted = RewriteSpec(batch.TopicPartition(topic, 0), **{"max_batch": 1_048_588, **fields})

        async def run() -> Copied:
            source = await Raw.connect(self.source["bootstrap.servers"])
            there = await Raw.connect(self.there["bootstrap.servers"])
            try:
                return await copy(source, there, topic, topic, wanted, NOW)
            finally:
                await source.close()
                await there.close()

        return asyncio.run(run())

    async def send(self, topic: str, outgoing: Sequence[OutgoingBatch]) -> None:
        there = await Raw.connect(self.there["bootstrap.servers"])
        try:
            await there.send_in_transaction(topic, outgoing, f"copy-of-{topic}")
        finally:
            await there.close()

    def same(self, topic: str, copied: Copied) -> list[Seen]:
        """Both sides hold the same records, in order, at the mapped offsets (R6)."""
        left, right = read(self.source, topic), read(self.there, topic)
        assert [one[1:] for one in right] == [one[1:] for one in left]
        assert [copied.offsets[one[0]] for one in left] == [one[0] for one in right]
        return left


def read(client: dict[str, Any], topic: str) -> list[Seen]:
    settled(client, topic)
    consumer = Consumer(
        {**client, "group.id": "reader", "isolation.level": "read_committed", "enable.auto.commit": False}
    )
    try:
        here = TopicPartition(topic, 0, 0)
        _, end = consumer.get_watermark_offsets(here, timeout=60)
        consumer.assign([here])
        found: list[Seen] = []
        limit = time.monotonic() + DEADLINE
        while consumer.position([here])[0].offset < end:
            assert time.monotonic() < limit, "the end was not reached"
            found += [seen(message) for message in consumer.consume(500, timeout=0.05)]
        return found
    finally:
        consumer.close()


def seen(message: Message) -> Seen:
    assert message.error() is None
    _, at = message.timestamp()
    headers: Any = message.headers() or []
    return message.offset() or 0, at, message.partition() or 0, message.key(), message.value(), list(headers)


def write(client: dict[str, Any], topic: str, count: int = 40, /, **config: Any) -> None:
    producer = Producer({**client, "linger.ms": 20, "enable.idempotence": True, **config})
    for at in range(count):
        produce(producer, topic, at)
    assert producer.flush(60) == 0


def produce(producer: Producer, topic: str, at: int) -> None:
    shapes: list[tuple[bytes | None, bytes | None]] = [
        (b"key-%d" % (at % 7), b"value %d " % at * 20),
        (b"gone-%d" % (at % 5), None),
        (None, b""),
        (b"", b"x" * at),
    ]
    key, value = shapes[at % 4]
    headers: Any = [
        (f"h{n}", None if n % 3 == 0 else b"" if n % 3 == 1 else b"v" * n) for n in range(at % 5 * 4)
    ]
    producer.produce(topic, value, key, 0, headers=headers, timestamp=PAST + at * 1000 - (at % 3) * 5000)


@pytest.fixture
def pair(lab: Lab) -> Pair:
    return Pair(lab.clusters["dc1"].client, lab.clusters["dc2"].client)


def begin(client: dict[str, Any], name: str, **config: Any) -> Producer:
    producer = Producer({**client, "transactional.id": name, "linger.ms": 5, **config})
    producer.init_transactions(60)
    producer.begin_transaction()
    return producer


@pytest.mark.parametrize("codec", CODECS)
def test_headers_are_added_and_too_large_batches_split(pair: Pair, fresh: Callable[[str], str], codec: str):
    topic = fresh("headers")
    pair.topics(topic, **{"max.message.bytes": "1000000"})
    write(pair.source, topic, 60, **{"compression.type": codec})
    place = ClusterPartition("dc1-id", topic, 0)
    copied = pair.copy(topic, provenance=place, max_batch=3000)
    assert all(out.batch.size <= 3000 for out in copied.outgoing)
    left, right = read(pair.source, topic), read(pair.there, topic)
    assert [(*one[1:5], one[5][:-1]) for one in right] == [one[1:] for one in left]
    assert [origins(one[5]) for one in right] == [(Origin(*place, one[0], NOW),) for one in left]
    assert [copied.offsets[one[0]] for one in left] == [one[0] for one in right]


@pytest.mark.parametrize("codec", CODECS)
def test_the_brokers_time_becomes_each_records_own(pair: Pair, fresh: Callable[[str], str], codec: str):
    topic = fresh("append-time")
    pair.topics(topic, **{"message.timestamp.type": "LogAppendTime"})
    write(pair.source, topic, 40, **{"compression.type": codec})
    copied = pair.copy(topic)
    assert all(RewriteReason.APPEND_TIME in out.reason for out in copied.outgoing)
    assert min(one[1] for one in pair.same(topic, copied)) > PAST + 10**9


KEEN = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.001",
    "segment.ms": "100",
    "delete.retention.ms": "600000",
}


def test_compacted_topics_arrive_without_their_holes(pair: Pair, fresh: Callable[[str], str]):
    topic = fresh("compacted")
    pair.topics(topic, **KEEN)
    for at, codec in enumerate(CODECS):
        keyed(pair.source, topic, range(at * 60, at * 60 + 60), codec)
    # The active segment is never compacted, and a new one begins by the records' time.
    keyed(pair.source, topic, [LAST], "none")
    kept = len({key_of(at) for at in (*range(len(CODECS) * 60), LAST)})
    wait_for(lambda: len(read(pair.source, topic)) == kept)
    copied = pair.copy(topic)
    assert {out.batch.codec for out in copied.outgoing if RewriteReason.HOLES in out.reason} == set(Codec)
    pair.same(topic, copied)


LAST = 1003


def key_of(at: int) -> bytes:
    return b"%d" % (at if at % 10 == 3 else at % 7)


def keyed(client: dict[str, Any], topic: str, numbers: Sequence[int], codec: str) -> None:
    producer = Producer({**client, "linger.ms": 20, "compression.type": codec})
    for at in numbers:
        value = None if at % 5 == 0 else b"value %d" % at
        producer.produce(topic, value, key_of(at), 0, timestamp=PAST + at * 1000)
    assert producer.flush(60) == 0


@pytest.mark.parametrize("magic", [0, 1])
def test_what_was_written_in_old_formats_is_accepted(pair: Pair, fresh: Callable[[str], str], magic: int):
    """Brokers of today don't take them, but old segments hold them; v0 knew no timestamps."""
    topic = fresh("old")
    pair.topics(topic)
    old = [record(at, b"%d" % at, timestamp=PAST + at, key=None if at % 2 else b"") for at in range(6)]
    parts = []
    for codec in (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4):
        data = bytearray(legacy_bytes(magic, codec, enumerate(old)))
        if codec != Codec.NONE:
            data[:8] = (5).to_bytes(8, "big")
        parts.append(bytes(data))
    spec = RewriteSpec(batch.TopicPartition(topic, 0), 1_000_000)
    outgoing = [out for part in parts for out in prepare(sets(part), spec, NOW).outgoing]
    asyncio.run(pair.send(topic, outgoing))
    expected: list[Any] = [(one.timestamp if magic else -1, 0, one.key, one.value, []) for one in old]
    assert [one[1:] for one in read(pair.there, topic)] == expected * 4
