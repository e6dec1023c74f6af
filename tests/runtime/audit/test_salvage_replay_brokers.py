"""`repl salvage --replay` on real brokers and real Spark: each orphan once, whatever dies (R1, R2)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from runtime.audit.ledger import FlowAccess
from runtime.audit.offsets.unread import unread_replays
from runtime.contract.client.endpoint import ClusterEndpoint
from runtime.contract.records.control import AssignedPartition
from runtime.contract.records.provenance import HEADER, decode
from runtime.contract.results.records import ReplayedPartition
from runtime.contract.spec.jobspec import Route
from runtime.contract.spec.route import Router
from runtime.contract.spec.selection import SelectionSpec
from runtime.replay.request import ReplayRequest
from runtime.replay.task import copy_partitions
from tests.commands import repl
from tests.runtime.audit.ended import end_flow, leave
from tests.runtime.slot.workload import mixed
from tests.runtime.slot.world import Driver, Row, Side, assigned, copy_through, copying, flow_spec
from tests.topologies import declared, of_flows

pytestmark = [pytest.mark.integration, pytest.mark.spark]
Fresh = Callable[[str], str]


def replayed(file: Path, flow: str, *options: str, code: int = 0, **env: str) -> dict[str, Any]:
    options = ("--path", str(file), "--replay", "--auto-approve", "--json", *options)
    done = repl("salvage", flow, *options, env=env, timeout=180)
    assert done.returncode == code, done.stderr
    found: dict[str, Any] = json.loads(done.stdout) if done.stdout else {"said": done.stderr}
    return found


def place(row: Row) -> tuple[str, int, int] | None:
    """Where a record's header says it came from."""
    origin = decode(dict(row.headers).get(HEADER))
    return (origin.topic, origin.partition, origin.offset) if origin is not None else None


def own(row: Row) -> Row:
    return Row(
        row.offset, row.timestamp, row.key, row.value, tuple(one for one in row.headers if one[0] != HEADER)
    )


def test_killed_in_the_middle_and_run_again_nothing_is_lost_and_nothing_doubled(
    sides: Mapping[str, Side], fresh: Fresh, tmp_path: Path
) -> None:
    begun, late = copying(sides, fresh, 2), fresh("late")
    flow, orders, here, there = begun.flow.name, begun.topic, begun.source, begun.destination
    mixed(here, orders, 2, seed=21, count=100)
    begun.copy_through()
    copied = [len(rows) for rows in here.read(orders, 2)]
    mixed(here, orders, 2, seed=22, count=200)
    here.write(orders, [{"value": bytes(9_000), "partition": at % 2} for at in range(1_400)])
    left = [rows[copied[number] :] for number, rows in enumerate(here.read(orders, 2))]
    here.create(late)  # the flow never copied it, and retention deleted a part
    here.write(late, [{"key": b"k", "value": b"late %d" % at} for at in range(5)])
    here.forget(late, 3)
    end_flow(begun.driver, flow)
    file = of_flows(sides, tmp_path, declared(flow, orders, late, state="failed_over"))
    assert f"there is no topic {late}" in replayed(file, flow, code=1)["said"]
    there.create(late)

    died = replayed(file, flow, code=1, REPL_FAILPOINT="after_ledger:3")
    assert "run it again" in died["said"]
    # What it died in is open until somebody takes over: that is not waited for.
    held = *there.read(orders, 2, settle=False), *there.read(late, settle=False)
    between = [len(rows) for rows in held]
    assert sum(copied) < sum(between) < sum(copied) + sum(map(len, left)) + 2
    again = replayed(file, flow)
    assert again["records"] == sum(copied) + sum(map(len, left)) + 2 - sum(between)
    for number, rows in enumerate(there.read(orders, 2)):
        behind = rows[copied[number] :]
        assert [own(row) for row in behind] == left[number]
        assert [place(row) for row in behind] == [(orders, number, row.offset) for row in left[number]]
    assert [(row.value, place(row)) for row in there.read(late)[0]] == [
        (b"late 3", (late, 0, 3)),
        (b"late 4", (late, 0, 4)),
    ]

    reverse = f"{flow}-back"
    behind = there.read(orders, 2)[0][copied[0] :]
    copied_end = there.read(orders, 2)[0][copied[0] - 1].offset + 1
    positions = [(copied_end - 1, None), (copied_end, 0), (behind[0].offset, 0), (behind[100].offset, 100)]
    for position, has_read in (*positions, (behind[-1].offset + 1, len(behind))):
        group = fresh("group")
        commit(there, group, orders, position)
        unread = asyncio.run(unread_replays(reverse_request(sides, flow, reverse, orders, group), flow))
        if has_read in (None, len(behind)):
            assert unread == []  # it continues in front of these records, or has read them
        else:
            (one,) = unread
            assert one.topic == orders
            assert len(behind) - has_read <= one.records <= len(behind)

    shown = repl("salvage", flow, "--path", str(file), "--replay")
    assert shown.returncode == 0
    assert f"{late}-0: retention deleted 3 offsets: they are lost" in shown.stdout
    assert "Nothing is left to replay" in shown.stdout
    none_comes_home(sides, fresh, orders)


def commit(side: Side, group: str, topic: str, offset: int) -> None:
    """Commits an offset of partition 0 for a group without members."""
    consumer = Consumer({**side.client, "group.id": group, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def reverse_request(sides: Mapping[str, Side], flow: str, reverse: str, topic: str, group: str) -> FlowAccess:
    forth = SelectionSpec((topic,))
    routes = (
        Route(flow, "dc1", "dc2", forth),
        Route(reverse, "dc2", "dc1", SelectionSpec(()), undoes=forth),
    )
    return FlowAccess(
        flow=reverse,
        router=Router(routes),
        source=ClusterEndpoint("dc2", sides["dc2"].bootstrap),
        destination=ClusterEndpoint("dc1", sides["dc1"].bootstrap),
        selects=lambda name: name == group,
        within_s=30.0,
    )


@pytest.mark.long
def test_two_at_once_double_nothing(sides: Mapping[str, Side], fresh: Fresh) -> None:
    """Who comes later fences who came before; what neither finished, the next one does (R3)."""
    begun = copying(sides, fresh)
    orders, here, there = begun.topic, begun.source, begun.destination
    here.write(orders, [{"value": b"copied"}])
    begun.copy_through()
    here.write(orders, [{"value": b"%d" % at + bytes(2_000)} for at in range(1_000)], batch_size=20_000)
    end_flow(begun.driver, begun.flow.name)
    leave(sides, begun.flow.name)
    part = AssignedPartition(begun.flow.name, orders, 0, orders, 1_000_000)
    request = ReplayRequest(
        flow=begun.flow, source=here.spec(), destination=there.spec(), parts=[part], bytes=30_000
    )

    def one() -> ReplayedPartition:
        (copied,) = asyncio.run(copy_partitions(request))
        return copied

    with ThreadPoolExecutor(3) as threads:
        ended = [each.result() for each in [threads.submit(one) for _ in range(3)]]
    assert [each.unread for each in ended].count("") >= 1
    assert there.read(orders)[0] == [
        Row(row.offset, row.timestamp, row.key, row.value, found.headers)
        for row, found in zip(here.read(orders)[0], there.read(orders)[0], strict=True)
    ]


def none_comes_home(sides: Mapping[str, Side], fresh: Fresh, orders: str) -> None:
    """A way home takes what was born at dc2, and nothing that is at dc1 already (R5)."""
    back = fresh("back")
    before = [len(rows) for rows in sides["dc1"].read(orders, 2)]
    sides["dc2"].write(orders, [{"value": b"born there", "partition": 1}])
    backward = Driver(sides, "dc1", job=fresh("job"))
    spec = flow_spec(back, "dc2", "dc1", provenance="batch", shared=True)
    copy_through(backward, spec, assigned(back, orders, 2))
    after = sides["dc1"].read(orders, 2)
    assert [len(rows) for rows in after] == [before[0], before[1] + 1]
    assert after[1][-1].value == b"born there"
