"""`foreign_writes` on real brokers: never for the flow's own records and markers, always for another's."""

import asyncio
from collections.abc import Callable
from typing import Literal

import pytest

from tests.records import PATIENCE_S
from tests.runtime.slot.world import Side, at_end, copying, until

pytestmark = pytest.mark.integration


def write_as_another(side: Side, topic: str, kind: Literal["single", "committed", "aborted"]) -> None:
    """Readers never see an aborted record, and it is written by another all the same."""
    more = {} if kind == "single" else {"transactional_id": f"other-{topic}"}
    producer = side.producer(**more)
    if more:
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
    producer.produce(topic, b"-1", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    if kind == "committed":
        producer.commit_transaction(PATIENCE_S)
    elif kind == "aborted":
        producer.abort_transaction(PATIENCE_S)


@pytest.mark.parametrize("kind", ["single", "committed", "aborted"])
async def test_another_writer_is_seen_while_the_flow_copies(
    kind: Literal["single", "committed", "aborted"], sides: dict[str, Side], fresh: Callable[[str], str]
) -> None:
    orders = copying(sides, fresh)
    async with orders.running() as slot:
        for step in (1, 2, 3):
            await orders.write([{"value": b"%d" % step * 1_000}] * 10)
            (status,) = await until(slot, at_end([10 * step]))
            assert not status.foreign_writes
        await asyncio.to_thread(write_as_another, orders.destination, orders.topic, kind)
        await orders.write([{"value": b"last"}])
        await until(slot, lambda one: one.foreign_writes and one.position == 31)
