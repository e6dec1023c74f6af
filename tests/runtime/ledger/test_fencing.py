"""Fencing many transactional ids: few connections, one question for their coordinators, and what is stuck."""

import asyncio
from collections.abc import Iterable
from typing import Any

from runtime.contract.client.settings import wire_settings
from runtime.kafka.cluster import CONTROL, KafkaCluster
from runtime.kafka.errors import BrokerError, ErrorCode
from runtime.kafka.protocol.transactions import (
    NO_IDENTITY,
    CoordinatorKind,
    InitProducerIdResponse,
    ProducerIdentity,
)
from runtime.ledger.transaction_writer import fence

IDS = [f"repl.job.flow.{number}" for number in range(200)]
NODES = 3


class Coordinators(KafkaCluster):
    """A cluster that answers InitProducerId; the ids in `stuck` wait for a marker."""

    def __init__(self, stuck: Iterable[str] = (), *, known: bool = True) -> None:
        super().__init__(wire_settings("localhost:1", {}))
        self.looked_up: list[list[str]] = []
        self.connections: set[tuple[int, str]] = set()
        self.initialised: list[str] = []
        self._stuck = frozenset(stuck)
        self._known = known

    async def coordinators(self, kind: CoordinatorKind, keys: Iterable[str]) -> dict[str, int | BrokerError]:
        wanted = list(keys)
        self.looked_up.append(wanted)
        if not self._known and len(wanted) > 1:
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "looking for coordinators")
        found = {key: number % NODES for number, key in enumerate(wanted)}
        for key, node in found.items():
            self.know_coordinator(kind, key, node)
        return dict(found)

    async def call(self, node: int, request: Any, purpose: str = CONTROL, within: float | None = None) -> Any:
        self.connections.add((node, purpose))
        if request.transactional_id in self._stuck:
            return InitProducerIdResponse(0, ErrorCode.CONCURRENT_TRANSACTIONS, NO_IDENTITY)
        self.initialised.append(request.transactional_id)
        return InitProducerIdResponse(0, ErrorCode.NONE, ProducerIdentity(1, 1))


def test_many_ids_share_connections_and_one_question():
    async def story() -> None:
        cluster = Coordinators()
        assert await fence(cluster, IDS) == []
        assert sorted(cluster.initialised) == sorted(IDS)
        assert cluster.looked_up == [IDS]
        assert len(cluster.connections) <= 8 * NODES

    asyncio.run(story())


def test_what_is_stuck_is_returned_and_the_others_are_fenced():
    async def story() -> None:
        stuck = IDS[5:7]
        cluster = Coordinators(stuck)
        assert await fence(cluster, IDS[:10], within=0.05) == stuck
        assert sorted(cluster.initialised) == sorted(set(IDS[:10]) - set(stuck))

    asyncio.run(story())


def test_where_coordinators_are_not_found_at_once_each_id_looks_for_its_own():
    async def story() -> None:
        cluster = Coordinators(known=False)
        assert await fence(cluster, IDS[:10]) == []
        assert sorted(cluster.initialised) == sorted(IDS[:10])

    asyncio.run(story())
