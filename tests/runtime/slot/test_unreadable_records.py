"""What can't be read of one flow stops that flow, and no other one of the same partition (R7)."""

from __future__ import annotations

import asyncio

import pytest

from runtime.contract.records import provenance
from runtime.contract.records.ledger import (
    Generation,
    GenerationKey,
    PartitionKey,
    ProgressKey,
    SegmentKey,
    UnreadableRecord,
    encode_key,
)
from runtime.contract.records.offset_map import Span
from runtime.contract.records.provenance import FlowProducer
from runtime.contract.spec import naming
from runtime.kafka.errors import BrokerError
from runtime.kafka.records import InternalRecord
from runtime.ledger.ledger import Ledger, ProducerDirectory
from runtime.ledger.offset_maps import OffsetMaps
from runtime.ledger.records import TopicReplaced
from tests.fakes.clock import jumping
from tests.fakes.internal_topics import InternalTopics, stored
from tests.fakes.progress import progress
from tests.runtime.slot.world import flow_spec
from tests.waiting import until

GOOD, BAD = PartitionKey("good", "orders", 0), PartitionKey("bad", "orders", 0)
NEWER = b"\x02of a newer version"
PROGRESS = progress(7)
GENERATION = Generation(1, "job", "active", "driver", [], "dc1", "dc2", 1)
SEGMENT = Span(0, 1, 0, 1, b"")


def ledger_of(*records: InternalRecord) -> InternalTopics:
    good = stored({GenerationKey("good"): GENERATION, ProgressKey(GOOD): PROGRESS})
    bad = InternalRecord(encode_key(SegmentKey(BAD, 0, 0)), NEWER)
    segments = [bad, *stored({SegmentKey(GOOD, 0, 0): SEGMENT})]
    return InternalTopics({naming.LEDGER: [*records, *good], naming.OFFSET_MAP: segments})


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
async def test_an_unreadable_record_concerns_its_own_flow_only(record: InternalRecord) -> None:
    ledger = await Ledger.open(ledger_of(record))  # type: ignore[arg-type]
    await ledger.decided("good")
    assert ledger.all_progress("good") == {GOOD: PROGRESS}
    assert ledger.orphans("good") == {}
    if b"bad" in record.key:
        with pytest.raises(UnreadableRecord):
            ledger.all_progress("bad")
    else:
        assert ledger.all_progress("bad") == {}


async def test_an_unreadable_segment_concerns_its_own_flow_at_every_refresh() -> None:
    topics = ledger_of()
    maps = OffsetMaps(topics, await Ledger.open(topics))  # type: ignore[arg-type]
    for _ in range(2):
        with pytest.raises(UnreadableRecord):
            await maps.refresh("bad")
        await maps.refresh("good")
        assert maps.segments(GOOD) == {SegmentKey(GOOD, 0, 0): SEGMENT}


async def test_a_replaced_ledger_is_reported_once_and_then_read_again() -> None:
    topics = ledger_of()
    ledger = await Ledger.open(topics)  # type: ignore[arg-type]
    await ledger.refresh("good")
    topics.replaced.add(naming.LEDGER)
    topics.grow(naming.LEDGER, *stored({ProgressKey(GOOD): PROGRESS}))
    with pytest.raises(TopicReplaced):
        await ledger.refresh("good")
    await ledger.refresh("good")
    assert ledger.all_progress("good") == {GOOD: PROGRESS}


async def test_an_unreadable_producer_record_stops_only_batches_of_that_producer_each_time() -> None:
    known = FlowProducer("flow", "dc1", "dc1-id", flow_spec("flow").rename)
    topics = InternalTopics(
        {
            naming.PRODUCERS: [
                InternalRecord(provenance.encode_producer_key(5), NEWER),
                InternalRecord(provenance.encode_producer_key(6), provenance.encode_producer(known)),
            ]
        }
    )

    directory = ProducerDirectory(topics)  # type: ignore[arg-type]
    for _ in range(2):
        with pytest.raises(UnreadableRecord):
            await directory.resolve({5, 7})
        assert directory.unknown({5})
    await directory.resolve({6, 7})
    assert not directory.unknown({6, 7})


async def test_an_unreadable_producer_key_stops_batches_of_every_producer() -> None:
    topics = InternalTopics({naming.PRODUCERS: [InternalRecord(b"newer", b"?")]})

    directory = ProducerDirectory(topics)  # type: ignore[arg-type]
    with pytest.raises(UnreadableRecord):
        await directory.resolve({7})


async def test_a_directory_that_was_read_and_is_missing_makes_no_producer_native() -> None:
    topics = InternalTopics({naming.PRODUCERS: []})
    directory = ProducerDirectory(topics)  # type: ignore[arg-type]
    await directory.resolve({6})
    topics.gone.add(naming.PRODUCERS)
    with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        await directory.resolve({7})
    assert directory.unknown({7})


@jumping
async def test_producers_are_looked_up_again_once_the_directory_exists() -> None:
    known = FlowProducer("flow", "dc1", "dc1-id", flow_spec("flow").rename)
    record = InternalRecord(provenance.encode_producer_key(6), provenance.encode_producer(known))
    topics = InternalTopics({naming.PRODUCERS: [record]})
    topics.gone.add(naming.PRODUCERS)
    directory = ProducerDirectory(topics)  # type: ignore[arg-type]
    await directory.resolve({6})
    assert not directory.unknown({6})
    topics.gone.clear()
    await until(lambda: directory.unknown({6}))
    await directory.resolve({6})
    assert directory.flow_of(6) == "flow"


@jumping
async def test_a_directory_that_does_not_exist_is_looked_up_less_and_less_often() -> None:
    topics = InternalTopics({naming.PRODUCERS: []})
    topics.gone.add(naming.PRODUCERS)
    directory, lookups = ProducerDirectory(topics), 0  # type: ignore[arg-type]
    for _ in range(50):
        if directory.unknown({6}):
            lookups += 1
            await directory.resolve({6})
        await asyncio.sleep(1)
    assert 5 <= lookups <= 7
    await directory.resolve({7})  # a new id, which a flow may have got just now
    await asyncio.sleep(1.5)
    assert directory.unknown({7})
