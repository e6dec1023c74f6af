"""A broker cuts a connection whose SASL session is over: none of a slot's gets so old."""

import asyncio
from collections.abc import Callable

import pytest

from runtime.lab.cluster import Security
from runtime.slot.slot import Slot
from tests.conftest import MakeLab
from tests.labs import spec
from tests.records import coordinators_ready
from tests.runtime.slot.world import FAST, Driver, Side, assigned, at_end, flow_spec, until

pytestmark = pytest.mark.integration

SESSION_S = 8
SESSIONS = 2.5
BROKERS = 2  # one of them has nothing of the ledger


def test_no_transaction_is_lost_to_a_session_that_ends(own_lab: MakeLab, fresh: Callable[[str], str]) -> None:
    limits = {"connections.max.reauth.ms": f"{SESSION_S * 1000}", "allow.everyone.if.no.acl.found": "true"}
    dc1 = own_lab(spec("dc1", brokers=BROKERS, security=Security.SASL, properties=limits)).clusters["dc1"]
    side = Side("dc1", dc1.bootstrap, dc1.client)
    side.create_internal()
    coordinators_ready(side.client)
    topic, copy, flow = fresh("orders"), fresh("copy"), flow_spec(fresh("flow"))
    for name in (topic, copy):
        side.create(name, BROKERS)
    driver = Driver({"dc1": side, "dc2": side}, job=fresh("job"), settings=FAST)

    async def aborts() -> int:
        assignment = await driver.take_over(flow, assigned(flow.name, topic, BROKERS, destination_topic=copy))
        async with driver.running(assignment) as slot:
            await _one_more(slot, side, topic, 1)
            before, count = slot.status().flows[0].aborts, 1
            ends = asyncio.get_running_loop().time() + SESSIONS * SESSION_S
            while asyncio.get_running_loop().time() < ends:
                await asyncio.sleep(0.1)  # a transaction after the other, and cores for other tests
                count += 1
                await _one_more(slot, side, topic, count)
            return slot.status().flows[0].aborts - before

    assert asyncio.run(aborts()) == 0
    assert side.read(copy, BROKERS) == side.read(topic, BROKERS)


async def _one_more(slot: Slot, side: Side, topic: str, count: int) -> None:
    rows = [{"value": b"%d" % count, "partition": number} for number in range(BROKERS)]
    await asyncio.to_thread(side.write, topic, rows)
    await until(slot, at_end([count] * BROKERS))
