"""Groups of data that another tool copied before the flow: by the time of their records, none is skipped."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from runtime.audit.ledger import FlowAccess
from runtime.audit.offsets.offsets import group_offsets
from runtime.contract.client.endpoint import ClusterEndpoint
from runtime.contract.results.groups import GroupOffsets
from runtime.contract.spec import naming
from runtime.contract.spec.flow import AtOffsets, GroupsSpec
from runtime.contract.spec.jobspec import FlowSpec, Route
from runtime.contract.spec.rename import Template
from runtime.contract.spec.route import Router
from runtime.contract.spec.selection import SelectionSpec
from tests.runtime.driver.groups_world import commit, committed, last_look, look
from tests.runtime.slot.workload import LONG_AGO
from tests.runtime.slot.world import Driver, Row, Side, assigned, copy_through, flow_spec

pytestmark = pytest.mark.integration
Fresh = Callable[[str], str]
OLDER, ALL = 40, 60  # records that were copied before the flow, and in all
SWAPPED = {10: 13, 11: 10, 12: 11, 13: 12}  # written somewhat out of order


def numbered(start: int, end: int) -> list[dict[str, Any]]:
    """Two of them in each second."""
    return [
        {"value": b"%d" % one, "timestamp": LONG_AGO + SWAPPED.get(one, one) // 2 * 1_000}
        for one in range(start, end)
    ]


def migrated(sides: dict[str, Side], fresh: Fresh) -> tuple[FlowSpec, tuple[str, int], tuple[str, int]]:
    """Another tool copied the older ones, and wrote something of its own in between."""
    topic = fresh("orders")
    flow = flow_spec(fresh("flow"), "dc1", "dc2", rename=Template(text="copy.{topic}"))
    flow = replace(
        flow,
        topics=SelectionSpec(include=(topic,)),
        groups=GroupsSpec(include=(f"{topic}.*",), mode="timestamp"),
    )
    here, there = (topic, 0), (f"copy.{topic}", 0)
    for side, name in (("dc1", here[0]), ("dc2", there[0])):
        sides[side].create(name)
    sides["dc1"].write(topic, numbered(0, ALL))
    own = {"value": b"own", "timestamp": LONG_AGO}
    sides["dc2"].write(there[0], [own, *numbered(0, 20), own, *numbered(20, OLDER)])
    driver = Driver(sides, "dc2", fresh("job"))
    start = AtOffsets(offsets={topic: {0: OLDER}})
    copy_through(driver, flow, assigned(flow.name, topic, 1, destination_topic=there[0]), start=start)
    return flow, here, there


def left(rows: Sequence[Row], offset: int) -> list[bytes | None]:
    return [row.value for row in rows if row.offset >= offset and row.value != b"own"]


def told(
    sides: dict[str, Side], flow: FlowSpec, group: str, source: str, within_s: float = 60
) -> GroupOffsets:
    route = Route(
        flow.name, "dc1", "dc2", SelectionSpec(tuple(flow.topics.include)), Template("copy.{topic}")
    )
    reaches = ClusterEndpoint("dc1", source), ClusterEndpoint("dc2", sides["dc2"].bootstrap)
    access = FlowAccess(flow.name, Router([route]), *reaches, within_s, by_time=True)
    return asyncio.run(group_offsets(access, group))


def test_a_time_is_remembered_when_its_record_is_gone(sides: dict[str, Side], fresh: Fresh) -> None:
    """Of a source that deleted it, and of one that is dead; what was never known waits at the beginning."""
    flow, here, there = migrated(sides, fresh)
    group, behind, unknown = (f"{here[0]}-{one}" for one in ("g", "behind", "unknown"))
    commit(sides["dc1"], group, {here: 20})
    commit(sides["dc1"], behind, {here: 30})
    look(sides, flow)
    sides["dc1"].forget(here[0], 36)
    commit(sides["dc1"], group, {here: 24})  # nothing tells when record 24 was written; 20 was before it
    commit(sides["dc1"], unknown, {here: 24})
    assert look(sides, flow).states == {"translated": 2, "unmapped": 1}
    rows = sides["dc2"].read(there[0])[0]
    rest = left(rows, committed(sides["dc2"], group)[there])
    assert rest == [b"%d" % one for one in range(20, ALL)]
    assert committed(sides["dc2"], unknown) == {}

    admin = sides["dc2"].admin()
    for done in admin.delete_consumer_groups([behind]).values():
        done.result(60)
    (note,) = asyncio.run(last_look(sides, flow, lost="dc1"))
    assert note.startswith(f"{unknown}: not committed at dc2: below the first offset")
    rest = left(rows, committed(sides["dc2"], behind)[there])
    assert rest == [b"%d" % one for one in range(30, ALL)]
    seen = told(sides, flow, behind, "127.0.0.1:1", 3).partitions[0]
    assert (seen.by, seen.exact) == ("time", False)
    assert naming.TIMESTAMPS in admin.list_topics(timeout=60).topics
