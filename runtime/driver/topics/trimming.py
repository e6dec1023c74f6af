"""This module trims the offset map of a flow to what its destination still holds (R6)."""

from __future__ import annotations

import asyncio

from runtime.driver.flows.takeover import FlowContext
from runtime.kafka.errors import WireError
from runtime.ledger.maps import trim_map
from runtime.ledger.scan import READ_FAILURES

EVERY_S = 3_600.0


async def trim_periodically(flow: str, shared: FlowContext, notes: dict[str, str]) -> None:
    """Trims the offset map every hour.

    A failure is noted in `notes` and retried an hour later. Raises DriverFenced.
    """
    while True:
        await asyncio.sleep(EVERY_S)
        try:
            await shared.leadership.ensure()
            await trim_map(shared.destination, shared.writer, flow)
            notes.pop("offset map", None)
        except (WireError, *READ_FAILURES) as error:
            notes["offset map"] = f"it was not trimmed: {error}"
