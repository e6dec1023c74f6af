"""Schemas of a replay that keeps ids are registered once, before its tasks need them."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Literal

import pytest

from runtime.contract.records.control import AssignedPartition
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.schemas import RegistrySpec, SchemaSync
from runtime.replay.request import ReplayRequest
from runtime.replay.schemas import register_kept
from runtime.schemas.client import SchemaRegistry
from runtime.schemas.copier import SchemaCopier
from tests.fakes.registry import RegistryServer, registry_server
from tests.runtime.slot.world import flow_spec

ITEM: dict[str, Any] = {"type": "record", "name": "Item", "fields": []}
ORDER: dict[str, Any] = {"type": "record", "name": "Order", "fields": []}


class Pair:
    def __init__(self, source: RegistryServer, destination: RegistryServer) -> None:
        self.source, self.destination = source, destination
        source.add(5, ITEM, "item")
        source.add(7, ORDER, "t-value", references=[{"name": "Item", "subject": "item", "version": 1}])
        source.add(8, {**ORDER, "doc": "new"}, "t-value", version=4)
        source.add(9, ORDER, "t-key")
        source.add(10, ITEM, "other-value")

    async def register(self, ids: Literal["keep", "translate"]) -> None:
        flow = flow_spec("f", schemas=SchemaSync(sync=True, ids=ids))
        servers = {flow.source: self.source, flow.destination: self.destination}
        cluster = ClusterSpec(bootstrap="127.0.0.1:1", client={})
        parts = [AssignedPartition("f", "t", number, "copy.t") for number in range(2)]
        request = ReplayRequest(
            flow=flow,
            source=cluster,
            destination=cluster,
            parts=parts,
            registries={name: RegistrySpec(url=server.url) for name, server in servers.items()},
        )
        await register_kept(request)


@pytest.fixture
def pair() -> Iterator[Pair]:
    with ExitStack() as stack:
        yield Pair(*(stack.enter_context(registry_server()) for _ in range(2)))


async def test_tasks_find_each_schema_and_change_no_mode(pair: Pair) -> None:
    await pair.register("keep")
    assert pair.destination.subjects == {
        "item": {1: 5},
        "copy.t-key": {1: 9},
        "copy.t-value": {1: 7, 4: 8},
    }
    assert set(pair.destination.modes.values()) == {"READWRITE"}
    pair.destination.asked.clear()
    clients = [SchemaRegistry(RegistrySpec(url=server.url)) for server in (pair.source, pair.destination)]
    sync = SchemaSync(sync=True, ids="keep")
    tasks = [SchemaCopier(clients[0], clients[1], sync, ended=True) for _ in range(4)]
    numbers = await asyncio.gather(
        *(task.ensure(number, "t", "copy.t") for task in tasks for number in (7, 8))
    )
    assert numbers == [7, 8] * 4
    assert [path for path in pair.destination.asked if "mode" in path] == []
    for client in clients:
        client.close()


async def test_a_schema_that_can_not_be_registered_keeps_no_other_back(pair: Pair) -> None:
    pair.destination.modes["copy.t-key"] = "READONLY"
    await pair.register("keep")
    assert "copy.t-key" not in pair.destination.subjects
    assert pair.destination.subjects["copy.t-value"] == {1: 7, 4: 8}


async def test_a_flow_that_translates_ids_changes_no_mode_and_registers_nothing_here(pair: Pair) -> None:
    await pair.register("translate")
    assert pair.destination.asked == []
