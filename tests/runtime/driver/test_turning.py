"""What a failback reads of its opposite flow grows with the partitions, not with their square."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any

from runtime.contract import naming
from runtime.contract.advance import first_progress
from runtime.contract.ledger import (
    Generation,
    GenerationKey,
    PartitionKey,
    ProgressKey,
    encode_key,
    encode_value,
)
from runtime.copy.records import Record, build, plain
from runtime.copy.wire.codes import ErrorCode
from runtime.copy.wire.protocol.fetch import FetchedPartition, FetchRequest, FetchResponse
from runtime.copy.wire.protocol.metadata import Partition, Topic
from runtime.copy.wire.protocol.offsets import ListedOffset, ListOffsetsRequest, ListOffsetsResponse
from runtime.driver.turning import Opposite, read_opposite
from tests.runtime.copy.world import flow_spec

LEADER = Partition(0, 1, 5, (1,), (1,))
FLOW = flow_spec("back", source="dc2", destination="dc1", reverse_of="there")


class Source:
    """A cluster that holds one batch in its ledger, and nothing in its offset map."""

    def __init__(self, records: list[Record]) -> None:
        self._records = memoryview(b"".join(bytes(part) for part in plain(build(records, 1))))
        self._end = len(records)

    async def topics(self, names: Iterable[str], fresh: bool = False) -> dict[str, Topic]:
        return {name: Topic(name, name.encode()[:16], ErrorCode.NONE, False, {0: LEADER}) for name in names}

    def leader(self, topic: str, partition: int) -> Partition:
        return LEADER

    async def call(self, node: int, request: Any, purpose: str, within: float | None) -> Any:
        if isinstance(request, ListOffsetsRequest):
            ends = {at: self._end if at.topic == naming.LEDGER else 0 for at in request.questions}
            return ListOffsetsResponse(0, {at: ListedOffset(end, -1, 5) for at, end in ends.items()})
        assert isinstance(request, FetchRequest)
        found = FetchedPartition(
            naming.LEDGER.encode()[:16],
            0,
            ErrorCode.NONE,
            self._end,
            self._end,
            0,
            (),
            -1,
            self._records,
            None,
        )
        return FetchResponse(0, ErrorCode.NONE, 0, (found,))


def ended(partitions: int) -> list[Record]:
    """The ledger of a flow that was promoted."""
    generation = Generation(3, "job", "promoted", "driver", [], "dc1", "dc2", 1)
    records = [Record(encode_key(GenerationKey("there")), encode_value(generation))]
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
        records.append(Record(encode_key(key), encode_value(progress)))
    return records


def read(partitions: int) -> tuple[Opposite, float]:
    source = Source(ended(partitions))

    async def work() -> tuple[Opposite, float]:
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
