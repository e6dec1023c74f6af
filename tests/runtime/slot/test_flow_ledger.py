"""A flow's ledger: under which generation it may be written, and whether another writer has written (R3)."""

from collections.abc import Mapping
from typing import cast

import pytest
from msgspec.structs import replace

from runtime.contract.records.ledger import Generation, GenerationKey, LedgerKey, LedgerValue, ProgressKey
from runtime.contract.records.provenance import FlowProducer
from runtime.contract.spec import naming
from runtime.kafka.cluster import KafkaCluster
from runtime.ledger.ledger import Ledger
from runtime.slot.write.flow_ledger import FlowLedger, Superseded
from tests.fakes.internal_topics import InternalTopics, stored
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
