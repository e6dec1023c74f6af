"""Fencing 2 on a real broker: what is committed behind another's open transaction is seen."""

import asyncio
from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from runtime.copy.scan import Scan
from tests.records import PATIENCE_S
from tests.runtime.copy.world import Side

pytestmark = pytest.mark.integration


def test_an_open_transaction_hides_no_later_commit(
    sides: dict[str, Side], fresh: Callable[[str], str]
) -> None:
    topic = fresh("ledger")
    sides["dc2"].create(topic)
    slow, quick = (_begun(sides["dc2"], fresh(name)) for name in ("slow", "quick"))
    for producer, key in ((slow, b"open"), (quick, b"committed")):
        producer.produce(topic, key=key, value=b"1")
        assert producer.flush(60) == 0
    quick.commit_transaction(60)

    async def look() -> None:
        cluster = await sides["dc2"].open()
        try:
            scan = Scan(cluster, topic, 0)
            await _read_on(scan, b"committed")
            assert scan.fold.get(b"open") is None
            assert scan.fold.undecided(b"open")
            await asyncio.to_thread(slow.commit_transaction, 60)
            await _read_on(scan, b"open")
        finally:
            await cluster.close()

    asyncio.run(look())


async def _read_on(scan: Scan, key: bytes) -> None:
    """An end is answered before its mark is written."""
    async with asyncio.timeout(PATIENCE_S):
        while scan.fold.get(key) is None:
            await scan.refresh()
            await asyncio.sleep(0.02)


def _begun(side: Side, transactional_id: str) -> Producer:
    producer = side.producer(transactional_id=transactional_id)
    producer.init_transactions(60)
    producer.begin_transaction()
    return producer
