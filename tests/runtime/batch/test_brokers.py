"""On real brokers: what a slot rewrites is accepted, and librdkafka reads the same on both sides."""

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from runtime.batch import Batch, Codec, RewriteSpec, prepare
from runtime.batch.layout import HEADER_SIZE
from runtime.batch.stamp import StampedBatch
from runtime.contract.records.provenance import HEADER
from runtime.contract.spec.naming import TopicPartition
from runtime.ledger.transaction_writer import TransactionWriter, send
from tests.records import alter_topic, wait_for
from tests.runtime.batch.forge import legacy_bytes, overflowing, record, sets
from tests.runtime.slot.workload import CODECS, LONG_AGO, rows
from tests.runtime.slot.world import Copying, Row, Side, copying

pytestmark = pytest.mark.integration
Fresh = Callable[[str], str]


def write(orders: Copying) -> None:
    """Records of every shape, by a producer of each compression."""
    some = random.Random(7)
    for codec in CODECS:
        orders.source.write(orders.topic, rows(some, 40, 1), linger_ms=20, compression_type=codec)


def test_headers_are_added_and_batches_over_the_limit_are_split(sides: dict[str, Side], fresh: Fresh) -> None:
    orders = copying(sides, fresh, provenance="headers", max_message_bytes=3_000)
    alter_topic(orders.destination.client, orders.topic, {"max.message.bytes": "3000"})
    write(orders)
    orders.copy_through()
    (copies,), (originals,) = (side.read(orders.topic) for side in (orders.destination, orders.source))
    assert [row.headers[-1][0] for row in copies] == [HEADER] * len(originals)
    assert [replace(row, headers=row.headers[:-1]) for row in copies] == originals


def test_the_brokers_time_becomes_each_records_own(sides: dict[str, Side], fresh: Fresh) -> None:
    orders = copying(sides, fresh)
    alter_topic(orders.source.client, orders.topic, {"message.timestamp.type": "LogAppendTime"})
    write(orders)
    orders.copy_through()
    orders.assert_equal()
    assert min(row.timestamp for row in orders.destination.read(orders.topic)[0]) > LONG_AGO + 10**9


def test_a_timestamp_that_overflows_stops_no_slot(sides: dict[str, Side], fresh: Fresh) -> None:
    """A client may write any base timestamp: a broker checks the sum, in 64 bits."""
    orders = copying(sides, fresh)
    now = int(time.time() * 1000)

    async def forge() -> None:
        async with await orders.source.open() as cluster:
            for base in (-(1 << 63), (1 << 63) - 1, now):
                data = overflowing(0, base, now, now - 1)
                batch = StampedBatch(data[:HEADER_SIZE], memoryview(data)[HEADER_SIZE:])
                await send(cluster, TopicPartition(orders.topic, 0), batch)

    asyncio.run(forge())
    orders.copy_through()
    orders.assert_equal()
    assert [row.timestamp for row in orders.destination.read(orders.topic)[0]] == [now, now - 1] * 3


KEEN = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.001",
    "segment.ms": "100",
    "delete.retention.ms": "600000",
}


def test_compacted_topics_arrive_without_their_holes(sides: dict[str, Side], fresh: Fresh) -> None:
    orders = copying(sides, fresh)
    alter_topic(orders.source.client, orders.topic, KEEN)
    for first, codec in zip(range(0, 300, 60), CODECS, strict=True):
        orders.source.write(orders.topic, map(keyed, range(first, first + 60)), compression_type=codec)
    # The active segment is never compacted, and a new one begins by the records' time.
    orders.source.write(orders.topic, [keyed(1003)])
    kept = len({keyed(at)["key"] for at in (*range(300), 1003)})

    def compacted() -> list[Row]:
        return orders.source.read(orders.topic)[0]

    wait_for(lambda: len(compacted()) == kept)
    assert compacted()[-1].offset > kept
    orders.copy_through()
    orders.assert_equal()


def keyed(at: int) -> dict[str, Any]:
    """One key in ten is written once."""
    key, value = b"%d" % (at if at % 10 == 3 else at % 7), None if at % 5 == 0 else b"value %d" % at
    return {"key": key, "value": value, "timestamp": LONG_AGO + at * 1000, "partition": 0}


@pytest.mark.parametrize("magic", [0, 1])
async def test_what_was_written_in_old_formats_is_accepted(
    sides: dict[str, Side], fresh: Fresh, magic: int
) -> None:
    """Brokers of today don't take them, but old segments hold them; v0 knew no timestamps."""
    topic, side = fresh("old"), sides["dc2"]
    side.create(topic)
    old = [record(at, b"%d" % at, timestamp=LONG_AGO + at, key=None if at % 2 else b"") for at in range(6)]
    at = TopicPartition(topic, 0)
    batches: list[Batch] = []
    for codec in (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4):
        data = bytearray(legacy_bytes(magic, codec, enumerate(old)))
        if codec != Codec.NONE:
            data[:8] = (5).to_bytes(8, "big")
        prepared = prepare(sets(bytes(data)), RewriteSpec(at, 1_000_000), LONG_AGO)
        batches += [out.batch for out in prepared.outgoing]
    async with await side.open() as cluster:
        writer = await TransactionWriter.open(cluster, fresh("writer"))
        await writer.commit({}, {at: batches})
    assert side.read(topic)[0] == [row(one, magic) for one in old] * 4


def row(one: Any, magic: int) -> Row:
    return Row(0, one.timestamp if magic else -1, one.key, one.value)
