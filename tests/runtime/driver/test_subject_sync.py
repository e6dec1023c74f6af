"""What a running job brings to the destination's schema registry before records need it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from runtime.contract.spec.jobspec import FlowSpec, Route
from runtime.contract.spec.rename import Template
from runtime.contract.spec.route import Router
from runtime.contract.spec.schemas import RegistrySpec, SchemaSync
from runtime.contract.spec.selection import SelectionSpec
from runtime.driver.duties.subject_sync import SubjectSync
from runtime.driver.subjects import SubjectsReader
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.metadata import TopicMetadata
from runtime.schemas.client import SchemaRegistry
from tests.fakes.registry import RegistryServer, registry_server
from tests.waiting import until

EVERY = SelectionSpec(include=(".*",))
FORWARD = Route(name="f", source="dc1", destination="dc2", topics=EVERY, rename=Template("copy.{topic}"))
SAME = Route(name="f", source="dc1", destination="dc2", topics=EVERY)
BACK = Route(name="g", source="dc2", destination="dc1", topics=EVERY)
EVERY_S = 0.2


class Following:
    """A flow f from dc1 to dc2 whose job follows the schemas of both topics at dc1, and its registries."""

    def __init__(self, here: RegistryServer, there: RegistryServer) -> None:
        self.here, self.there = here, there
        self.notes: dict[str, str] = {}
        self.actions: Counter[tuple[str, str]] = Counter()
        self.fenced = 0
        self.clients = {
            name: SchemaRegistry(RegistrySpec(url=server.url), {})
            for name, server in (("dc1", here), ("dc2", there))
        }

        self.subjects = SubjectsReader(self.schema_registry)

    async def listing(self, _: str) -> dict[str, TopicMetadata]:
        return {
            name: TopicMetadata(name, b"", ErrorCode.NONE, False, {})
            for name in ("orders", "orders-eu", "pay")
        }

    def schema_registry(self, name: str) -> SchemaRegistry:
        return self.clients[name]

    async def ensure(self) -> None:
        self.fenced += 1

    @asynccontextmanager
    async def running(
        self, sync: SchemaSync, routes: Iterable[Route] = (FORWARD,), **more: Any
    ) -> AsyncIterator[None]:
        routes = tuple(routes)
        spec = FlowSpec(
            name="f",
            source="dc1",
            destination="dc2",
            topics=EVERY,
            rename=routes[0].rename,
            schemas=sync,
            follow_every_ms=int(EVERY_S * 1000),
            **more,
        )
        router = Router(routes)

        def selected(topics: Iterable[str]) -> dict[str, str]:
            return {topic: str(router.destination_topic("f", topic)) for topic in topics if topic != "pay"}

        shared = SimpleNamespace(clusters=self, leadership=self)
        flow: Any = SimpleNamespace(spec=spec, shared=shared, selected=selected)
        duty = SubjectSync(flow, router, self.notes, self.actions)
        task = asyncio.create_task(duty.run())
        try:
            yield
            assert not task.done()
        finally:
            task.cancel()


@pytest.fixture
def following() -> Iterator[Following]:
    with registry_server() as here, registry_server() as there:
        world = Following(here, there)
        yield world
        for client in world.clients.values():
            client.close()


def record(*fields: str) -> dict[str, Any]:
    types = [{"name": field, "type": "string", "default": ""} for field in fields]
    return {"type": "record", "name": "Order", "fields": types}


KEEP, TRANSLATE = (SchemaSync(sync=True, ids=ids) for ids in ("keep", "translate"))


async def test_new_subjects_versions_and_levels_come_without_a_record(following: Following) -> None:
    here, there = following.here, following.there
    here.add(7, record("a"), "orders-value")
    here.add(8, record("p"), "pay-value")  # the flow does not copy this topic
    async with following.running(KEEP):
        await until(lambda: there.subjects == {"copy.orders-value": {1: 7}})
        here.add(9, record("a", "b"), "orders-value")
        here.levels["orders-value"] = "NONE"
        here.add(11, record("k"), "orders-eu-key", 4)
        await until(lambda: len(there.subjects) == 2)
        await until(lambda: following.actions["f", "schemas"] == 3)
        await until(lambda: "copy.orders-value" in there.levels)
    assert there.subjects == {"copy.orders-value": {1: 7, 2: 9}, "copy.orders-eu-key": {4: 11}}
    assert there.levels["copy.orders-value"] == "NONE"
    assert there.modes["copy.orders-value"] == "IMPORT"
    assert following.notes == {}
    assert following.fenced >= 3  # before each request that changes something (R10)


async def test_a_subject_that_must_exist_before_its_level_has_it_behind_its_first_version(
    following: Following,
) -> None:
    here, there = following.here, following.there
    there.levels_of_new = False
    here.levels["orders-value"] = "NONE"
    here.add(1, record("a"), "orders-value")
    here.add(2, {"type": "enum", "name": "E", "symbols": ["A"]}, "orders-value")
    here.levels["orders-eu-key"] = "FULL"
    here.add(3, record("k"), "orders-eu-key")
    async with following.running(TRANSLATE):
        await until(lambda: following.actions["f", "schemas"] == 3 and len(there.levels) == 3)
    assert there.levels == {None: "BACKWARD", "copy.orders-value": "NONE", "copy.orders-eu-key": "FULL"}


async def test_ids_of_the_destination_and_references_come_in_their_order(following: Following) -> None:
    here, there = following.here, following.there
    there.add(1, {"type": "enum", "name": "E", "symbols": ["A"]}, "other")
    here.add(1, record("c"), "customer")
    refers = [{"name": "Order", "subject": "customer", "version": 1}]
    here.add(2, record("a"), "orders-value", references=refers)
    here.add(3, record("a", "b"), "orders-value", references=refers)
    async with following.running(TRANSLATE):
        await until(lambda: following.actions["f", "schemas"] == 2)
    assert there.subjects == {"other": {1: 1}, "customer": {1: 2}, "copy.orders-value": {1: 3, 2: 4}}


async def test_what_fails_is_noted_and_tried_again_and_others_come(following: Following) -> None:
    here, there = following.here, following.there
    there.down = True
    here.add(7, record("a"), "orders-value")
    here.add(9, record("k"), "orders-eu-key")
    there.add(7, record("other"), "taken")
    async with following.running(KEEP):
        await until(lambda: "schemas" in following.notes)
        assert there.url in following.notes["schemas"]
        assert following.actions["f", "schema_failures"] >= 1
        there.down = False
        await until(lambda: "copy.orders-eu-key" in there.subjects)
        await until(lambda: "schema id 7" in following.notes["schemas"])
        assert following.notes["schemas"].startswith("copy.orders-value: ")
        del there.subjects["taken"], there.schemas[7]
        await until(lambda: not following.notes)
    assert there.subjects["copy.orders-value"] == {1: 7}


@pytest.mark.parametrize(
    "more", [{"routes": (SAME, BACK)}, {"reverse_of": "g"}], ids=["two ways", "a failback"]
)
async def test_levels_do_not_follow_where_they_may_come_from_the_destination(
    following: Following, more: dict[str, Any]
) -> None:
    here, there = following.here, following.there
    here.levels["orders-value"] = "NONE"
    here.add(7, record("a"), "orders-value")
    async with following.running(TRANSLATE, **more):
        await until(lambda: following.actions["f", "schemas"] == 1)
    assert list(there.levels) == [None]


async def test_levels_of_many_subjects_are_compared_in_turn(following: Following) -> None:
    here, there = following.here, following.there
    names = SchemaSync(sync=True, ids="translate", subjects="topic_record_name")
    for number in range(150):
        here.add(number + 1, record(f"f{number}"), f"orders-R{number:03}")
    async with following.running(names):
        await until(lambda: following.actions["f", "schemas"] == 150)
        here.levels |= {f"orders-R{number:03}": "FULL" for number in range(150)}
        await until(lambda: len(there.levels) == 151)
    assert set(there.levels.values()) == {"BACKWARD", "FULL"}
