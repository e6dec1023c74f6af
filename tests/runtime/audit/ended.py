"""A flow that ended, and what a failback does before it begins: as a driver would have done it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from msgspec.structs import replace

from runtime.contract.records.control import driver_transactional_id
from runtime.contract.records.ledger import GenerationKey
from runtime.ledger.ledger import Ledger
from runtime.ledger.positions import leave_orphans
from runtime.ledger.transaction_writer import TransactionWriter, fence
from tests.records import PATIENCE_S
from tests.runtime.slot.world import Driver, Side


def end_flow(driver: Driver, flow: str) -> None:
    """Failed over: the generation record, then the fence."""

    async def end() -> None:
        async with await driver.sides[driver.destination].open() as destination:
            ledger = await Ledger.open(destination)
            await ledger.refresh(flow)
            before = ledger.generation(flow)
            assert before is not None
            writer = await TransactionWriter.open(destination, driver_transactional_id(driver.job))
            after = replace(before, number=before.number + 1, state="failed_over")
            await writer.commit({GenerationKey(flow): after})
            assert not await fence(destination, before.transactional_ids, within=PATIENCE_S)

    asyncio.run(end())


def leave(
    sides: Mapping[str, Side], flow: str, source: str = "dc1", destination: str = "dc2"
) -> list[tuple[int, int]]:
    """Orphans what the flow has not copied, and returns all its orphaned ranges."""

    async def left() -> list[tuple[int, int]]:
        async with await sides[source].open() as here, await sides[destination].open() as there:
            await leave_orphans(flow, here, there, "failback")
            ledger = await Ledger.open(there)
            await ledger.decided(flow)
            marks = ledger.orphans(flow).values()
            return [(low, one.end) for orphans in marks for low, one in orphans.orphaned]

    return asyncio.run(left())
