"""What a failback reads of its opposite flow grows with the partitions, not with their square."""

from __future__ import annotations

import asyncio
import time

from runtime.contract.records.advance import first_progress
from runtime.contract.records.ledger import (
    Generation,
    GenerationKey,
    PartitionKey,
    ProgressKey,
    encode_key,
    encode_value,
)
from runtime.contract.spec import naming
from runtime.driver.flows.failback import OppositeFlowLedger, read_opposite
from runtime.ledger.records import InternalRecord
from tests.fakes.internal_topics import InternalTopics
from tests.runtime.slot.world import flow_spec

FLOW = flow_spec("back", source="dc2", destination="dc1", reverse_of="there")


def ended(partitions: int) -> list[InternalRecord]:
    """The ledger of a flow that was promoted."""
    generation = Generation(3, "job", "promoted", "driver", [], "dc1", "dc2", 1)
    records = [InternalRecord(encode_key(GenerationKey("there")), encode_value(generation))]
    for number in range(partitions):
        progress = first_progress(
            generation=3,
            source_topic_id=b"s" * 16,
            destination_topic="orders",
            destination_topic_id=b"d" * 16,
            position=number,
            destination_end=number,
            now_ms=1,
        )
        key = ProgressKey(PartitionKey("there", "orders", number))
        records.append(InternalRecord(encode_key(key), encode_value(progress)))
    return records


def read(partitions: int) -> tuple[OppositeFlowLedger, float]:
    source = InternalTopics({naming.LEDGER: ended(partitions)})

    async def work() -> tuple[OppositeFlowLedger, float]:
        began = time.process_time()
        return await read_opposite(FLOW, "there", source), time.process_time() - began  # type: ignore[arg-type]

    return asyncio.run(work())


def test_each_partition_is_decoded_once() -> None:
    """Decoding all of them for each one took minutes for as many partitions as these."""
    found, seconds = read(10_000)

    assert found.generation is not None
    assert found.generation.ended
    places = {key.partition: progress.position for key, progress in found.progress.items()}
    assert places == {number: number for number in range(10_000)}
    assert len(found.maps) == len(found.topics) == 10_000
    assert seconds < 20
