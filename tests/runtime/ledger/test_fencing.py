"""Fencing many transactional ids: few connections, one question for their coordinators, and what is stuck."""

import asyncio
from collections.abc import Iterable
from typing import Any

from runtime.contract.client.settings import wire_settings
from runtime.kafka.cluster import CONTROL, KafkaCluster
from runtime.kafka.errors import BrokerError, ErrorCode, TimedOut
from runtime.kafka.protocol.transactions import CoordinatorKind, ProducerIdentity
from runtime.ledger.transaction_writer import fence
from tests.fakes.clock import virtual

IDS = [f"repl.job.flow.{number}" for number in range(200)]
NODES = 3


class Coordinators(KafkaCluster):
    """A cluster that answers InitProducerId, but not for `hangs`. The ids in `stuck` wait for a marker."""

    def __init__(self, stuck: Iterable[str] = (), *, known: bool = True, hangs: str = "") -> None:
        super().__init__(wire_settings("localhost:1", {}))
        self.looked_up: list[list[str]] = []
        self.connections: set[tuple[int, str]] = set()
        self.busy: set[tuple[int, str]] = set()
        self.initialised: list[str] = []
        self._stuck = frozenset(stuck)
        self._known = known
        self._hangs = hangs

    async def coordinators(self, kind: CoordinatorKind, keys: Iterable[str]) -> dict[str, int | BrokerError]:
        wanted = list(keys)
        self.looked_up.append(wanted)
        if not self._known and len(wanted) > 1:
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "looking for coordinators")
        found = {key: number % NODES for number, key in enumerate(wanted)}
        self.know_coordinators(kind, found)
        return dict(found)

    async def call(self, node: int, request: Any, purpose: str = CONTROL, within: float | None = None) -> Any:
        self.connections.add((node, purpose))
        assert (node, purpose) not in self.busy, "a request waits behind another one in the broker's socket"
        self.busy.add((node, purpose))
        try:
            await asyncio.sleep(within or 0 if request.transactional_id == self._hangs else 0)
        finally:
            self.busy.remove((node, purpose))
        if request.transactional_id == self._hangs:
            raise TimedOut(f"broker {node}", "no answer", sent=True)
        if request.transactional_id in self._stuck:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        self.initialised.append(request.transactional_id)
        return ProducerIdentity(1, 1)


async def test_many_ids_share_connections_and_one_question():
    cluster = Coordinators()
    assert await fence(cluster, IDS) == {}
    assert sorted(cluster.initialised) == sorted(IDS)
    assert cluster.looked_up == [IDS]
    assert len(cluster.connections) == 16 * NODES


async def test_what_is_stuck_is_returned_and_the_others_are_fenced():
    stuck = IDS[5:7]
    cluster = Coordinators(stuck)
    left = await fence(cluster, IDS[:10], within=0.05)
    assert list(left) == stuck
    assert all("can't take the marker" in why for why in left.values())
    assert sorted(cluster.initialised) == sorted(set(IDS[:10]) - set(stuck))


@virtual
async def test_what_waits_for_a_connection_that_hangs_is_not_sent():
    cluster = Coordinators(hangs=IDS[0])
    some = IDS[:60]
    stuck = await fence(cluster, some, within=1)
    assert next(iter(stuck)) == some[0]
    assert "its coordinator does not answer" in stuck[some[0]]
    assert len(stuck) < len(some) / NODES  # at most those that share its connection
    assert sorted(cluster.initialised) == sorted(set(some) - set(stuck))


async def test_where_coordinators_are_not_found_at_once_each_id_looks_for_its_own():
    cluster = Coordinators(known=False)
    assert await fence(cluster, IDS[:10]) == {}
    assert sorted(cluster.initialised) == sorted(IDS[:10])
