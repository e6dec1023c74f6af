"""Schemas between two real registries of Apicurio, which give ids of their own."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from planner.model.change import Action
from runtime.contract.records.schemas import Reference, Schema
from runtime.contract.spec.rename import Template
from runtime.contract.spec.schemas import RegistrySpec
from runtime.schemas.client import SchemaRegistry
from runtime.schemas.versions import SchemaVersion
from tests.labs.apicurio import apicurio
from tests.planner.apply.test_schemas import Pair, changes, errors, record

pytestmark = [pytest.mark.long, pytest.mark.integration]


class Address:
    """The address of a real registry."""

    def __init__(self, url: str) -> None:
        self.url = url


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    logs = tmp_path_factory.mktemp("registries")
    with apicurio(logs / "dc1.log") as here, apicurio(logs / "dc2.log") as there:
        yield here, there


def test_ids_are_translated_and_a_registry_without_modes_refuses_to_keep_them(urls: tuple[str, str]) -> None:
    pair: Any = Pair(*(Address(url) for url in urls))  # type: ignore[arg-type]
    customer = {"type": "record", "name": "Customer", "fields": [{"name": "name", "type": "string"}]}
    refers = {"type": "record", "name": "Bill", "fields": [{"name": "for", "type": "Customer"}]}

    async def filled(here: SchemaRegistry, there: SchemaRegistry) -> None:
        for number in range(5):
            await there.register("other-value", _avro(record(*"vwxyz"[: number + 1])))
        await here.register("customer", _avro(customer))
        await here.register("orders-key", _avro(refers, Reference("Customer", "customer", 1)))
        for fields in ("a",), ("a", "b"), ("a", "b", "c"):
            await here.register("orders-value", _avro(record(*fields)))
        await here.set_compatibility("FULL", "orders-value")

    async def compared(here: SchemaRegistry, there: SchemaRegistry) -> list[dict[str, Any]]:
        return [await registry.every_version() for registry in (here, there)]

    _with_clients(urls, filled)
    shop = pair.topology("translate", rename=Template("copy.{topic}"))
    first = pair.plan(shop)
    assert changes(first) == {
        # Apicurio says NONE for a subject without a compatibility of its own.
        "schema.dc2.copy.orders-key": ("create", {"versions": 1, "compatibility": "NONE"}),
        "schema.dc2.copy.orders-value": ("create", {"versions": 3, "compatibility": "FULL"}),
        "schema.dc2.customer": ("create", {"versions": 1, "compatibility": "NONE"}),
    }
    assert pair.apply(first) == {}
    assert {change.action for change in pair.plan(shop).changes if change.address.kind == "schema"} == {
        Action.NO_OP
    }
    here, there = _with_clients(urls, compared)
    assert _texts(there["copy.orders-value"]) == _texts(here["orders-value"])
    assert _texts(there["copy.orders-key"]) == _texts(here["orders-key"])
    assert there["copy.orders-key"][0].references == (("customer", 1),)
    ids = [
        {version.id for version in listed["copy.orders-value" if listed is there else "orders-value"]}
        for listed in (here, there)
    ]
    assert not ids[0] & ids[1]

    keeping = pair.plan(pair.topology("keep"))
    assert "the schema registry of dc2 has no mode for importing: it can't keep ids" in errors(keeping)
    failures = pair.apply(keeping)
    why = failures["configure:schema.dc2.orders-value"]
    assert why == f"{urls[1]}: it has no modes, so it can't keep ids — set schemas.ids to translate"
    assert all("set schemas.ids to translate" in text for text in failures.values())
    assert "orders-value" not in _with_clients(urls, compared)[1]


def _avro(schema: object, *references: Reference) -> Schema:
    return Schema(json.dumps(schema), references=references)


def _texts(versions: tuple[SchemaVersion, ...]) -> list[str]:
    return [version.fingerprint for version in versions]


def _with_clients(urls: tuple[str, str], use: Any) -> Any:
    async def used() -> Any:
        clients = [SchemaRegistry(RegistrySpec(url=url), {}) for url in urls]
        try:
            return await use(*clients)
        finally:
            for client in clients:
                client.close()

    return asyncio.run(used())
