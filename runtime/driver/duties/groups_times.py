"""Consumer timestamps that a look of group sync learned, kept at the destination (R10)."""

from __future__ import annotations

from runtime.contract.spec import naming
from runtime.driver.flows.takeover import Shared
from runtime.driver.slots.channel import post
from runtime.ledger.consumer_times import Times

_PURPOSE = "groups"


async def keep_times(shared: Shared, times: Times) -> None:
    """Raises WireError, DriverFenced."""
    topic = (await shared.destination.topics([naming.TIMESTAMPS]))[naming.TIMESTAMPS]
    unsaid = times.unsaid(len(topic.partitions))
    if not unsaid:
        return
    await shared.pulse.still()
    for partition, records in unsaid.items():
        await post(shared.destination, naming.TIMESTAMPS, records, _PURPOSE, partition)
    times.said()
