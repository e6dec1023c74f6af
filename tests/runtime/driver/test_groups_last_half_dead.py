"""Groups moved a last time while one of the source's three brokers hangs: the others still tell."""

import asyncio
from collections.abc import Callable
from functools import partial

import pytest
from msgspec.structs import replace

from runtime.contract.spec.jobspec import FlowSpec
from runtime.driver.duties.group_sync import FinalGroupSync
from runtime.lab.lab import Lab
from tests.conftest import MakeLab
from tests.labs import spec
from tests.records import wait_for
from tests.runtime.conftest import sides_of
from tests.runtime.driver.groups_world import commit, committed, driving, syncing
from tests.runtime.slot.world import Driver, Side, assigned, copy_through, flow_spec

pytestmark = pytest.mark.integration

RECORDS, BEFORE, AFTER = 20, 5, 15
HANGING = 2


def test_who_still_answers_is_believed_and_of_the_rest_the_last_known_place_counts(
    own_lab: MakeLab, fresh: Callable[[str], str]
) -> None:
    lab = own_lab(spec("dc1", brokers=3), spec("dc2"))
    sides = sides_of(lab)
    topic, flow = fresh("orders"), flow_spec(fresh("flow"))
    for side in sides.values():
        side.create(topic)
    sides["dc1"].write(topic, [{"value": b"%d" % one} for one in range(RECORDS)])
    copy_through(Driver(sides, job=fresh("job")), flow, assigned(flow.name, topic))
    groups = [fresh("group") for _ in range(12)]
    for group in groups:
        wait_for(partial(told, sides["dc1"], group, topic, BEFORE))
    asyncio.run(known(sides, flow))
    for group in groups:
        assert told(sides["dc1"], group, topic, AFTER)
    silent = {group for group in groups if coordinator(sides["dc1"], group) == HANGING}
    assert 0 < len(silent) < len(groups)

    asyncio.run(last(sides, flow, lab))
    for group in groups:
        stands = committed(sides["dc2"], group)[topic, 0]
        assert stands == AFTER or (group in silent and stands == BEFORE), (group, stands, silent)


def told(side: Side, group: str, topic: str, offset: int) -> bool:
    """A coordinator that is new to its partition may refuse at first."""
    try:
        commit(side, group, {(topic, 0): offset})
    except AssertionError:
        return False
    return True


def coordinator(side: Side, group: str) -> int:
    admin = side.admin()
    (done,) = admin.describe_consumer_groups([group]).values()
    return int(done.result(60).coordinator.id)


async def known(sides: dict[str, Side], flow: FlowSpec) -> None:
    async with syncing(sides, flow) as sync:
        await sync.sync_once()


async def last(sides: dict[str, Side], flow: FlowSpec, lab: Lab) -> None:
    """Of a job that ran already when the broker began to hang."""
    async with driving(sides, flow, (), "last") as (job, shared):
        await shared.clusters.cluster(flow.source)
        lab.pause(f"{flow.source}:{HANGING}")
        async with asyncio.timeout(120):
            await FinalGroupSync(job, replace(flow, state="failed_over"), shared, set, lambda _: None).run()
