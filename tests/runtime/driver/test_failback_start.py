"""A flow that had ended runs again at the end of its opposite flow, or not at all."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import cast

import pytest
from msgspec.structs import replace

from runtime.contract.records.ledger import Generation, GenerationKey
from runtime.contract.spec import naming
from runtime.contract.spec.flow import Earliest
from runtime.contract.spec.jobspec import FlowSpec
from runtime.driver.flows.failback import start_failback
from runtime.driver.flows.start import DriverContext, FlowWaits
from runtime.kafka.cluster import KafkaCluster
from runtime.ledger.ledger import Ledger
from tests.fakes.internal_topics import InternalTopics, stored
from tests.runtime.slot.world import flow_spec

BACK = Generation(5, "job", "active", "driver", [], "id-1", "id-2", 1, life=1, turning=True)


class Writer:
    """Keeps what is committed; it leads."""

    def __init__(self) -> None:
        self.generations: list[Generation] = []

    async def ensure(self) -> None: ...

    async def commit(self, values: Mapping[GenerationKey, Generation]) -> None:
        self.generations += values.values()


async def started(mine: Generation, spec: FlowSpec, *, source_has_ledger: bool = False) -> list[Generation]:
    at_destination = InternalTopics({naming.LEDGER: stored({GenerationKey("flow"): mine})})
    ledger, writer = await Ledger.open(cast(KafkaCluster, at_destination)), Writer()
    await ledger.decided("flow")
    shared = SimpleNamespace(ledger=ledger, leadership=writer)
    source = InternalTopics({naming.LEDGER: [], naming.OFFSET_MAP: []})
    if not source_has_ledger:
        source.gone |= {naming.LEDGER, naming.OFFSET_MAP}
    await start_failback(spec, "back", cast(DriverContext, shared), cast(KafkaCluster, source), {})
    return writer.generations


@pytest.mark.parametrize("source_has_ledger", [False, True])
async def test_a_flow_that_had_ended_waits_while_its_opposite_has_no_ledger(source_has_ledger: bool) -> None:
    """A cluster that just came back may not know its topics yet."""
    with pytest.raises(FlowWaits, match="dc1 has no ledger of its opposite flow back"):
        await started(BACK, flow_spec("flow"), source_has_ledger=source_has_ledger)


@pytest.mark.parametrize(
    ("mine", "spec"),
    [
        (replace(BACK, life=0), flow_spec("flow")),
        (BACK, flow_spec("flow", restart_from=Earliest())),
    ],
)
async def test_a_flow_begins_without_its_opposite_the_first_time_or_by_restart_from(
    mine: Generation, spec: FlowSpec
) -> None:
    assert await started(mine, spec) == [replace(mine, turning=False)]
