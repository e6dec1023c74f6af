"""Reads of a registry are shared, and each caller gets what was registered before it called."""

import asyncio

from runtime.contract.spec.schemas import RegistrySpec
from runtime.driver.subjects import SubjectsReader
from runtime.schemas.client import SchemaRegistry
from tests.fakes.registry import registry_server


async def test_callers_share_a_read_that_begins_after_each_of_them_has_called() -> None:
    with registry_server() as server:
        registry = SchemaRegistry(RegistrySpec(url=server.url), {})
        reader = SubjectsReader(lambda name: registry)
        server.add(1, "long", "a")
        server.open.clear()
        first = asyncio.ensure_future(reader.read("dc1"))
        await asyncio.sleep(0)
        server.add(2, "long", "b")
        others = [asyncio.ensure_future(reader.read("dc1")) for _ in range(5)]
        await asyncio.sleep(0)
        server.open.set()
        results = await asyncio.gather(first, *others)
        assert {frozenset(found) for found in results[1:]} == {frozenset("ab")}
        assert len([path for path in server.asked if "offset=0" in path]) == 2
        registry.close()
