"""This module stores at the destination the consumer timestamps that group sync has read (R10)."""

from __future__ import annotations

from runtime.contract.spec import naming
from runtime.driver.flows.takeover import FlowContext
from runtime.driver.slots.channel import post
from runtime.ledger.consumer_times import ConsumerTimeTable

_PURPOSE = "groups"


async def store_times(shared: FlowContext, times: ConsumerTimeTable) -> None:
    """Writes the timestamps that are not stored yet. Raises WireError, DriverFenced."""
    topic = (await shared.destination.topics([naming.TIMESTAMPS]))[naming.TIMESTAMPS]
    unstored = times.unsaved_records(len(topic.partitions))
    if not unstored:
        return
    await shared.leadership.ensure()
    for partition, records in unstored.items():
        await post(shared.destination, naming.TIMESTAMPS, records, _PURPOSE, partition)
    times.mark_saved()
