"""Before a failback: the flow that is brought home lets go of what its source still holds."""

from __future__ import annotations

from runtime.driver.flows.takeover import Shared
from runtime.ledger.orphans import Marks, leave_orphans

FAILBACK = "failback"


async def orphan_before(flow: str, source: str, destination: str, shared: Shared) -> Marks:
    """`flow` is the one that is brought home, with its own direction's clusters; its ledger is at
    `destination`, which is where the way back begins. Raises NotEnded, WireError: then again. DriverFenced.
    """
    old_primary = await shared.clusters.cluster(source)
    there = await shared.clusters.cluster(destination)
    await shared.pulse.still()
    return await leave_orphans(flow, old_primary, there, FAILBACK)
