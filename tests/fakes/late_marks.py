"""A driver's writer on real brokers that are slow: what it committed can be read only a while later."""

import asyncio
from collections.abc import Mapping, Sequence

from runtime.contract.records.ledger import LedgerKey, LedgerValue
from runtime.driver.writer import DriverWriter
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.kafka.transactions import add_partitions, end_transaction
from runtime.ledger.records import InternalRecord

LATE_S = 0.5


class LateMarks(DriverWriter):
    """The end of a transaction is answered before its marks are written: here, always long before."""

    _marks: asyncio.Task[None] | None = None

    async def commit(self, records: Mapping[LedgerKey, LedgerValue | None]) -> None:
        await self._marked()
        by_partition = await self._placed(records)
        await add_partitions(self._cluster, self._transactional_id, self._identity, list(by_partition))
        await self._put(by_partition)
        self._marks = asyncio.create_task(self._mark())

    async def beat(self, at: TopicPartition, records: Sequence[InternalRecord]) -> None:
        await self._marked()
        await super().beat(at, records)

    async def _mark(self) -> None:
        await asyncio.sleep(LATE_S)
        await end_transaction(self._cluster, self._transactional_id, self._identity, commit=True)

    async def _marked(self) -> None:
        if self._marks is not None:
            await self._marks
