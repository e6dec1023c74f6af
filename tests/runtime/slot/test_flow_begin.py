"""A flow begins under the newest generation alone (R3, fencing 3), and waits while no lane works."""

from typing import Any, cast

import pytest
from msgspec.structs import replace

from runtime.contract.client.settings import WireSettings
from runtime.contract.records.control import AssignedFlow
from runtime.contract.records.job_status import PartitionState as State
from runtime.contract.records.ledger import Generation, GenerationKey
from runtime.contract.spec import naming
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import Unsupported
from runtime.kafka.protocol.transactions import InitProducerIdRequest
from runtime.ledger.ledger import Ledger
from runtime.slot.budget import ResponseMemory
from runtime.slot.context import SlotContext
from runtime.slot.errors import ErrorPhase, decide
from runtime.slot.flow import FlowCopy
from runtime.slot.partition import CopyPhase, Cursor, PartitionCopy
from runtime.slot.read.reader import FetchFailed
from runtime.slot.write.events import LaneFreed, LaneStuck
from runtime.slot.write.flow_ledger import Superseded
from runtime.slot.write.lane import LaneState
from tests.fakes.internal_topics import TransactionalTopics, stored
from tests.fakes.partition import partition, queued
from tests.runtime.slot.world import flow_spec, slot_context

OURS = Generation(3, "job", "active", "driver", [], "dc1", "dc2", 1)


class TakenOver(TransactionalTopics):
    """Another driver writes its generation just before the slot's last transactional id is initialised."""

    cluster_id = "dc2-id"

    def __init__(self) -> None:
        super().__init__({naming.LEDGER: stored({GenerationKey("flow"): OURS}), naming.PRODUCERS: []})

    async def call(self, node: int, request: Any, purpose: str, within: float | None) -> Any:
        if isinstance(request, InitProducerIdRequest) and len(self.steps) == 3:
            theirs = replace(OURS, number=4, driver="another")
            self.grow(naming.LEDGER, *stored({GenerationKey("flow"): theirs}))
        return await super().call(node, request, purpose, within)


async def new_flow() -> tuple[FlowCopy, SlotContext]:
    """A flow that has not begun."""
    cluster = cast(KafkaCluster, TakenOver())
    context = slot_context(cluster, await Ledger.open(cluster))
    source = KafkaCluster(WireSettings((("127.0.0.1", 9),)))
    return FlowCopy(AssignedFlow(flow_spec("flow"), 3), source, None, context, lambda _: None), context


def copied_by(flow: FlowCopy) -> PartitionCopy:
    """A partition that the flow has begun to copy."""
    copy = flow.copies[partition().key] = partition()
    copy.resume()
    return copy


async def test_the_generation_is_read_behind_the_last_transactional_id() -> None:
    """The first one is renewed behind the others."""
    flow, context = await new_flow()
    with pytest.raises(Superseded, match="generation of flow is 4, active; this slot's is 3"):
        await flow.begin()
    await flow.drain()
    ids = [f"repl.job.0.flow.{lane}" for lane in range(4)]
    assert cast(TakenOver, context.destination).steps == [*ids, ids[0]]


async def test_a_partition_that_no_broker_can_be_asked_for_is_reported_by_name() -> None:
    flow, _ = await new_flow()
    copy = copied_by(flow)
    why = Unsupported("FETCH", "broker 1 does not offer it")
    flow.handle(FetchFailed(copy, decide(ErrorPhase.FETCH, why), str(why)))
    assert copy.state is State.UNSUPPORTED_VERSION


async def test_a_partition_holds_no_memory_while_every_lane_is_stuck() -> None:
    """The other flows of the slot go on (R7, R8); it is inspected and fetched again once a lane works."""
    flow, context = await new_flow()
    copy = copied_by(flow)
    flow._lanes.place(copy)
    context.budget.take(100)
    held = ResponseMemory(context.budget, 100)
    copy.fetched([queued((10, 1), held=held)], Cursor(11, 0))
    for lane in flow._lanes.all:
        lane.state = LaneState.STUCK
    flow.handle(LaneStuck(flow._lanes.all[0].transactional_id, "no answer"))
    assert (copy.phase, copy.cursor.offset, context.budget.used) == (CopyPhase.HELD, 10, 0)
    spare = flow._lanes.all[-1]
    spare.state = LaneState.IDLE
    flow.handle(LaneFreed(spare.transactional_id))
    assert (copy.phase, copy in spare.copies) == (CopyPhase.INSPECTING, True)
