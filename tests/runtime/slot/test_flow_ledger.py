"""A flow's ledger: under which generation it may be written, and whether another writer has written (R3)."""

import asyncio
from collections.abc import Mapping
from typing import cast

import pytest
from msgspec.structs import replace

from runtime.contract.records.ledger import Generation, GenerationKey, LedgerKey, LedgerValue, ProgressKey
from runtime.contract.records.provenance import FlowProducer
from runtime.contract.spec import naming
from runtime.contract.spec.naming import NO_TOPIC_ID
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import ErrorCode
from runtime.ledger.ledger import Ledger
from runtime.slot.write.flow_ledger import FlowLedger, Superseded
from runtime.slot.write.sender import ProduceSender
from runtime.slot.write.transaction import Transaction, TransactionFailure
from tests.fakes.clock import virtual
from tests.fakes.internal_topics import InternalTopics, stored
from tests.fakes.lane import Destination
from tests.fakes.partition import partition
from tests.runtime.slot.world import flow_spec

OURS = Generation(3, "job", "active", "driver", [], "dc1", "dc2", 1)


async def opened(values: Mapping[LedgerKey, LedgerValue]) -> FlowLedger:
    cluster = cast(KafkaCluster, InternalTopics({naming.LEDGER: stored(values)}))
    producer = FlowProducer("flow", "dc1", "id-1", flow_spec("flow").rename)
    return FlowLedger("flow", 3, producer, await Ledger.open(cluster), cluster, 1)


@pytest.mark.parametrize(
    ("generation", "found"),
    [
        (None, "none"),
        (replace(OURS, number=4), "4, active"),
        (replace(OURS, state="promoted"), "3, promoted"),
    ],
)
async def test_a_flow_of_another_generation_must_not_be_written(
    generation: Generation | None, found: str
) -> None:
    ledger = await opened({} if generation is None else {GenerationKey("flow"): generation})
    with pytest.raises(Superseded, match=f"the ledger's generation of flow is {found}; this slot's is 3"):
        await ledger.refresh()


async def test_progress_that_another_writer_moved_is_a_difference() -> None:
    kept, moved, gone = (partition(number) for number in range(3))
    ours: dict[LedgerKey, LedgerValue] = {GenerationKey("flow"): OURS}
    ledger = await opened(ours | {ProgressKey(copy.key): copy.progress for copy in (kept, moved)})
    expected = {kept: kept.progress, moved: replace(moved.progress, position=9), gone: gone.progress}
    assert await ledger.differences(expected) == [moved, gone]


async def test_topic_ids_that_an_upgrade_brought_are_no_difference() -> None:
    """An idle partition commits nothing, so the ledger keeps the ones of before."""
    copy = partition()
    copy.committed(replace(copy.progress, source_topic_id=NO_TOPIC_ID, destination_topic_id=NO_TOPIC_ID))
    ours: dict[LedgerKey, LedgerValue] = {GenerationKey("flow"): OURS, ProgressKey(copy.key): copy.progress}
    ledger = await opened(ours)
    copy.take_topic_ids(b"s" * 16, b"d" * 16)
    assert copy.progress.source_topic_id == b"s" * 16
    assert await ledger.differences({copy: copy.progress}) == []
    assert await ledger.differences({copy: replace(copy.progress, position=9)}) == [copy]


@virtual
async def test_a_transaction_of_idle_positions_waits_three_seconds_for_the_marker_before_it() -> None:
    """Then its lane renews the id, and its partitions leave a lane that is stuck (fencing 4)."""
    destination = Destination()
    destination.add_error = ErrorCode.CONCURRENT_TRANSACTIONS
    cluster = cast(KafkaCluster, destination)
    topics = cast(KafkaCluster, InternalTopics({naming.LEDGER: stored({})}))
    producer = FlowProducer("flow", "dc1", "id-1", flow_spec("flow").rename)
    ledger = FlowLedger("flow", 3, producer, await Ledger.open(topics), cluster, 1)
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(TransactionFailure, match="CONCURRENT_TRANSACTIONS"):
        await ledger.write(Transaction(0.0), ProduceSender(cluster, "lane", 1 << 20, lambda: None), "lane")
    assert loop.time() - began < 4
