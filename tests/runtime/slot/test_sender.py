"""A lane's connections to leaders are kept while they are fit, and replaced between transactions."""

import asyncio

from runtime.kafka.connection import BufferPool, Connection
from runtime.slot.write.sender import ProduceSender
from runtime.slot.write.transaction import Transaction
from tests.fakes.clock import virtual

NEAR, FAR = 1, 2


class Cluster:
    """Connects at once; `too_old` are the brokers whose connection is too old."""

    def __init__(self) -> None:
        self.too_old: set[int] = set()
        self.made: list[int] = []
        self._links: dict[int, Connection] = {}

    def kept(self, node: int, purpose: str) -> Connection | None:
        return None if node in self.too_old else self._links.get(node)

    async def connection(self, node: int, purpose: str, within: float) -> Connection:
        kept = self.kept(node, purpose)
        if kept is None:
            self.made.append(node)
            self.too_old.discard(node)
            kept = self._links[node] = Connection(
                f"broker {node}", "test", request_timeout=1, max_response_bytes=1, buffers=BufferPool()
            )
        return kept


async def test_a_connection_that_is_too_old_is_replaced_between_transactions() -> None:
    cluster = Cluster()
    sender = ProduceSender(cluster, "tx", 1 << 20, lambda: None)  # type: ignore[arg-type]
    for node in (NEAR, FAR):
        await sender.connect_to(node)
    cluster.too_old.add(FAR)
    assert sender.is_connected(FAR)  # a transaction goes on with what it has
    sender.begin()
    assert sender.is_connected(NEAR)
    assert not sender.is_connected(FAR)
    await sender.connect_to(FAR)
    sender.begin()
    assert sender.is_connected(FAR)
    assert cluster.made == [NEAR, FAR, FAR]


@virtual
async def test_a_sender_that_is_throttled_wakes_once_when_the_quota_allows_requests() -> None:
    cluster, wakes = Cluster(), list[float]()
    loop = asyncio.get_running_loop()
    sender = ProduceSender(cluster, "tx", 1 << 20, lambda: wakes.append(loop.time()))  # type: ignore[arg-type]
    await sender.connect_to(NEAR)
    sender.ready[NEAR] = {}
    until = loop.time() + 5
    (await cluster.connection(NEAR, "", 0)).throttled_until = until
    for _ in range(100):
        assert sender.make_requests(Transaction(0.0)) == []
    await asyncio.sleep(10)
    assert [woke >= until for woke in wakes] == [True]
