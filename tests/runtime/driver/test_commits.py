"""Ledger records of several flows are one transaction, and a heartbeat does not wait for all of them."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from runtime.batch import Batch
from runtime.contract.records.ledger import GenerationKey, LedgerKey, LedgerValue
from runtime.driver.leadership import DriverFenced, DriverWriter
from runtime.kafka.errors import BrokerError, ErrorCode, WireError
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.ledger.records import InternalRecord

STATUS = TopicPartition("__repl.status", 0)


class Transactions:
    """Holds each transaction until the test ends it, one at a time, as the real writer does."""

    def __init__(self) -> None:
        self.flows: list[list[str]] = []  # of each transaction; a heartbeat has none
        self.ended: asyncio.Queue[Exception | None] = asyncio.Queue()
        self._lock = asyncio.Lock()

    async def commit(
        self,
        records: Mapping[LedgerKey, LedgerValue | None],
        batches: Mapping[TopicPartition, Sequence[Batch]] | None = None,
        *,
        within: float = 0,
    ) -> None:
        async with self._lock:
            self.flows.append([key.flow for key in records if isinstance(key, GenerationKey)])
            error = await self.ended.get()
            if error is not None:
                raise error


def record(flow: str) -> dict[LedgerKey, LedgerValue | None]:
    return {GenerationKey(flow): None}


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


class Scene:
    def __init__(self) -> None:
        self.transactions = Transactions()
        self.writer = DriverWriter(self.transactions)

    async def start(self, *flows: str) -> list[asyncio.Task[None]]:
        tasks = [asyncio.create_task(self.writer.commit(record(flow))) for flow in flows]
        await settle()
        return tasks

    async def end(self, error: Exception | None = None) -> None:
        self.transactions.ended.put_nowait(error)
        await settle()


def test_callers_that_wait_share_the_next_transaction() -> None:
    async def work() -> None:
        scene = Scene()
        tasks = await scene.start("a", "b", "c")
        await scene.end()
        assert [one.done() for one in tasks] == [True, False, False]
        await scene.end()
        await asyncio.gather(*tasks)
        assert scene.transactions.flows == [["a"], ["b", "c"]]

    asyncio.run(work())


def test_a_heartbeat_waits_for_one_transaction_of_ledger_records_at_most() -> None:
    async def work() -> None:
        scene = Scene()
        same = [await scene.start("a") for _ in range(5)]  # one key: five transactions
        beat = asyncio.create_task(scene.writer.commit_status(STATUS, [InternalRecord(b"k", b"v")]))
        await settle()
        await scene.end()
        await scene.end()
        assert beat.done()
        assert scene.transactions.flows[:3] == [["a"], [], ["a"]]
        for _ in range(4):
            await scene.end()
        await asyncio.gather(*(task for tasks in same for task in tasks))
        assert len(scene.transactions.flows) == 6

    asyncio.run(work())


def test_commits_of_one_key_keep_their_order() -> None:
    async def work() -> None:
        scene = Scene()
        tasks = await scene.start("a", "b", "b", "c")
        for _ in range(3):
            await scene.end()
        await asyncio.gather(*tasks)
        assert scene.transactions.flows == [["a"], ["b"], ["b", "c"]]

    asyncio.run(work())


def test_after_a_refusal_each_flow_gets_a_transaction_of_its_own() -> None:
    """R7: what a broker refuses of one flow stops no other flow."""

    async def work() -> None:
        scene = Scene()
        first = await scene.start("a")
        refused = await scene.start("b", "c")
        await scene.end()
        await scene.end(BrokerError(ErrorCode.MESSAGE_TOO_LARGE, "the ledger"))
        results = await asyncio.gather(*first, *refused, return_exceptions=True)
        assert [type(one) for one in results] == [type(None), BrokerError, BrokerError]
        again = await scene.start("b", "c", "d")
        await scene.end(BrokerError(ErrorCode.MESSAGE_TOO_LARGE, "the ledger"))
        await scene.end()
        await scene.end()
        results = await asyncio.gather(*again, return_exceptions=True)
        assert [type(one) for one in results] == [BrokerError, type(None), type(None)]
        assert scene.transactions.flows == [["a"], ["b", "c"], ["b"], ["c"], ["d"]]

    asyncio.run(work())


def test_a_fence_reaches_all_that_shared_the_transaction() -> None:
    async def work() -> None:
        scene = Scene()
        first = await scene.start("a")
        fenced = await scene.start("b", "c")
        await scene.end()
        await scene.end(BrokerError(ErrorCode.PRODUCER_FENCED, "the driver's id"))
        results = await asyncio.gather(*first, *fenced, return_exceptions=True)
        assert [type(one) for one in results] == [type(None), DriverFenced, DriverFenced]

    asyncio.run(work())


def test_a_cancelled_caller_takes_nobody_with_it() -> None:
    async def work() -> None:
        scene = Scene()
        (first,) = await scene.start("a")
        leading, other, waiting = await scene.start("b", "c", "a")
        await scene.end()
        assert scene.transactions.flows == [["a"], ["b", "c", "a"]]
        (late,) = await scene.start("d")
        late.cancel()
        leading.cancel()  # it commits for all three
        await settle()
        with pytest.raises(WireError, match="interrupted"):
            await other
        with pytest.raises(WireError, match="interrupted"):
            await waiting
        (again,) = await scene.start("c")
        await scene.end()
        await asyncio.gather(first, again)
        assert scene.transactions.flows[2:] == [["c"]]

    asyncio.run(work())
