"""What can't be read of one flow stops that flow, and no other one of the same partition (R7)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from msgspec.structs import replace

from runtime.contract.records import provenance
from runtime.contract.records.advance import first_progress
from runtime.contract.records.job_status import PartitionState as State
from runtime.contract.records.ledger import (
    Generation,
    GenerationKey,
    LedgerKey,
    LedgerValue,
    PartitionKey,
    ProgressKey,
    Segment,
    SegmentKey,
    UnreadableRecord,
    encode_key,
    encode_value,
    partition_of,
)
from runtime.contract.records.provenance import FlowProducer
from runtime.contract.spec import naming
from runtime.kafka.records import InternalRecord
from runtime.ledger.ledger import Ledger, ProducerDirectory
from runtime.ledger.offset_maps import OffsetMapReader
from runtime.ledger.records import TopicReplaced
from tests.fakes.internal_topics import InternalTopics
from tests.runtime.slot.world import Driver, Side, assigned, at_end, flow_spec, until

GOOD, BAD = PartitionKey("good", "orders", 0), PartitionKey("bad", "orders", 0)
NEWER = b"\x02of a newer version"
PROGRESS = first_progress(
    generation=1,
    source_topic_id=b"s" * 16,
    destination_topic="orders",
    destination_topic_id=b"d" * 16,
    position=7,
    destination_end=0,
    now_ms=1,
)
GENERATION = Generation(1, "job", "active", "driver", [], "dc1", "dc2", 1)
SEGMENT = Segment(0, 1, 0, 1, b"")


def stored(key: LedgerKey, value: LedgerValue) -> InternalRecord:
    return InternalRecord(encode_key(key), encode_value(value))


def ledger_of(*records: InternalRecord) -> InternalTopics:
    good = (stored(GenerationKey("good"), GENERATION), stored(ProgressKey(GOOD), PROGRESS))
    segment = stored(SegmentKey(GOOD, 0, 0), SEGMENT)
    bad = InternalRecord(encode_key(SegmentKey(BAD, 0, 0)), NEWER)
    return InternalTopics({naming.LEDGER: [*records, *good], naming.OFFSET_MAP: [bad, segment]})


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), 20))


@pytest.mark.parametrize(
    "record",
    [
        InternalRecord(encode_key(ProgressKey(BAD)), NEWER),
        InternalRecord(b'["newer","bad","orders",0]', b"?"),
        InternalRecord(b'["progress","bad"]', b"?"),
        InternalRecord(b"no key of ours", b"?"),
    ],
    ids=["value", "kind", "shape", "foreign"],
)
def test_an_unreadable_record_concerns_its_own_flow_only(record: InternalRecord) -> None:
    async def work() -> None:
        ledger = await Ledger.open(ledger_of(record))  # type: ignore[arg-type]
        await ledger.decided("good")
        assert ledger.all_progress("good") == {GOOD: PROGRESS}
        assert ledger.orphans("good") == {}
        if b"bad" in record.key:
            with pytest.raises(UnreadableRecord):
                ledger.all_progress("bad")
        else:
            assert ledger.all_progress("bad") == {}

    run(work)


def test_an_unreadable_segment_concerns_its_own_flow_at_every_refresh() -> None:
    async def work() -> None:
        topics = ledger_of()
        maps = OffsetMapReader(topics, await Ledger.open(topics))  # type: ignore[arg-type]
        for _ in range(2):
            with pytest.raises(UnreadableRecord):
                await maps.refresh("bad")
            await maps.refresh("good")
            assert maps.segments(GOOD) == {SegmentKey(GOOD, 0, 0): SEGMENT.span()}

    run(work)


def test_a_replaced_ledger_is_reported_once_and_then_read_again() -> None:
    async def work() -> None:
        topics = ledger_of()
        ledger = await Ledger.open(topics)  # type: ignore[arg-type]
        await ledger.refresh("good")
        topics.replaced.add(naming.LEDGER)
        topics.grow(naming.LEDGER, stored(ProgressKey(GOOD), PROGRESS))
        with pytest.raises(TopicReplaced):
            await ledger.refresh("good")
        await ledger.refresh("good")
        assert ledger.all_progress("good") == {GOOD: PROGRESS}

    run(work)


def test_an_unreadable_producer_record_stops_only_batches_of_that_producer_each_time() -> None:
    known = FlowProducer("flow", "dc1", "dc1-id", flow_spec("flow").rename)
    topics = InternalTopics(
        {
            naming.PRODUCERS: [
                InternalRecord(provenance.encode_producer_key(5), NEWER),
                InternalRecord(provenance.encode_producer_key(6), provenance.encode_producer(known)),
            ]
        }
    )

    async def work() -> None:
        directory = ProducerDirectory(topics)  # type: ignore[arg-type]
        for _ in range(2):
            with pytest.raises(UnreadableRecord):
                await directory.resolve({5, 7})
            assert directory.unknown({5})
        await directory.resolve({6, 7})
        assert not directory.unknown({6, 7})

    run(work)


def test_an_unreadable_producer_key_stops_batches_of_every_producer() -> None:
    topics = InternalTopics({naming.PRODUCERS: [InternalRecord(b"newer", b"?")]})

    async def work() -> None:
        directory = ProducerDirectory(topics)  # type: ignore[arg-type]
        with pytest.raises(UnreadableRecord):
            await directory.resolve({7})

    run(work)


@pytest.mark.integration
def test_a_slot_copies_one_flow_while_the_ledger_of_another_cannot_be_read(
    sides: dict[str, Side], fresh: Callable[[str], str]
) -> None:
    """First a partition whose progress can't be read, beside one that can; then a whole flow."""
    good, bad, topic = fresh("good"), fresh("bad"), fresh("orders")
    for side in sides.values():
        side.create(topic, 2)
        side.create(f"{topic}.bad", 2)
    sides["dc1"].write(topic, [{"value": b"1", "partition": one} for one in (0, 1)])
    sides["dc1"].write(f"{topic}.bad", [{"value": b"1", "partition": one} for one in (0, 1)])
    driver = Driver(sides, "dc2", fresh("job"))

    async def scenario() -> None:
        one = await driver.take_over(flow_spec(good), assigned(good, topic, 2))
        other = await driver.take_over(flow_spec(bad), assigned(bad, f"{topic}.bad", 2))
        both = replace(
            other, flows={**one.flows, **other.flows}, partitions=[*one.partitions, *other.partitions]
        )
        await asyncio.to_thread(poison, ProgressKey(PartitionKey(bad, f"{topic}.bad", 1)))
        async with driver.running(both) as slot:
            await until(
                slot,
                lambda status: (
                    status.state is State.LEDGER_MISSING
                    if (status.flow, status.partition) == (bad, 1)
                    else at_end([1, 1])(status)
                ),
            )
        await asyncio.to_thread(poison, GenerationKey(bad))
        async with driver.running(both) as slot:
            await asyncio.to_thread(
                sides["dc1"].write, topic, [{"value": b"2", "partition": one} for one in (0, 1)]
            )
            await until(
                slot,
                lambda status: (
                    status.state is State.LEDGER_MISSING and "version 02" in status.why
                    if status.flow == bad
                    else at_end([2, 2])(status)
                ),
            )

    def poison(key: LedgerKey) -> None:
        partitions = len(sides["dc2"].admin().list_topics(naming.LEDGER).topics[naming.LEDGER].partitions)
        row = {"key": encode_key(key), "value": NEWER, "partition": partition_of(bad, partitions)}
        sides["dc2"].write(naming.LEDGER, [row])

    asyncio.run(scenario())
