"""A driver takes a flow over: it writes its generation, then fences the slots of the one before (R3)."""

import asyncio
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any, cast

from runtime.contract.client.settings import wire_settings
from runtime.contract.records.ledger import Generation, GenerationKey, encode_key, encode_value
from runtime.contract.spec import naming
from runtime.contract.spec.jobspec import CopySettings
from runtime.driver.flows.flow import retry_pause
from runtime.driver.flows.start import DriverContext, take_over
from runtime.driver.slots.membership import NO_SLOTS
from runtime.kafka.cluster import CONTROL, KafkaCluster
from runtime.kafka.errors import BrokerError
from runtime.kafka.protocol.transactions import CoordinatorKind, ProducerIdentity
from runtime.kafka.records import InternalRecord
from runtime.ledger.ledger import Ledger
from tests.fakes.internal_topics import InternalTopics
from tests.runtime.slot.world import flow_spec

OLD = [f"repl.old.{slot}.flow.0" for slot in range(3)]
MINE = ["repl.job.0.flow.0"]
BEFORE = Generation(3, "old", "active", "driver-1", OLD, "id-1", "id-2", 1)


class Destination(KafkaCluster):
    """A coordinator that fences every id, and a driver's writer; `done` tells the order of both."""

    def __init__(self) -> None:
        super().__init__(wire_settings("localhost:1", {}))
        self.done: list[Any] = []

    async def coordinators(self, kind: CoordinatorKind, keys: Iterable[str]) -> dict[str, int | BrokerError]:
        for key in keys:
            self.know_coordinator(kind, key, 1)
        return dict.fromkeys(keys, 1)

    async def call(self, node: int, request: Any, purpose: str = CONTROL, within: float | None = None) -> Any:
        self.done.append(request.transactional_id)
        return ProducerIdentity(1, 1)

    async def commit(self, values: Mapping[GenerationKey, Generation]) -> None:
        (written,) = values.values()
        self.done.append((written.number, written.transactional_ids))


def test_the_generation_is_committed_before_the_older_slots_are_fenced() -> None:
    """Between both, the record names the older ids too: a driver that comes next fences them."""

    async def work() -> list[Any]:
        record = InternalRecord(encode_key(GenerationKey("flow")), encode_value(BEFORE))
        destination = Destination()
        shared = SimpleNamespace(
            job="job",
            driver="driver-2",
            layout=NO_SLOTS,
            generations={"flow": 3},
            spec=SimpleNamespace(copy=CopySettings(lanes=1, spare_lanes=0)),
            ledger=await Ledger.open(cast(KafkaCluster, InternalTopics({naming.LEDGER: [record]}))),
            destination=destination,
            writer=destination,
        )
        taken = await take_over(flow_spec("flow"), cast(DriverContext, shared), "id-1", lambda _: None)
        assert (taken.number, taken.note) == (4, "")
        return destination.done

    assert asyncio.run(work()) == [(4, [*MINE, *OLD]), *OLD, (4, MINE)]


def test_a_flow_that_starts_is_tried_again_often_and_after_a_while_as_any_other() -> None:
    """An apply gives up after 8 s of failures: the newest one must not be from before a cluster was back."""
    started = [retry_pause(failures, starting=False) for failures in range(1, 40)]
    starting = [retry_pause(failures, starting=True) for failures in range(1, 40)]
    assert started[:6] == [0.6, 1.2, 2.4, 4.8, 9.6, 10.0]
    assert max(starting[:30]) == 2.0
    assert starting[-1] == started[-1] == 10.0
